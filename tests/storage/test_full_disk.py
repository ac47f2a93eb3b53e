"""A disk that fills up at any point of any write: nothing is lost or doubled, and work goes on when there is room.

Pretended (SQLite may use only so many more pages) to fail at every single write point, and real (a small tmpfs).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sqlite3
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from romancy import ActivityContext, App, WorkflowContext, activity, send_event, sleep, wait_event, workflow
from romancy.core.history import Entry, Kind
from romancy.errors import StorageError
from romancy.storage.attempts import Attempt
from romancy.storage.batch import CANCEL, Batch, Commit, Misfit, Request
from romancy.storage.errors import TransientError
from romancy.storage.sqlite import SQLiteStorage
from romancy.storage.sqlite.locks import WorkerLocks
from romancy.testing import ManualClock
from tests.storage.conftest import BEGINNING, LEASE, Database

BIG = b"x" * 3000
"""Of a size that hardly any two fit on one page: so every row that is added is a point to fail at."""


# --- pretended -------------------------------------------------------------------------------------------------------
@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    clock = ManualClock(BEGINNING)
    storage = SQLiteStorage(str(tmp_path / "romancy.db"), durability="normal", clock=clock)
    await storage.open()
    db = Database(storage, clock)
    await db.register("me")
    yield db
    await storage.close()


async def limit(db: Database, more_pages: int | None) -> None:
    def set(c: sqlite3.Connection) -> None:
        pages = c.execute("PRAGMA page_count").fetchone()[0]
        free = c.execute("PRAGMA freelist_count").fetchone()[0]
        c.execute(f"PRAGMA max_page_count = {2**30 if more_pages is None else pages + more_pages}")
        assert more_pages is None or not free, "room that nobody reckons with"

    await db.storage._writer.call(set)  # type: ignore[attr-defined]


async def content(db: Database) -> dict[str, Any]:
    tables = await db.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    return {name: await db.rows(f"SELECT * FROM {name}") for (name,) in tables}


async def fail_at_every_point(db: Database, write: Callable[[], Awaitable[Any]]) -> tuple[int, Any]:
    """Try with room for no page, for one, for two ... until it goes through: how often it failed, and its answer."""
    before = await content(db)
    for failures in range(200):
        await limit(db, failures)
        try:
            answer = await write()
        except TransientError as error:
            refusal = str(error)
        else:
            await limit(db, None)
            return failures, answer
        assert "is full" in refusal
        assert await content(db) == before, "half of it was stored"
    raise AssertionError("it never goes through")


def everything(db: Database, seen: int) -> Batch:
    """A batch with all that a batch can hold."""
    sent = db.event("sent", {"n": 1, "pad": BIG.decode()}, id="sent")
    commit = Commit(
        "a",
        1,
        "waiting_for_event",
        db.now,
        entries=[Entry(n, Kind.EVENT_RECEIVED, "w", db.now, BIG, BIG, seen) for n in range(2)],
        closed=["w"],
        opened=[db.wait(f"w{n}", "next", location=BIG.decode()) for n in range(2)],
        misfits=[Misfit("w", "M", seen, BIG.decode())],
        sent=[sent],
        attempts=[Attempt("act", 1, db.now, db.now + 1, BIG)],
        description=BIG.decode(),
    )
    return db.batch(
        "me",
        starts=[db.starting(f"new{n}", input=BIG, mine=True) for n in range(2)],
        commits=[commit],
        accepts=[db.event("go", {"pad": BIG.decode()}, id=f"e{n}") for n in range(3)],
        requests=[Request("b", CANCEL, BIG, db.now)],
    )


async def test_a_batch_fails_whole_at_every_point_and_is_taken_later(db: Database) -> None:
    await db.waiting("a", "me")
    await db.waiting("b", "me")
    seen = (await db.send()).seq
    batch = everything(db, seen)
    failures, answer = await fail_at_every_point(db, lambda: db.submit(batch))
    assert failures > 10
    assert [s.created for s in answer.starts] == [True, True]
    assert answer.commits == [True]
    assert [a.duplicate for a in answer.accepts + answer.sent] == [False] * 4
    assert answer.requests[0].id
    again = await db.submit(batch)
    assert [s.created for s in again.starts] == [True, True], "and its answer is the same when it is asked for again"
    assert (again.commits, [a.duplicate for a in again.accepts]) == ([True], [False] * 3)


async def test_one_entry_on_the_spot(db: Database) -> None:
    await db.start("a", "me")
    batches = [
        db.batch("me", commits=[Commit("a", 0, "running", db.now, entries=[entry], append_only=True)])
        for entry in (Entry(n, Kind.ACTIVITY_COMPLETED, f"x:{n}", db.now, None, BIG, None) for n in range(4))
    ]
    failures = 0
    for batch in batches:
        failed, answer = await fail_at_every_point(db, lambda batch=batch: db.submit(batch))
        failures += failed
        assert answer.commits == [True]
    assert failures > 2
    assert await db.rows("SELECT count(*) FROM romancy.history") == [(4,)]


async def test_workers_come_and_go(db: Database) -> None:
    names = [f"{n}-{'w' * 2000}" for n in range(3)]
    triggers = [("t" * 2000, name, None) for name in names]
    storage, failures = db.storage, 0

    async def again(write: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal failures
        failed, answer = await fail_at_every_point(db, write)
        failures += failed
        return answer

    await again(lambda: storage.register("other" * 20, LEASE, triggers, names))
    for n in range(3):
        await db.start(f"i{n}", "other" * 20)
    assert await again(lambda: storage.take_over("me", ["other" * 20])) == ["other" * 20]
    assert len(await again(lambda: storage.claim("me", ["wf"], 10, db.now))) == 3
    assert await again(lambda: storage.renew("me", LEASE)) is True
    await again(lambda: storage.announce(triggers * 2, [*names, "more" * 500]))
    await again(lambda: storage.release("me"))
    assert failures > 2


# --- real ------------------------------------------------------------------------------------------------------------
class SmallDisk:
    """Two megabytes, of which all but so many pages can be taken up."""

    def __init__(self, folder: Path) -> None:
        self.database, self._junk = folder / "romancy.db", folder / "junk"

    def fill(self, pages_left: int = 0) -> None:
        with suppress(OSError), self._junk.open("wb", buffering=0) as junk:
            while True:
                junk.write(b"x" * 4096)
        os.truncate(self._junk, max(0, self._junk.stat().st_size - pages_left * 4096))

    def clear(self) -> None:
        self._junk.unlink()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a disk can't be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", folder], check=True)


@activity
async def step(ctx: ActivityContext, n: int) -> int:
    ctx.state[ctx.instance_id, ctx.activity_id] += 1
    return n


@workflow
async def job(ctx: WorkflowContext, n: int) -> list[int]:
    first = await step(ctx, n)
    paid = await wait_event(ctx, "paid", where={"n": n})
    await sleep(ctx, 0.01)
    await send_event(ctx, "done", "job", {"n": n})
    return [first, paid.data["n"], await step(ctx, n), (await wait_event(ctx, "done", where={"n": n})).data["n"]]


@pytest.mark.parametrize("pages_left", [0, 1, 3, 12])
async def test_work_goes_on_when_there_is_room_again(
    small: SmallDisk, pages_left: int, caplog: pytest.LogCaptureFixture
) -> None:
    runs: Counter[tuple[str, str]] = Counter()
    async with App(small.database, workflows=[job], state=runs) as app:

        async def one(n: int) -> list[int]:
            handle = await app.start_workflow(job, n, instance_id=f"i{n}")
            receipt = await app.send_event("paid", "test", {"n": n, "pad": "x" * 2000}, id=f"e{n}")
            assert not receipt.duplicate
            return await handle.result(60)

        jobs = [asyncio.create_task(one(n)) for n in range(6)]
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        small.fill(pages_left)
        jobs += [asyncio.create_task(one(n)) for n in range(6, 18)]
        with caplog.at_level(logging.WARNING, "romancy"):
            async with asyncio.timeout(30):
                while "is full" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
        assert not all(job.done() for job in jobs)
        small.clear()
        assert await asyncio.gather(*jobs) == [[n] * 4 for n in range(18)]
    assert set(runs.values()) == {1}
    assert len(runs) == 36
    assert caplog.text.count("can't be written") == 1, caplog.text
    with closing(sqlite3.connect(small.database)) as c:
        assert c.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert c.execute("SELECT type, count(*) FROM romancy_events GROUP BY 1").fetchall() == [
            ("done", 18),
            ("paid", 18),
        ]


@pytest.mark.parametrize("pages_left", [0, 1, 4])
async def test_opening_on_a_full_disk_says_so(small: SmallDisk, pages_left: int) -> None:
    async with App(small.database, workflows=[job], state=Counter()) as app:
        await app.start_workflow(job, 1, instance_id="i1")
    small.fill(pages_left)
    with pytest.raises(StorageError, match="is full"):
        await App(small.database, workflows=[job]).start()
    small.clear()
    async with App(small.database, workflows=[job], state=Counter()) as app:
        assert (await app.get_instance("i1")).workflow == "job"


async def test_a_worker_that_finds_no_room_to_register_waits_for_it(
    small: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    async with App(small.database, workflows=[job], state=Counter()) as app:
        await app.start_workflow(job, 1, instance_id="i1")
    small.fill(9)  # enough to open it
    async with App(small.database, workflows=[job], state=Counter()) as app:
        assert app._runtime.engine.worker_id is None
        assert caplog.text.count("is full; work continues when there is space again") == 1
        small.clear()
        await app.send_event("paid", "test", {"n": 1})
        assert await app.handle("i1").result(60) == [1] * 4


def test_a_lock_that_finds_no_room_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without content takes room on some disks only."""

    def refuse(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("romancy.storage.sqlite.locks.os.open", refuse)
    with pytest.raises(TransientError, match="is on a disk that is full; work continues when there is space again"):
        WorkerLocks(tmp_path).hold("me")
