"""`romancy replay --all`: every unfinished instance against the code that is about to be deployed."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from romancy import App, Database, testing
from romancy.cli import survey
from romancy.cli.modules import load
from tests import pg_server

OLD = """
from romancy import ActivityContext, App, WorkflowContext, activity, sleep, wait_event, workflow

@activity
async def charge(ctx: ActivityContext, order: str) -> str:
    return order

@workflow
async def pay(ctx: WorkflowContext, order: str) -> None:
    await charge(ctx, order)
    # here
    await wait_event(ctx, "paid", where={"order": order})

@workflow
async def nap(ctx: WorkflowContext) -> None:
    await sleep(ctx, 1000)
    await sleep(ctx, 1000)

app = App("store.db", workflows=[pay, nap])
"""
NEW_WAY = """
    if ctx.patched("fraud-check"):
        await charge(ctx, "fraud")
"""


def write(folder: Path, text: str) -> None:
    """The code, as it is now. A module that was imported is imported again."""
    sys.modules.pop("store", None)
    (folder / "store.py").write_text(text)


@pytest.fixture
def store(folder: Path) -> Path:
    """Three payments and a nap, under the old code."""
    write(folder, OLD)
    asyncio.run(_fill(3))
    return folder


async def _fill(count: int) -> None:
    module: Any = load("store")
    async with testing.environment(workflows=[module], database="store.db") as env:
        for n in range(count):
            await env.start(module.pay.options(instance_id=f"pay-{n}"), f"ORD-{n}")
        await env.start(module.nap.options(instance_id="nap"))
        await env.advance(1)


def workers(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        return connection.execute("SELECT count(*) FROM romancy_workers").fetchone()[0]


def test_the_same_code_follows(romancy, store: Path) -> None:
    for where in (["-m", "store:app"], ["-m", "store", "-d", "store.db"], ["-m", "store.py", "-d", "store.db"]):
        assert romancy("replay", "--all", *where).stdout == "ok: the code follows 4 replayed histories\n"
    assert workers(store) == 0


def test_it_replays_what_a_worker_runs(romancy, store: Path) -> None:
    """The workflows of the module, and those that its App has from elsewhere."""
    write(store, OLD.replace("workflows=[pay, nap]", "workflows=[nap]"))
    same = "ok: the code follows 4 replayed histories\n"
    assert romancy("replay", "--all", "-m", "store:app").stdout == same
    assert romancy("replay", "pay-0", "-m", "store:app").stdout.startswith("ok: ")
    (store / "shop.py").write_text(
        "import store\nfrom romancy import App\napp = App('store.db', workflows=[store.pay, store.nap])\n"
    )
    sys.modules.pop("shop", None)
    assert romancy("replay", "--all", "-m", "shop:app").stdout == same
    assert romancy("replay", "--all", "-m", "shop", "-d", "store.db").stdout == same


def test_differences_are_grouped_and_shown_with_both_sides(romancy, store: Path) -> None:
    changed = OLD.replace("await charge(ctx, order)", 'await charge(ctx, f"{order}!")')
    write(store, changed.replace("sleep(ctx, 1000)\n    await", "wait_event(ctx, 'morning')\n    await"))
    text = romancy("replay", "--all", "-m", "store:app", code=1).stdout
    head, columns, *rows = text.splitlines()
    assert head == "the code no longer follows 3 of 4 replayed histories"
    assert columns.split() == ["workflow", "count", "instance", "recorded", "the", "code"]
    (row,) = rows
    assert row.split()[:2] == ["pay", "3"]
    assert 'activity_completed charge:1 {"order":"ORD-' in row
    assert 'activity charge:1 charge({"order":"ORD-' in row
    assert romancy("replay", "--all", "-m", "store:app", "-w", "nap").stdout.startswith("ok: the code follows 1 ")


def test_it_says_who_takes_the_old_way(romancy, store: Path) -> None:
    write(store, OLD.replace("    # here\n", NEW_WAY))
    text = romancy("replay", "--all", "-m", "store:app").stdout
    assert text.splitlines() == [
        "ok: the code follows 4 replayed histories",
        "3 running instances still take the old way of 'fraud-check'",
    ]
    asyncio.run(_one_more("pay", "new"))
    romancy("cancel", "pay-0", "-d", "store.db")
    romancy("cancel", "pay-1", "-d", "store.db")
    asyncio.run(_one_more("nap", "another"))  # a worker carries out the cancellations
    text = romancy("replay", "--all", "-m", "store:app").stdout
    assert "1 running instance still takes the old way of 'fraud-check'" in text
    romancy("cancel", "pay-2", "-d", "store.db")
    asyncio.run(_one_more("nap", "third"))
    text = romancy("replay", "--all", "-m", "store:app").stdout
    assert "no running instance takes the old way of 'fraud-check'; you can delete the question" in text


def test_code_from_before_a_change_says_nothing_about_its_question(romancy, store: Path) -> None:
    asks_only = OLD.replace("    # here\n", '    ctx.patched("fraud-check")\n')
    write(store, asks_only)
    asyncio.run(_one_more("pay", "new"))
    write(store, OLD)
    assert romancy("replay", "--all", "-m", "store:app").stdout == "ok: the code follows 5 replayed histories\n"
    write(store, asks_only)
    text = romancy("replay", "--all", "-m", "store:app").stdout
    assert "3 running instances still take the old way of 'fraud-check'" in text
    write(store, OLD.replace("    # here\n", NEW_WAY))
    asyncio.run(_one_more("pay", "newer"))
    write(store, OLD)
    text = romancy("replay", "--all", "-m", "store:app", code=1).stdout
    assert text.startswith("the code no longer follows 1 of 6 replayed histories\n")
    assert "fraud-check'" not in text


def test_no_question_can_go_while_the_code_leaves_a_history(romancy, folder: Path) -> None:
    """It may ask the question beyond the point where it leaves the history."""
    asks = OLD.replace("    await charge(ctx, order)\n", '    await charge(ctx, order)\n    ctx.patched("early")\n')
    write(folder, asks)
    asyncio.run(_one_more("pay", "new"))
    asyncio.run(_one_more("pay", "odd"))
    gone = "no running instance takes the old way of 'early'"
    assert gone in romancy("replay", "--all", "-m", "store:app").stdout
    write(
        folder,
        asks.replace("    await charge", '    if order == "odd":\n        await sleep(ctx, 1)\n    await charge'),
    )
    text = romancy("replay", "--all", "-m", "store:app", code=1).stdout
    assert "the code no longer follows 1 of 2 replayed histories" in text
    assert gone not in text


async def _one_more(name: str, id: str) -> None:
    module: Any = load("store")
    async with testing.environment(workflows=[module], database="store.db") as env:
        wf = getattr(module, name).options(instance_id=id)
        await (env.start(wf, id) if name == "pay" else env.start(wf))
        await env.settle()


def test_alike_instances_are_sampled(romancy, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "SAMPLE", 2)
    write(store, OLD.replace("    # here\n", NEW_WAY))
    text = romancy("replay", "--all", "-m", "store:app").stdout
    assert "the code follows 3 replayed histories" in text
    assert "1 more have the same entries" in text
    assert "3 running instances still take the old way of 'fraud-check'" in text
    assert "the code follows 4 replayed" in romancy("replay", "--all", "--every", "-m", "store:app").stdout


def test_what_has_not_begun_fits_any_code_that_takes_its_input(romancy, store: Path) -> None:
    romancy("start", "pay", "ORD-9", "-m", "store", "-d", "store.db")
    write(store, OLD.replace("    await charge(ctx, order)\n", NEW_WAY + "    await charge(ctx, order)\n"))
    text = romancy("replay", "--all", "-m", "store:app").stdout
    assert "3 running instances still take the old way" in text
    write(store, OLD.replace("order: str) -> None", "order: str, currency: str) -> None"))
    text = romancy("replay", "--all", "-m", "store:app", code=1).stdout
    assert text.splitlines()[2].split()[:2] == ["pay", "4"]
    assert "'currency'" in text


def test_workflows_that_are_gone_and_versions_that_can_go(romancy, store: Path) -> None:
    without = OLD.replace("@workflow\nasync def nap", '@workflow(name="pay", version=2)\nasync def pay_2')
    write(store, without.replace("[pay, nap]", "[pay, pay_2]"))
    text = romancy("replay", "--all", "-m", "store:app").stdout
    assert "1 running instance of 'nap': this code has no such workflow" in text
    assert "you can delete it" not in text
    for n in range(3):
        romancy("cancel", f"pay-{n}", "-d", "store.db")
    asyncio.run(_one_more("pay", "last"))
    romancy("cancel", "last", "-d", "store.db")
    with closing(sqlite3.connect(store / "store.db")) as connection, connection:
        connection.execute("UPDATE romancy_instances SET status = 12 WHERE workflow = 'pay'")
    text = romancy("replay", "--all", "-m", "store:app").stdout
    assert "no running instance uses 'pay', and there is a newer version; you can delete it" in text


def test_a_version_that_is_in_use_is_gone(romancy, store: Path) -> None:
    write(store, OLD.replace("@workflow\nasync def pay", '@workflow(name="pay", version=2)\nasync def pay'))
    text = romancy("replay", "--all", "-m", "store:app", code=1).stdout
    assert text.splitlines() == [
        "the code follows 1 replayed history",
        "3 running instances of 'pay': this code has other versions of it, but not this one; "
        "keep it until they have ended",
    ]
    assert romancy("replay", "--all", "-m", "store:app", "-w", "nap").stdout.startswith("ok: ")


def test_what_does_not_go_together(refused, romancy, store: Path) -> None:
    assert "give the ID of an instance, or --all" in refused("replay", "-m", "store")
    assert "give the ID of an instance, or --all" in refused("replay", "one", "--all", "-m", "store")
    assert "--workflow and --every require --all" in refused("replay", "one", "--every", "-m", "store")
    assert "has no App named 'shop'" in refused("replay", "--all", "-m", "store:shop")


def test_on_postgres(romancy, folder: Path, schema: str) -> None:
    write(folder, OLD)
    asyncio.run(_wait_on_postgres(schema))
    where = ["-m", "store", "-d", pg_server.url(), "--schema", schema]
    write(folder, OLD.replace("    # here\n", NEW_WAY))
    assert "2 running instances still take the old way" in romancy("replay", "--all", *where).stdout
    assert "the code follows 2 replayed" in romancy("replay", "--all", *where, "-w", "pay@1").stdout
    write(folder, OLD.replace("await charge(ctx, order)", "await sleep(ctx, 1)"))
    text = romancy("replay", "--all", *where, code=1).stdout
    assert "the code no longer follows 2 of 2 replayed histories" in text
    assert "waits for timer sleep:1" in text


async def _wait_on_postgres(schema: str) -> None:
    module: Any = load("store")
    async with App(Database(pg_server.url(), schema), workflows=[module.pay]) as app:
        for n in range(2):
            await app.start_workflow(module.pay.options(instance_id=f"pay-{n}"), f"ORD-{n}")
        async with asyncio.timeout(30):
            while len((await app.list_instances(status="waiting_for_event")).items) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.play
def test_ten_thousand(romancy, folder: Path) -> None:
    write(folder, OLD)
    asyncio.run(_fill(1))
    with closing(sqlite3.connect(folder / "store.db")) as connection, connection:
        for table in ("romancy_instances", "romancy_history", "romancy_waits"):
            key = "id" if table == "romancy_instances" else "instance"
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            names = ", ".join(columns)
            values = ", ".join("?" if name == key else name for name in columns)
            copy = f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} WHERE {key} = 'pay-0'"
            connection.executemany(copy, [(f"copy-{n}",) for n in range(10_000)])
    write(folder, OLD.replace("    # here\n", NEW_WAY))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = romancy("replay", "--all", "-m", "store:app").stdout
    assert "10001 running instances still take the old way of 'fraud-check'" in text
    every = romancy("replay", "--all", "--every", "-m", "store:app").stdout
    assert "ok: the code follows 10002 replayed histories" in every
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_it_says_who_waits_for_other_events(romancy, store: Path) -> None:
    """Their waits are replaced only when they are next loaded."""
    write(store, OLD.replace('where={"order": order}', "subject=order"))
    ok, changed = romancy("replay", "--all", "-m", "store:app").stdout.splitlines()
    assert ok == "ok: the code follows 4 replayed histories"
    assert changed.startswith("3 replayed instances of 'pay' (such as pay-")
    assert "wait for other events at 'paid:1' than this code" in changed
    write(store, OLD.replace('where={"order": order}', 'where={"order": order}, model=dict[str, str], timeout=1000'))
    assert romancy("replay", "--all", "-m", "store:app").stdout == ok + "\n", "an event wakes them as before"
