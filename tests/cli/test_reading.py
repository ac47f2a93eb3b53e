"""`romancy list`, `show`, `waits`."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from romancy.cli.lists import _whole_error

pytestmark = pytest.mark.usefixtures("database")
READING = [["list"], ["show", "x"], ["why", "x"], ["waits"], ["cancel", "x"], ["resume", "x"], ["send", "t"]]
READING += [["replay", "x", "-m", "shop"]]


def test_list_shows_every_instance_newest_first(romancy) -> None:
    lines = romancy("list").stdout.splitlines()
    assert lines[0].split() == ["instance", "workflow", "status", "started", "about"]
    ids = [line.split()[0] for line in lines[1:]]
    assert set(ids) == {"blocked", "retrying", "[red]x", "order-1", "asleep", "failed", "done"}
    failed = next(line for line in lines if line.startswith("failed"))
    assert "RuntimeError: no way" in failed
    assert next(line for line in lines if line.startswith("done")).endswith('{"greeting": "hello Ada "}')
    assert next(line for line in lines if line.startswith("order-1")).endswith("waiting for ORD-1")
    assert "NonDeterminismError" in next(line for line in lines if line.startswith("blocked"))
    assert "ago)" in failed or "(now)" in failed


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--status", "completed"], {"done"}),
        (["-s", "completed", "-s", "failed"], {"done", "failed"}),
        (["--workflow", "pay"], {"order-1", "[red]x"}),
        (["--text", "ORD-1"], {"order-1"}),
        (["--text", "[red]"], {"[red]x"}),
        (["--workflow", "unheard"], set()),
    ],
)
def test_list_filters(answered, options: list[str], ids: set[str]) -> None:
    assert {item["instance_id"] for item in answered("list", *options)["items"]} == ids


def test_an_empty_list_says_so_beside_the_answer(romancy) -> None:
    result = romancy("list", "-w", "unheard")
    assert result.stderr == "no instances\n"
    assert not result.stdout, "there is no heading without rows"


def test_list_pages_with_a_cursor(romancy, answered) -> None:
    first = answered("list", "--limit", "4")
    rest = answered("list", "--limit", "4", "--cursor", first["cursor"])
    assert rest["cursor"] is None
    assert len({item["instance_id"] for item in [*first["items"], *rest["items"]]}) == 7
    assert f"--cursor {first['cursor']}" in romancy("list", "--limit", "4").stderr


def test_list_as_json(answered) -> None:
    (item,) = answered("list", "-s", "completed")["items"]
    fields = "instance_id workflow status input output error started_at finished_at description version"
    later = "parent run_number run_started_at attributes view builds forked_from schedule queue key priority headers"
    assert set(item) == {*fields.split(), *later.split()}
    assert item["input"] == {"name": "Ada", "times": 1}
    assert item["output"] == {"greeting": "hello Ada "}


def test_a_rare_status_is_counted_only_if_an_instance_has_it(romancy, answered) -> None:
    text = romancy("list", "--help").stdout
    assert "waiting_for_timer," in text
    assert "compensating" in text
    assert answered("list", "-s", "compensating")["items"] == []
    assert "compensating" not in romancy("top", "--once").stdout
    assert answered("top")["counts"]["compensating"] == 0


def test_bad_filters_are_refused(refused) -> None:
    assert "'sleeping' is not one of" in refused("list", "--status", "sleeping")
    assert "not a cursor" in refused("list", "--cursor", "zz")
    assert "0 is not in the range" in refused("list", "--limit", "0")


def test_what_an_ended_instance_said_is_not_said_of_now(romancy) -> None:
    assert "about     waiting for ORD-1\n" in romancy("show", "order-1").stdout
    database = sqlite3.connect("romancy.db")
    with database:
        database.execute("UPDATE romancy_instances SET description = 'waiting for Ada' WHERE id = 'done'")
    database.close()
    text = romancy("show", "done").stdout
    assert re.search(r"^last description +waiting for Ada$", text, re.MULTILINE)
    assert "about" not in text


def test_show_tells_everything_of_an_instance(romancy) -> None:
    text = romancy("show", "order-1").stdout
    assert "status    waiting_for_event" in text
    assert 'input     {"order": "ORD-1"}' in text
    assert 'payment.completed where order.id = "ORD-1"' in text
    assert re.search(r"in [34] h \d+ min\)", text)
    assert "shop.py:" in text
    assert '{"amount": 3.0} -> charged 3.0' in text


def test_show_has_the_users_traceback(romancy) -> None:
    text = romancy("show", "failed").stdout
    assert "Traceback (most recent call last):" in text
    assert 'raise RuntimeError("no way")' in text


def test_show_spares_us_a_traceback_through_romancy_alone(romancy, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = (
        'Traceback (most recent call last):\n  File "/venv/romancy/core/instance.py", line 1, in run\n    x()\n'
        '  File "/usr/lib/python3.12/asyncio/tasks.py", line 2, in step\n    y()\nromancy.errors.WaitTimeout: late'
    )
    error = {"type": "WaitTimeout", "message": "late", "traceback": ours}
    assert _whole_error(error) == "WaitTimeout: late"
    theirs = ours.replace("/venv/romancy/core/instance.py", "/home/me/romancy/shop.py")
    assert _whole_error({**error, "traceback": theirs}) == theirs
    assert _whole_error({**error, "traceback": ""}) == "WaitTimeout: late"


def test_show_escapes_markup(romancy) -> None:
    text = romancy("show", "[red]x").stdout
    assert "instance  [red]x" in text
    assert "ORD-[2]" in text


def test_show_as_json(answered) -> None:
    shown = answered("show", "order-1")
    (wait,) = shown["waits"]
    assert wait["kind"] == "event"
    assert wait["types"] == ["payment.completed"]
    assert wait["where"] == {"order.id": "ORD-1"}
    assert [entry["kind"] for entry in shown["history"]] == ["started", "activity_completed"]
    fields = {"n", "kind", "operation", "at", "input", "result", "error", "event", "dropped", "transactional"}
    assert set(shown["history"][1]) == fields
    assert shown["output"] is None


def test_history_as_json_says_what_was_waited_for(answered, romancy) -> None:
    data = '{"order": {"id": "ORD-1"}, "amount": 2}'
    romancy("send", "payment.completed", data)
    romancy("run", "shop:pay", "ORD-1", "--id", "order-1")
    received = answered("show", "order-1")["history"][-1]
    assert received["kind"] == "event_received"
    assert received["input"] == {"types": ["payment.completed"], "where": {"order.id": "ORD-1"}}
    assert received["event"]["data"] == {"order": {"id": "ORD-1"}, "amount": 2}


def test_waits_lists_what_everybody_waits_for(romancy, answered) -> None:
    lines = romancy("waits").stdout.splitlines()
    assert lines[0].split() == ["instance", "workflow", "kind", "wait", "for", "since", "until", "line"]
    kinds = {wait["instance_id"]: wait["kind"] for wait in answered("waits")["items"]}
    assert kinds == {"asleep": "timer", "order-1": "event", "[red]x": "event", "retrying": "retry", "blocked": "event"}
    retry = next(line for line in lines if line.startswith("retrying"))
    assert "next attempt after [bold]no ship[/bold]" in retry
    assert "next attempt after [bold]no ship[/bold]" in answered_line(romancy("why", "retrying").stdout, "for")


def answered_line(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


@pytest.mark.parametrize("width", [50, 80, 120])
@pytest.mark.parametrize("words", [["list"], ["waits"], ["show", "order-1"], ["show", "failed"]], ids=" ".join)
def test_a_terminal_is_never_too_narrow(romancy, words: list[str], width: int) -> None:
    env = {"COLUMNS": str(width), "FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm"}
    lines = re.sub(r"\x1b\[[0-9;]*m", "", romancy(*words, env=env).stdout).splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert ("ago" in text or "now" in text) or (words == ["list"] and width == 50) or words == ["waits"]
    if words != ["show", "failed"]:
        assert "order-1" in text


def test_waits_of_one_type(answered) -> None:
    items = answered("waits", "--type", "payment.completed")["items"]
    assert {item["instance_id"] for item in items} == {"order-1", "[red]x"}
    assert answered("waits", "--type", "unheard") == {"items": [], "cursor": None}


def test_unknown_instances_are_one_line(refused) -> None:
    for words in (["show", "nope"], ["why", "nope"], ["cancel", "nope"], ["resume", "nope"], READING[-1]):
        name = "x" if words == READING[-1] else "nope"
        assert f"no instance with id '{name}'; `romancy list`" in refused(*words, code=1)


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_a_missing_database_is_not_created(refused, folder: Path, words: list[str]) -> None:
    assert "no database at 'other.db'" in refused(*words, "-d", "other.db")
    assert "no database at 'sqlite:///other.db'" in refused(*words, "-d", "sqlite:///other.db")
    assert "no database at 'other.db'" in refused(*words, env={"ROMANCY_DATABASE": "other.db"})
    assert not (folder / "other.db").exists()
    assert "':memory:' only lasts as long as this command" in refused(*words, "-d", ":memory:")


def test_other_files_are_left_alone(refused, folder: Path) -> None:
    (folder / "notes.txt").write_text("not a database, and longer than its header would be, so that it is read" * 9)
    assert "is not a SQLite database" in refused("list", "-d", "notes.txt", code=1)
    (folder / "empty.db").touch()
    assert "no database" in refused("list", "-d", "empty.db")
    assert (folder / "empty.db").stat().st_size == 0
    assert "is a folder" in refused("list", "-d", ".", code=1)
    other = sqlite3.connect("foreign.db")
    other.execute("CREATE TABLE users (id)")
    other.execute("CREATE TABLE schema_info (version)")
    assert "is not a Romancy database" in refused("list", "-d", "foreign.db")
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("users",), ("schema_info",)]
    other.close()
    assert "not supported" in refused("list", "-d", "oracle://host/db", code=1)
