"""Text from strangers: it neither hides, nor turns around, nor begins a line of a log."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from romancy.cli.errors import Failed, as_line
from romancy.cli.logs import LogFormatter
from romancy.cli.screen import print_json
from romancy.core.logs import Lines, logger
from romancy.core.visible import printable, visible

FORGED = "boom\n2026-01-01 00:00:00,000 INFO romancy: all is well"
HIDDEN = ["\u202e", "\u202a", "\u2066", "\u2069", "\u200e", "\u061c", "\u200b", "\u2060", "\ufeff", "\u00ad", "\u3164"]
HIDDEN += ["\x00", "\x1b", "\x7f", "\x9b", "\u2028", "\u2029", "\r", "\ud800", "\U000e0041", "\u180e"]


@pytest.mark.parametrize("character", HIDDEN)
def test_what_can_not_be_seen_is_shown(character: str) -> None:
    for shown in (visible(f"a{character}b"), printable(f"a{character}b")):
        assert character not in shown
        assert "\\" in shown


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "مرحبا بالعالم",
        "שלום",
        "日本語　テキスト",
        "a\u00a0b",
        "👩‍👩‍👧‍👦",
        "می‌خواهم",
        "ä\n\tb\r\nc",
        "e\u0301",
        "❤️",
    ],
)
def test_what_people_write_stays(text: str) -> None:
    assert visible(text) == text


def test_joiners_where_there_is_nothing_to_join() -> None:
    assert visible("a\u200db") == "a\\u200db"
    assert visible("admin\u200c") == "admin\\u200c"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """As users set logging up."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    yield text
    logger.removeHandler(handler)


def records(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("20")]


def test_the_text_of_an_error_forges_no_line(log: io.StringIO) -> None:
    logger.warning("attempt %d failed (%s: %s)", 1, "ValueError", FORGED)
    logger.warning("it failed: %s", ValueError(FORGED + "\u202e\x1b[31m\u2028"))
    logger.warning("in %(where)s", {"where": FORGED})
    found = log.getvalue()
    assert len(found.splitlines()) == len(records(found)) == 3
    assert "boom\\n2026" in found
    assert "\x1b" not in found
    assert "\u202e" not in found


def test_a_traceback_forges_no_line(log: io.StringIO) -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger.exception("it failed")
    found = log.getvalue()
    assert len(records(found)) == 1
    assert "  2026-01-01 00:00:00,000 INFO romancy: all is well" in found.splitlines(), "it is there, indented"
    assert "test_visible.py" in found


def test_what_is_quoted_is_quoted_once(log: io.StringIO) -> None:
    logger.warning("event %r of %s: %d", "a\u202eb", "c", 7)
    assert "event 'a\\u202eb' of c: 7" in log.getvalue()


def test_lines_of_our_own_stay_lines(log: io.StringIO) -> None:
    logger.warning("it is at:\n%s", Lines("  File a\n    b"))
    assert log.getvalue().endswith("it is at:\n  File a\n    b\n")


def test_the_log_of_the_command_line_begins_a_record_with_a_time_and_nothing_else() -> None:
    formatter = LogFormatter()
    for message, args in ((f"mine: {FORGED}\x1b[31m", ()), ("mine: %s", (Lines(FORGED),))):
        record = logging.LogRecord("romancy", logging.INFO, "x.py", 1, message, args, None)
        found = formatter.format(record)
        assert len(records(found)) == 1
        assert "\n    2026-01-01" in found
        assert "\x1b" not in found


def test_an_error_on_the_command_line_is_one_line_without_tricks() -> None:
    line, code = as_line(Failed(f"it failed: {FORGED}\x1b[31m\u202e\x9b"))
    assert code == 1
    assert line.isprintable()


def test_json_on_a_terminal_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    given = {"a": "\u202e\x9b31m\x7f\ufeff ä 日本 😀", "b": ["\u2066"]}
    print_json(given)
    shown = capsys.readouterr().out
    assert json.loads(shown) == given
    assert "ä 日本 😀" in shown
    assert shown.replace("\n", "").isprintable()
