"""`romancy why`."""

from __future__ import annotations

import asyncio
import importlib
import re
import socket
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from romancy import App, WorkflowFailed, testing
from romancy.cli.why import _attempt
from romancy.core.failure import Failure
from romancy.core.model import from_us
from romancy.storage.attempts import Attempt, Suspicion
from romancy.storage.sqlite.connection import lock_folder
from romancy.storage.sqlite.locks import WorkerLocks

pytestmark = pytest.mark.usefixtures("database")


def test_a_wait_with_its_time_left_and_line(romancy, answered) -> None:
    text = romancy("why", "order-1").stdout
    assert "about     waiting for ORD-1\n" in text
    assert 'for    payment.completed where order.id = "ORD-1"' in text
    assert re.search(r"\(in [34] h \d+ min\)", text)  # the stock is shared, and grows older
    assert "shop.py:33 in pay" in text
    assert "no event of this or a similar type has arrived" in text
    (wait,) = answered("why", "order-1")["waits"]
    assert 0 < wait["seconds_left"] < 5 * 3600
    assert wait["near"] == []


def test_the_nearest_events_come_first(answered, romancy) -> None:
    romancy("send", "payment.completed", '{"order": {"id": "ORD-9"}}', "--id", "far", "--to", "done")
    romancy("send", "payment.completed", '{"order": {"id": "ORD-8"}}', "--id", "near")
    romancy("send", "payment.complete", '{"order": {"id": "ORD-1"}}', "--id", "slip")
    romancy("send", "invoice.written", "--id", "unlike")
    (wait,) = answered("why", "order-1")["waits"]
    assert [(event["id"], event["reasons"]) for event in wait["near"]] == [
        ("slip", ["its type is not 'payment.completed'"]),
        ("near", ["where order.id = 'ORD-1' but got 'ORD-8'"]),
        ("far", ["where order.id = 'ORD-1' but got 'ORD-9'", "it was sent only to 'done'"]),
    ]
    text = romancy("why", "order-1").stdout
    assert "nearest events:" in text
    assert "    where order.id = 'ORD-1' but got 'ORD-8'" in text


def near(answered: Callable[..., Any], id: str) -> str:
    """Why the only event near the only wait was not taken."""
    (wait,) = answered("why", id)["waits"]
    (event,) = wait["near"]
    (reason,) = event["reasons"]
    return reason


def test_an_event_nobody_has_looked_at(answered, romancy) -> None:
    romancy("send", "payment.completed", '{"order": {"id": "ORD-1"}, "amount": 1}')
    assert near(answered, "order-1") == "it fits so far; no worker has looked at it yet"
    text = romancy("why", "order-1").stdout
    assert "1 event that might match has arrived; no worker has checked it yet" in text
    assert "start one with workflow 'pay': romancy worker MODULE" in text


def test_an_event_that_does_not_fit_the_model_with_the_reason(answered, romancy) -> None:
    romancy("send", "payment.completed", '{"order": {"id": "ORD-1"}, "amount": "lots"}', "--id", "unfit")

    async def look() -> None:
        async with App("romancy.db", workflows=[importlib.import_module("shop")]) as app:
            async with asyncio.timeout(30):
                while not await app._runtime.engine.storage.catalog.misfits("order-1"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    asyncio.run(look())
    assert near(answered, "order-1").startswith("its data does not fit Paid: data.amount ")
    assert "    its data does not fit Paid: data.amount " in romancy("why", "order-1").stdout


def test_an_event_with_data_that_is_not_json(answered) -> None:
    async def send() -> None:
        async with App("romancy.db", worker=False) as app:
            await app.send_event("payment.completed", "test", b"\0raw")

    asyncio.run(send())
    assert near(answered, "order-1") == "where order.id = 'ORD-1' but the data is not JSON"


def test_an_event_that_expired(answered) -> None:
    async def send() -> None:
        past = {"expirytime": datetime(2020, 1, 1, tzinfo=UTC).isoformat()}
        async with App("romancy.db", worker=False) as app:
            await app.send_event("payment.completed", "test", {"order": {"id": "ORD-1"}}, extensions=past)

    asyncio.run(send())
    assert near(answered, "order-1") == "it expired at 2020-01-01T00:00:00+00:00"


def test_a_wait_without_a_timeout(romancy, folder: Path) -> None:
    """Without one it waits for ever; inside `asyncio.timeout` it does not, although it has none of its own."""
    (folder / "waits.py").write_text(
        "import asyncio\n"
        "from romancy import *\n"
        "@workflow\n"
        "async def alone(ctx: WorkflowContext) -> None:\n"
        "    await wait_event(ctx, 'never')\n"
        "@workflow\n"
        "async def within(ctx: WorkflowContext) -> None:\n"
        "    async with asyncio.timeout(3600):\n"
        "        await wait_event(ctx, 'never')\n"
        "@workflow\n"
        "async def beside(ctx: WorkflowContext) -> None:\n"
        "    await asyncio.gather(wait_event(ctx, 'never'), sleep(ctx, 3600))\n"
    )
    waits = importlib.import_module("waits")

    async def begin() -> None:
        async with testing.environment(workflows=[waits], database="romancy.db") as env:
            for wf in (waits.alone, waits.within, waits.beside):
                await env.start(wf.options(instance_id=wf.name))

    asyncio.run(begin())
    for id in ("alone", "beside"):
        assert "until  forever: it has no timeout\n" in romancy("why", id).stdout
    text = romancy("why", "within").stdout
    assert "for ever" not in text
    ends = r"until  no timeout of its own; an asyncio\.timeout around it can end it \(timer:1 ends 20"
    assert re.search(ends, text), text


def test_a_timer(romancy) -> None:
    text = romancy("why", "asleep").stdout
    assert "timer sleep:1" in text
    assert "(in 29 d 23 h)" in text


def test_a_retry(romancy, answered) -> None:
    text = romancy("why", "retrying").stdout
    assert "start one with workflow 'delivers': romancy worker MODULE" in text
    begins = r"attempt 2 (is due in 1 s|is due now|starts when a worker runs it)"
    assert re.search(rf"activity ship:1: failed once \(ValueError: \[bold\]no ship\[/bold\]\); {begins}", text)
    assert answered("why", "retrying")["waits"][0]["kind"] == "retry"


def test_nobody_runs_it(romancy) -> None:
    romancy("start", "hello", "Bob", "--id", "new")
    assert "no worker runs it; start one with workflow 'hello': romancy worker" in romancy("why", "new").stdout


def test_who_runs_it(romancy, answered) -> None:
    worker = "0123456789abcdef"

    async def claim(lease: int) -> None:
        async with App("romancy.db", worker=False) as app:
            await app.start_workflow("hello", "Bob", instance_id="new")
            await app._runtime.engine.storage.register(worker, lease, [], ["hello"])
            await app._runtime.engine.storage.claim(worker, ["hello"], 10, 0)

    asyncio.run(claim(60_000_000))
    locks = WorkerLocks(lock_folder("romancy.db"))
    locks.hold(worker)
    said = answered("why", "new")
    assert said["worker"] == worker
    assert datetime.fromisoformat(said["lease_until"]) > datetime.now(UTC)
    text = romancy("why", "new").stdout
    assert f"worker {worker} on {socket.gethostname()} runs it and is alive: its lease lasts until 20" in text
    assert "nothing is recorded yet" in text
    assert "it runs its code, or activities in their first attempt" in text
    locks.drop()  # as if it were killed
    text = romancy("why", "new").stdout
    gone = f"worker {worker} on {socket.gethostname()} ran it, but its process seems to be gone; the instance soon goes"
    assert f"{gone} to another one with workflow 'hello': romancy worker" in text
    assert "it runs its code" not in text
    change(f"UPDATE romancy_workers SET until = 5 WHERE id = '{worker}'")
    assert "runs it, but its lease expired 5" in romancy("why", "new").stdout
    change(f"DELETE FROM romancy_workers WHERE id = '{worker}'")
    text = romancy("why", "new").stdout
    assert f"worker {worker}, which ran it, is gone; start one with workflow 'hello': romancy worker" in text
    assert answered("why", "new")["lease_until"] is None
    romancy("cancel", "new")
    assert "it was asked to stop; no worker has handled that yet" in romancy("why", "new").stdout


def test_who_holds_one_that_waits(romancy) -> None:
    worker = "0123456789abcdef"
    for id in ("asleep", "order-1"):
        assert "no worker holds it now; when its wait ends, it is continued by one" in romancy("why", id).stdout
    change(f"INSERT INTO romancy_workers (id, host, until, started_at) VALUES ('{worker}', 'here', {10**17}, 0)")
    change(f"UPDATE romancy_instances SET owner = '{worker}' WHERE id IN ('asleep', 'order-1')")
    for id in ("asleep", "order-1"):
        assert f"worker {worker} on here holds it and is alive: its lease lasts until" in romancy("why", id).stdout
    romancy("send", "payment.completed", '{"order": {"id": "ORD-1"}, "amount": 1}')
    assert romancy("why", "order-1").stdout.count("holds it and is alive") == 1


def change(sql: str) -> None:
    database = sqlite3.connect("romancy.db")
    with database:
        database.execute(sql)
    database.close()


@pytest.mark.parametrize(
    ("attempt", "alive", "said"),
    [
        (Attempt("a:1", 0, 0), True, "activity a:1: attempt 1 is running or about to start"),
        (
            Attempt("a:1", 2, 0, 10**15, Failure("ValueError", "no\nway").encode()),
            True,
            "activity a:1: failed 2 times (ValueError: no way); attempt 3 is due in 1 min 40 s",
        ),
        (Attempt("a:1", 0, 0, crashes=2), False, "2 workers died while it ran; attempt 1 starts when a worker runs it"),
        (
            Attempt("a:1", 0, 0, progress=b'{"done": 3}', started=True),
            True,
            'activity a:1: last progress: {"done": 3}; attempt 1 is running or about to start',
        ),
        (
            Attempt("a:1", 1, 0, crashes=1),
            True,
            "failed once (no reason is recorded), and 1 worker died while it ran; ",
        ),
        (
            Attempt("", 0, 0, 10**15, crashes=3, suspicion=Suspicion(5)),
            True,
            "its code: 3 workers died while it ran; it is set aside for a while and starts again in 1 min 40 s",
        ),
    ],
)
def test_attempts_in_words(attempt: Attempt, alive: bool, said: str) -> None:
    assert said in _attempt(attempt, alive, from_us(10**15 - 100_000_000))


@pytest.mark.parametrize(("op", "shown"), [("ship:1", "next attempt"), ("", "its code")])
def test_deaths_are_counted_once(romancy, op: str, shown: str) -> None:
    """The wait's text was written when it was left out; workers may have died since."""
    error = Failure("WorkerDied", "2 workers died while it ran; it is left out for a while").encode().hex()
    later = "next_due = 9e15, n = 0, crashes = 3, suspected_at = 1"
    change(f"UPDATE romancy_attempts SET op = '{op}', {later}, error = x'{error}' WHERE instance = 'retrying'")
    text = romancy("why", "retrying").stdout
    assert "3 workers died while it ran" in text
    assert "2 workers" not in text
    assert re.search(rf"^for +{shown}$", text, re.MULTILINE)


def test_blocked_says_why_and_what_to_do(romancy) -> None:
    text = romancy("why", "blocked").stdout
    assert '  recorded: activity_completed charge:1 {"amount":1.0}' in text
    assert '  the code: activity charge:1 charge({"amount":2.0})' in text.replace("    the code", "  the code")
    assert "fix the code, test it with `romancy replay blocked --module MODULE`, then deploy it: " in text
    assert "`romancy resume blocked`" in text
    assert "1 event that might match has arrived; a worker checks it after a resume" in text
    assert "romancy worker" not in text, "no worker would run it"
    change("INSERT INTO romancy_requests (instance, kind, payload, at) VALUES ('blocked', 1, '', 0)")
    text = romancy("why", "blocked").stdout
    assert "it was asked to stop; it stops once it is resumed" in text
    assert "romancy worker" not in text


def test_blocked_by_evidence_says_so(romancy) -> None:
    error = Failure("KillsWorkers", "activity 'x:1' was running 5 times").encode().hex()
    change(f"UPDATE romancy_instances SET error = x'{error}' WHERE id = 'blocked'")
    text = romancy("why", "blocked").stdout
    assert "it is blocked: it seems to kill the worker that runs it\n  activity 'x:1' was running 5 times" in text
    assert "then `romancy resume blocked`" in text
    assert "history" not in text


def test_finished_ones_wait_for_nothing(romancy) -> None:
    assert "it waits for nothing: it completed" in romancy("why", "done").stdout
    text = romancy("why", "failed").stdout
    assert "RuntimeError: no way" in text
    assert "about" not in text
    assert "`romancy show failed` shows the traceback" in text


def test_a_traceback_is_promised_only_where_there_is_one(romancy, answered, folder: Path) -> None:
    """A cancelled instance has none; that of an argument that did not fit leads through nothing but Romancy."""
    romancy("cancel", "blocked", "--reason", "hopeless")
    text = romancy("why", "blocked").stdout
    assert "hopeless" in text
    assert "traceback" not in text
    romancy("start", "shout", '{"no": "text"}', "--id", "unfit")

    async def run() -> None:
        async with App("romancy.db", workflows=[importlib.import_module("shop")]) as app:
            with pytest.raises(WorkflowFailed):
                await app.handle("unfit").result(timeout=30)

    asyncio.run(run())
    assert answered("show", "unfit")["error"]["traceback"], "it has one, which `show` leaves out"
    text = romancy("why", "unfit").stdout
    assert "InvalidInput: " in text
    assert "traceback" not in text


def test_a_cancel_nobody_has_seen(romancy) -> None:
    romancy("cancel", "order-1")
    assert "it was asked to stop; no worker has handled that yet" in romancy("why", "order-1").stdout


def test_markup_is_shown_as_it_is(romancy) -> None:
    text = romancy("why", "[red]x").stdout
    assert "instance  [red]x" in text
    assert 'where order.id = "ORD-[2]"' in text


def test_why_as_json(answered) -> None:
    said = answered("why", "blocked")
    assert set(said) == {"instance_id", "workflow", "status", "worker", "lease_until", "says", "waits"}
    assert said["status"] == "blocked"
