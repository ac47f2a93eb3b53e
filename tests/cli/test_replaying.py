"""`romancy replay`: stored histories against today's code."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("database")


def change(folder: Path, old: str, new: str) -> None:
    file = folder / "shop.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_the_same_code_follows(romancy) -> None:
    assert (
        romancy("replay", "done", "-m", "shop").stdout
        == "ok: the code follows the history (1 entry); it ends as completed\n"
    )
    text = romancy("replay", "order-1", "--module", "shop.py").stdout
    waiting = 'event payment.completed:1 for payment.completed where order.id = "ORD-1", until 20'
    assert text.startswith(f"ok: the code follows the history (1 entry); it then waits for {waiting}")
    assert "it ends as failed" in romancy("replay", "failed", "-m", "shop").stdout


def test_a_blocked_one_follows_the_code_it_was_written_by(romancy, folder: Path) -> None:
    assert romancy("replay", "blocked", "-m", "shop").stdout.startswith("ok")


def test_a_result_that_the_code_has_not_heard_of_is_not_replayed(romancy, database: Path) -> None:
    """It is stored apart when a suspect ends; what the code does with it is in no history."""
    with closing(sqlite3.connect(database)) as connection, connection:
        columns = "instance, op, n, first_at, crashes, started"
        connection.execute(f"INSERT INTO romancy_attempts ({columns}) VALUES ('order-1', 'charge:1', 0, 0, 1, 1)")
    text = romancy("replay", "order-1", "-m", "shop").stdout
    assert text.startswith("ok: the code follows the history (0 entries); it then waits for activity charge:1"), text


def test_both_sides_of_a_difference_are_shown(romancy, folder: Path) -> None:
    change(folder, "charge(ctx, 3.0)", "charge(ctx, 4.0)")
    text = romancy("replay", "order-1", "-m", "shop", code=1).stdout
    assert text.splitlines() == [
        "the code no longer follows the history of order-1",
        'recorded  activity_completed charge:1 {"amount":3.0}',
        'the code  activity charge:1 charge({"amount":4.0})',
    ]


def test_another_ending_is_a_difference(romancy, folder: Path) -> None:
    change(folder, 'f"hello {name} "', 'f"bye {name} "')
    text = romancy("replay", "done", "-m", "shop", code=1).stdout
    assert 'recorded  completed with {"greeting": "hello Ada "}' in text
    assert 'the code  completed with {"greeting": "bye Ada "}' in text


def test_going_on_after_the_end_is_a_difference(romancy, folder: Path) -> None:
    change(folder, '    return {"greeting"', '    await sleep(ctx, 1)\n    return {"greeting"')
    assert "the code  continues with timer sleep:1" in romancy("replay", "done", "-m", "shop", code=1).stdout


def test_input_that_no_longer_fits_is_a_difference(romancy, folder: Path) -> None:
    change(folder, "pay(ctx: WorkflowContext, order: str)", "pay(ctx: WorkflowContext, order: str, currency: str)")
    text = romancy("replay", "order-1", "-m", "shop", code=1).stdout
    assert 'recorded  started with {"order": "ORD-1"}' in text
    assert "'currency'" in text


def test_help_does_not_offer_what_is_refused(romancy) -> None:
    text = romancy("replay", "--help").stdout
    assert "--database" in text
    assert "--url" not in text
    assert "--token-file" not in text
    assert "--url" in romancy("why", "--help").stdout


def test_where_the_code_is_must_be_said(refused) -> None:
    assert "missing option '--module'" in refused("replay", "done")
    assert "no workflow in json is named 'hello'; available: none" in refused("replay", "done", "-m", "json")


SENDS_FIRST = """
from romancy import WorkflowContext, send_event, wait_event, workflow

@workflow
async def greets(ctx: WorkflowContext) -> None:
    await send_event(ctx, "hello", "shop", {})
    await wait_event(ctx, "answer")
"""


def test_one_that_has_not_begun_has_no_history_to_leave(romancy, folder: Path, database: Path) -> None:
    (folder / "greets.py").write_text(SENDS_FIRST)
    romancy("start", "greets", "--id", "new")
    text = romancy("replay", "new", "-m", "greets").stdout
    assert text.startswith("ok: the code follows the history (0 entries); it then waits for event answer:1"), text
    with closing(sqlite3.connect(database)) as connection, connection:  # as if it had begun with the wait
        columns = "instance, op, model, spec, location, created_at"
        connection.execute(f"INSERT INTO romancy_waits ({columns}) VALUES ('new', 'answer:1', '', '{{}}', '', 0)")
    text = romancy("replay", "new", "-m", "greets", code=1).stdout
    assert "recorded  nothing was sent as" in text
