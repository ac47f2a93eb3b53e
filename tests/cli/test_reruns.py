"""`romancy retry`, and what `show` and `why` say of instances that ended badly."""

# ruff: noqa: F811 - fixtures of other files
from __future__ import annotations

import asyncio
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from romancy import App, Database, testing
from romancy.viewer.catalog import Catalog
from tests import pg_server
from tests.cli.test_bulk import answer, at, ids  # noqa: F401 - fixtures
from tests.cli.test_remote import served  # noqa: F401 - a fixture

ORDERS = """
from contextlib import suppress
from pathlib import Path
from romancy import NO_RETRY, ActivityContext, WorkflowContext, activity, workflow

def check(name: str) -> str:
    if not Path("works").exists():
        raise ConnectionError(f"{name} is down")
    return name

@activity(retry=NO_RETRY)
def book(ctx: ActivityContext) -> str:
    return "booked"

@book.compensate
def unbook(ctx: ActivityContext, booked: str) -> None: ...

@activity(retry=NO_RETRY)
def price(ctx: ActivityContext) -> int:
    return 3

@activity(retry=NO_RETRY, raises=ConnectionError)
def advise(ctx: ActivityContext) -> str:
    return check("advice")

@activity(retry=NO_RETRY)
def bill(ctx: ActivityContext, amount: int) -> str:
    return check("bank")

@workflow
async def order(ctx: WorkflowContext) -> str:
    amount = await price(ctx)
    with suppress(ConnectionError):
        await advise(ctx)
    return await bill(ctx, amount)

@workflow
async def trip(ctx: WorkflowContext) -> str:
    await book(ctx)
    return await bill(ctx, 1)
"""


FAMILIES = """
import asyncio
from romancy import NO_RETRY, ActivityContext, WorkflowContext, activity, sleep, wait_event, workflow

@activity(retry=NO_RETRY)
def fail(ctx: ActivityContext) -> str:
    raise ConnectionError("down")

@workflow
async def kid(ctx: WorkflowContext) -> None:
    try:
        await wait_event(ctx, "go")
    except asyncio.CancelledError:
        await sleep(ctx, 600)
        raise

@workflow
async def mother(ctx: WorkflowContext) -> None:
    await asyncio.gather(kid(ctx), fail(ctx))
"""


@pytest.fixture
def work(database: Path, folder: Path) -> Any:
    """Lets a worker work until nothing is left to do. Three orders and a trip have failed."""
    (folder / "orders.py").write_text(ORDERS)
    orders = importlib.import_module("orders")

    async def until_idle(*, start: bool = False) -> None:
        async with testing.environment(workflows=[orders], database=str(database)) as env:
            for n in range(3 if start else 0):
                await env.start(orders.order.options(instance_id=f"o{n}"))
            if start:
                await env.start(orders.trip.options(instance_id="trip"))
            await env.settle()

    def working() -> None:
        (folder / "works").touch()
        asyncio.run(until_idle())

    asyncio.run(until_idle(start=True))
    return working


def operations(answered: Any, id: str, *, dropped: bool) -> list[str]:
    return [entry["operation"] for entry in answered("show", id)["history"] if entry["dropped"] is dropped]


def test_one_goes_on(romancy, answered, work, at: list[str]) -> None:
    said = romancy("retry", "o1", *at).stdout
    assert said == "a worker that has workflow 'order' will go on with instance 'o1'\n"
    work()
    assert answered("show", "o1", *at)["output"] == "bank"
    assert operations(answered, "o1", dropped=True) == ["bill:1"]


@pytest.mark.parametrize("words", [("--all-failed",), ("--step", "advise:1", "--step", "bill:1")], ids=str)
def test_which_steps_run_again(romancy, answered, work, at: list[str], words: tuple[str, ...]) -> None:
    romancy("retry", "o1", *words, *at)
    work()
    assert operations(answered, "o1", dropped=True) == ["advise:1", "bill:1"]
    assert answered("show", "o1")["status"] == "completed"


def test_what_can_not_be_retried(romancy, refused, work, at: list[str]) -> None:
    for id, words in {
        "done": "'done' is completed; nothing to retry (`romancy fork done`",
        "order-1": "'order-1' is waiting_for_event; nothing to retry (`romancy why order-1`",
        "blocked": "'blocked' is blocked, not failed; fix its code, then `romancy resume blocked`",
        "trip": "'trip' has undone its steps; `romancy fork trip`",
        "nobody": "no instance with id 'nobody'",
    }.items():
        assert words in refused("retry", id, *at, code=1)
    assert "has no recorded step 'bil:1'; these failed: advise:1, bill:1" in refused(
        "retry", "o1", "--step", "bil:1", *at, code=2
    )
    result = romancy("retry", "trip", "o1", "done", *at, code=1)
    assert "will go on with instance 'o1'" in result.stdout
    assert result.stderr.count("romancy: instance") == 2


def test_options_that_do_not_mix(refused, work) -> None:
    assert "not both" in refused("retry", "o1", "--step", "bill:1", "--all-failed", code=2)
    assert "need the ids of instances" in refused("retry", "-w", "order", "--all-failed", code=2)
    assert "give ids or filters, not both" in refused("retry", "o1", "-w", "order", code=2)
    assert "give the ids of instances, or filters" in refused("retry", code=2)


def test_all_that_match(romancy, refused, work, at: list[str]) -> None:
    words = ("--status", "failed", "--workflow", "order", "--since", "52w")
    preview = romancy("retry", *words, *at, code=2)
    assert "o2" in preview.stdout
    assert "3 instances to retry, but there is no terminal to ask you; add --yes" in preview.stderr
    assert "1 retried: workers that have their workflow will go on" in (
        romancy("retry", *words, "--yes", "--limit", "1", *at).stdout
    )
    assert ids(romancy, "-s", "failed", "-w", "order") == ["o1", "o0"]
    assert "2 retried" in romancy("retry", *words, "--yes", *at).stdout
    assert "no instance to retry matches" in refused("retry", *words, "--yes", *at, code=1)
    work()
    assert len(ids(romancy, "-s", "completed", "-w", "order")) == 3


def test_those_that_are_refused_are_named(romancy, work, at: list[str]) -> None:
    result = romancy("retry", "--error-type", "ActivityError", "--yes", *at, code=1)
    assert "3 retried" in result.stdout
    refusal = "it has undone its steps; fork it from its beginning"
    assert f"romancy: trip: instance 'trip' can't be retried: {refusal} (`romancy fork trip` starts" in result.stderr
    assert "1 more instance can't be changed" in result.stderr
    assert "trip" not in result.stdout
    assert "1 instance could not be changed" in result.stderr
    result = romancy("retry", "-w", "trip", "--yes", *at, code=1)
    assert "nothing to retry: 1 instance matched, none was changed" in result.stderr


def test_those_that_are_refused_do_not_count(romancy, work, at: list[str]) -> None:
    """The newest one has undone its steps."""
    words = ("--status", "failed", "--error-type", "ActivityError", "--limit", "1")
    preview = romancy("retry", *words, *at, code=2)
    assert "o2" in preview.stdout
    assert "trip" not in preview.stdout
    assert "1 of 3 instances to retry" in preview.stderr
    assert "1 more instance can't be changed\nromancy: trip: " in preview.stderr
    assert "it has undone its steps" in preview.stderr
    for left in (["trip", "o1", "o0"], ["trip", "o0"], ["trip"]):
        assert "1 retried" in romancy("retry", *words, "--yes", *at, code=1).stdout
        assert ids(romancy, "-s", "failed", "--error-type", "ActivityError") == left
    assert "none was changed" in romancy("retry", *words, "--yes", *at, code=1).stderr


@pytest.mark.parametrize(("text", "code"), [("y", 0), ("n", 1)])
def test_a_person_is_asked(romancy, work, answer, text: str, code: int) -> None:
    asked = answer(text)
    romancy("retry", "-w", "order", code=code)
    assert asked == ["Retry 3 instances?"]
    assert len(ids(romancy, "-s", "failed", "-w", "order")) == (0 if text == "y" else 3)


# --- what is shown ---------------------------------------------------------------------------------------------------
def test_entries_that_no_longer_count_are_marked(romancy, work, at: list[str]) -> None:
    romancy("retry", "o1")
    work()
    lines = romancy("show", "o1", *at).stdout.splitlines()
    [gone] = [line for line in lines if "activity_failed" in line and "bill:1" in line]
    assert re.search(r"  \(retried (?:[-\d]+ )?\d\d:\d\d\) ConnectionError: bank is down", gone)
    [mark] = [line for line in lines if "  retried " in line and not line.startswith("who")]
    assert "after ActivityError: activity 'bill' failed" in mark
    assert sum("(retried" in line for line in lines) == 1


def test_on_a_terminal_they_are_struck_through(romancy, work, monkeypatch: pytest.MonkeyPatch) -> None:
    romancy("retry", "o1")
    work()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    lines = romancy("show", "o1").stdout.splitlines()
    struck = [line for line in lines if "\x1b[2;9m" in line]
    assert struck
    assert any("bill:1" in line for line in struck)
    assert not any("advise:1" in line for line in struck)


def test_why_says_what_failed_and_how_to_go_on(romancy, work, at: list[str]) -> None:
    said = romancy("why", "o1", *at).stdout
    assert re.search(r"^what led to it: activity_failed bill:1, ", said, re.MULTILINE)
    assert "fix the cause, then `romancy retry o1` goes on from there" in said
    said = romancy("why", "failed", *at).stdout
    assert "what led to it" not in said, "its code raised the error by itself"
    assert "`romancy retry failed`" in said
    said = romancy("why", "trip", *at).stdout
    assert "it has undone its steps; `romancy fork trip`" in said
    assert "romancy retry" not in said
    romancy("cancel", "blocked")
    assert "\n`romancy retry blocked` goes on from there" in romancy("why", "blocked", *at).stdout
    assert "retry" not in romancy("why", "done", *at).stdout


def test_after_the_retry_the_old_failure_is_not_named(romancy, work, folder: Path) -> None:
    romancy("retry", "o1")
    work()
    assert "retry" not in romancy("why", "o1").stdout


def test_a_parent_whose_child_is_still_being_cancelled(romancy, refused, work, folder: Path, database: Path) -> None:
    """The preview, the retry of many and the retry of one say the same."""
    (folder / "families.py").write_text(FAMILIES)
    families = importlib.import_module("families")

    async def fail() -> None:
        async with testing.environment(workflows=[families], database=str(database)) as env:
            await env.start(families.mother.options(instance_id="m"))
            await env.settle()

    asyncio.run(fail())
    words = "instance 'm' can't be retried: its child 'm/kid:1' is still being cancelled; retry once it has ended"
    assert words in refused("retry", "m", code=1)
    preview = romancy("retry", "-w", "mother", code=1)
    assert f"{words} (`romancy fork m` starts it again" in preview.stderr
    assert "nothing to retry: 1 instance matched, none was changed" in preview.stderr


# --- forks -----------------------------------------------------------------------------------------------------------
def test_a_fork_keeps_a_part_of_the_history(romancy, answered, work, at: list[str]) -> None:
    assert romancy("fork", "o2", "--at", "1", "--id", "copy", *at).stdout == "copy\n"
    anew = answered("fork", "o1", *at)["instance_id"]
    work()
    assert answered("show", "copy", *at)["output"] == "bank"
    assert answered("show", "copy", *at)["forked_from"] == "o2"
    said = romancy("show", "copy", *at).stdout
    assert re.search(r"^forked from +o2$", said, re.MULTILINE)
    assert "forked from o2: everything before is copied" in said
    listed = {item["instance_id"]: item["forked_from"] for item in answered("list", "-w", "order", *at)["items"]}
    assert listed == {"copy": "o2", anew: "o1", "o0": None, "o1": None, "o2": None}
    assert answered("show", "o2", *at)["status"] == "failed"
    assert answered("show", anew, *at)["output"] == "bank"


def test_what_can_not_be_forked(refused, work, at: list[str]) -> None:
    assert "no instance with id 'nobody'" in refused("fork", "nobody", *at, code=1)
    assert "already exists; use another --id" in refused("fork", "o1", "--id", "o2", *at, code=1)
    assert "no entry 99" in refused("fork", "o1", "--at", "99", *at, code=2)
    assert "has undone its steps" in refused("fork", "trip", "--at", "1", *at, code=1)


# --- on another database ---------------------------------------------------------------------------------------------
def test_retries_and_forks_move_to_postgres(romancy, answered, work, schema: str) -> None:
    """One has been retried, one is about to go on, one fails there; a fork is about to begin."""
    romancy("retry", "o0")
    work()
    romancy("retry", "o1")
    romancy("fork", "o2", "--at", "1", "--id", "copy")
    romancy("copy", "romancy.db", pg_server.url(), "--schema", schema)
    there = ("-d", pg_server.url(), "--schema", schema)
    romancy("retry", "o2", *there)

    async def go_on() -> list[int]:
        orders = importlib.import_module("orders")
        async with App(Database(pg_server.url(), schema=schema), workflows=[orders]) as app:
            for id in ("o0", "o1", "o2", "copy"):
                assert await app.handle(id).result(timeout=20) == "bank"
            return [len((await Catalog(app).instance(id, None)).retried) for id in ("o0", "o1", "o2", "trip")]

    assert asyncio.run(go_on()) == [1, 1, 1, 0]
    for id in ("o0", "o1", "o2"):
        gone = [entry["operation"] for entry in answered("show", id, *there)["history"] if entry["dropped"]]
        assert gone == ["bill:1"]


def test_what_was_retried_replays(romancy, work) -> None:
    romancy("retry", "o1")
    romancy("fork", "o2", "--at", "1", "--id", "copy")
    work()
    for id in ("o1", "copy"):
        romancy("replay", id, "-m", "orders")
