"""Times and values in words, and what they look like on a terminal and in a pipe."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from romancy.cli.screen import Screen
from romancy.cli.words import clean, place, relative, value, when

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "now"),
        (-0.5, "now"),
        (-3, "3 s ago"),
        (59, "in 59 s"),
        (250, "in 4 min 10 s"),
        (-250, "4 min ago"),
        (240, "in 4 min"),
        (86_399, "in 23 h 59 min"),
        (-7200, "2 h ago"),
        (100_000, "in 27 h 46 min"),
        (86_400 * 3 + 3600, "in 3 d 1 h"),
        (-86_400 * 30, "30 d ago"),
        (86_400 * 800, "in 2 y 70 d"),
    ],
)
def test_relative(seconds: float, words: str) -> None:
    assert relative(NOW + timedelta(seconds=seconds), NOW) == words


def test_a_moment_is_local_iso_and_relative() -> None:
    local = NOW.astimezone().isoformat(timespec="seconds")
    assert when(NOW, NOW + timedelta(seconds=4)) == f"{local} (4 s ago)"
    assert when(None, NOW) == ""


def test_moments_at_the_end_of_time_do_not_fail() -> None:
    assert when(datetime.max.replace(tzinfo=UTC), NOW) == "never"
    assert "in 79" in when(datetime(9999, 12, 31, 23, 59, tzinfo=UTC), NOW)


def test_what_is_not_printable_is_escaped() -> None:
    assert clean("a\x1b[31m\nb\ud800") == "a\\x1b[31m\\nb\\ud800"
    assert clean("naïve 日本") == "naïve 日本"


def test_values_are_text_or_json_and_cut_where_asked() -> None:
    assert value("plain") == "plain"
    assert value({"a": [1, None]}) == '{"a": [1, null]}'
    assert value("x" * 50, 10) == "xxxxxxx..."


def test_places_are_seen_from_here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place(f"{tmp_path}/shop.py:12 in pay") == "shop.py:12 in pay"
    assert place("/elsewhere/shop.py:12 in pay") == "/elsewhere/shop.py:12 in pay"
    assert place("") == ""


def shown(*, terminal: bool, width: int = 200) -> str:
    out = StringIO()
    screen = Screen(Console(file=out, force_terminal=terminal, width=width, color_system=None))
    rows = [("[red]x", "running", "2026-01-02T03:04:05+01:00 (3 s ago)"), (":smile:", "failed", "")]
    screen.table(("instance", "status", "since"), rows)
    screen.facts({"instance": "[bold]y", "error": "two\nlines"})
    return out.getvalue()


def test_a_terminal_shows_markup_as_it_is_and_times_in_two_lines() -> None:
    text = shown(terminal=True)
    assert "[red]x" in text
    assert ":smile:" in text
    assert "[bold]y" in text
    assert "2026-01-02T03:04:05\n" in text
    assert "+01:00" not in text


def test_a_pipe_gets_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(terminal=False) == ""
    assert capsys.readouterr().out.splitlines() == [
        "instance  status   since",
        "[red]x    running  2026-01-02T03:04:05+01:00 (3 s ago)",
        ":smile:   failed",
        "instance  [bold]y",
        "error     two",
        "          lines",
    ]


ID = "01a1dd81-afe6-70b6-b507-275cab5d0783"


def table(width: int, id: str) -> list[str]:
    out = StringIO()
    screen = Screen(Console(file=out, force_terminal=True, width=width, color_system=None))
    row = (id, "a_workflow", "waiting_for_event", "2026-01-02T03:04:05+01:00 (3 s ago)", "about " * 20)
    screen.table(("instance", "workflow", "status", "started", "about"), [row], drop=("workflow", "started", "about"))
    return [line.rstrip() for line in out.getvalue().splitlines() if not line.startswith("\u2500")]


@pytest.mark.parametrize("width", [50, 80, 99])
def test_a_narrow_terminal_shows_one_line_a_row(width: int) -> None:
    head, line = table(width, "order-1")
    assert (
        head.split()[:2] == ["instance", "workflow"] if width > 50 else head.split() == ["instance", "status", "about"]
    )
    assert line.startswith("order-1")
    assert "waiting_for_event" in line
    assert line.endswith("\u2026")
    assert len(line) <= width
    assert "2026" not in line


def test_a_narrow_terminal_goes_without_what_matters_least() -> None:
    assert table(120, ID)[0].split() == ["instance", "workflow", "status", "started", "about"]
    assert [line.split() for line in table(60, ID)] == [["instance", "status"], [ID, "waiting_for_event"]]
    head, *lines = table(50, ID)
    assert head.split() == ["instance", "status"]
    assert "".join(line.split()[0] for line in lines) == ID, "an id is folded, never cut"


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_terminal_folds_both_sides_of_a_difference(width: int) -> None:
    out = StringIO()
    screen = Screen(Console(file=out, force_terminal=True, width=width, color_system=None))
    recorded, code = (
        'activity_completed reserve:1 {"order_id":"ORD-7"}',
        'waits for activity check:1 check({"order_id":"ORD-7"})',
    )
    screen.table(("workflow", "count", "instance", "recorded", "the code"), [("order", "1", "ORD-7", recorded, code)])
    head, _, line, *folded = out.getvalue().splitlines()
    assert head.split() == ["workflow", "count", "instance", "recorded", "the", "code"]
    assert line.split()[:3] == ["order", "1", "ORD-7"]
    assert "\u2026" not in out.getvalue(), "a difference is never cut"
    assert folded
    assert max(map(len, out.getvalue().splitlines())) <= width


def test_facts_on_a_narrow_terminal_stay_in_their_column() -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=30, color_system=None)
    Screen(console).facts({"about": "one two three four five six", "error": "Traceback\n  File"})
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines == ["about  one two three four five", "       six", "error  Traceback", "         File"]
