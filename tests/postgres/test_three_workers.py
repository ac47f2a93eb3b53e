"""Three workers under load; one is killed, one paused past its lease, one restarted again and again."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from romancy import App, Database
from romancy.storage.postgres import PostgresStorage
from tests import pg_server
from tests.postgres.crew import Crew

pytestmark = pytest.mark.play

JOBS = 250
LEASE = 1.5


@pytest.fixture
async def crew(tmp_path: Path) -> AsyncIterator[Crew]:
    async with pg_server.schema() as schema:
        crew = Crew(pg_server.url(), schema, tmp_path / "log")
        try:
            yield crew
        finally:
            crew.end()


async def feed(client: App) -> None:
    """Starts jobs and sends both events of each, the second often before anybody waits for it."""
    for n in range(JOBS):
        await client.start_workflow("job", n, instance_id=f"job-{n}")
        await client.send_event("second", "test", {"plus": 1}, subject=str(n), id=f"second-{n}")
        await client.send_event("first", "test", {"n": n, "plus": 10 * n}, id=f"first-{n}")
        await asyncio.sleep(0.012)


async def restart_again_and_again(crew: Crew, while_running: asyncio.Task[None]) -> None:
    while not while_running.done():
        process = crew.spawn(LEASE)
        await crew.ready(process)
        await asyncio.wait([while_running], timeout=1.2)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 10) == 0


async def progress(crew: Crew, of: int, more: int) -> None:
    """Until a process has begun some more attempts."""
    goal = sum(line["pid"] == of for line in crew.lines("begin")) + more
    async with asyncio.timeout(20):
        while sum(line["pid"] == of for line in crew.lines("begin")) < goal:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


async def pause_past_its_lease(process: subprocess.Popen[bytes], spy: Any) -> tuple[float, float]:
    """SIGSTOP; SIGCONT when another has taken over. It holds its session all the while."""
    before = {id for (id,) in await spy.fetch("SELECT id FROM workers")}
    begin = time.time()
    process.send_signal(signal.SIGSTOP)
    async with asyncio.timeout(15):
        while not await spy.fetchval("SELECT 1 FROM orphans WHERE clean AND id = ANY($1)", list(before)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)  # others get on with what it had
    process.send_signal(signal.SIGCONT)
    return begin, time.time()


async def test_killed_paused_and_restarted_workers_lose_and_double_nothing(crew: Crew) -> None:
    killed, paused = crew.spawn(LEASE), crew.spawn(LEASE)
    excused: dict[int, list[tuple[float, float]]] = defaultdict(list)
    await crew.ready(killed, paused)
    spy = await asyncpg.connect(crew.url, server_settings={"search_path": crew.schema})
    async with App(Database(crew.url, schema=crew.schema), worker=False) as client:
        feeding = asyncio.create_task(feed(client))
        restarting = asyncio.create_task(restart_again_and_again(crew, feeding))
        await progress(crew, killed.pid, 20)
        excused[killed.pid].append((time.time(), float("inf")))
        killed.kill()
        await progress(crew, paused.pid, 20)
        excused[paused.pid].append(await pause_past_its_lease(paused, spy))
        await progress(crew, paused.pid, 5)  # it came back, under a new name
        await feeding
        await restarting
        results = await asyncio.gather(*(client.handle(f"job-{n}").result(20) for n in range(JOBS)))
    assert results == [10 * n + 1 for n in range(JOBS)]
    await storage_at_rest(crew)
    await check(spy)
    crew.check_no_overlap(excused)
    assert len({line["pid"] for line in crew.lines("begin")}) > 3, "not everybody worked"
    await spy.close()


async def storage_at_rest(crew: Crew) -> None:
    """Hints that came in just after an instance ended go with retention's next round."""
    storage = PostgresStorage(crew.url, schema=crew.schema, listen=False)
    await storage.open()
    await storage.prune(0, 0, 1)
    await storage.close()


async def check(spy: Any) -> None:
    """Every event was taken once, every step recorded once, and nothing is left."""
    assert await spy.fetchval("SELECT count(*) FROM events") == 2 * JOBS
    taken = await spy.fetch(
        "SELECT e.id, count(c.instance) FROM events e LEFT JOIN consumed c ON c.event = e.seq GROUP BY 1"
    )
    assert {count for _, count in taken} == {1}
    steps = await spy.fetch("SELECT instance, op FROM history")
    assert set(Counter((instance, op) for instance, op in steps).values()) == {1}
    assert len(steps) == 5 * JOBS
    for table in ("waits", "wait_keys", "deliveries", "requests", "attempts", "undispatched", "unlooked"):
        assert await spy.fetchval(f"SELECT count(*) FROM {table}") == 0, f"something is left in {table}"


async def test_the_late_result_of_a_paused_worker_is_refused(crew: Crew) -> None:
    """Paused in the middle of an activity; when it goes on, another has done it, and its own result is not taken."""
    paused = crew.spawn(LEASE)
    await crew.ready(paused)
    spy = await asyncpg.connect(crew.url, server_settings={"search_path": crew.schema})
    async with App(Database(crew.url, schema=crew.schema), worker=False) as client:
        await client.start_workflow("job", 1, instance_id="job")
        async with asyncio.timeout(10):
            while not crew.lines("begin"):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.001)
        paused.send_signal(signal.SIGSTOP)
        assert not crew.lines("end"), "it was too quick to be stopped in the middle"
        heir = crew.spawn(LEASE)
        async with asyncio.timeout(15):
            while not any(line["pid"] == heir.pid for line in crew.lines("end")):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
            while not await spy.fetchval("SELECT count(*) FROM history"):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
        stored = await spy.fetch("SELECT * FROM history")
        row = await spy.fetchrow("SELECT owner, version FROM instances")
        paused.send_signal(signal.SIGCONT)
        async with asyncio.timeout(10):
            while await spy.fetchval("SELECT count(*) FROM workers") < 2:  # noqa: ASYNC110 - it registers anew
                await asyncio.sleep(0.01)
        assert any(line["pid"] == paused.pid for line in crew.lines("end")), "there was no late result"
        assert await spy.fetch("SELECT * FROM history") == stored
        assert await spy.fetchrow("SELECT owner, version FROM instances") == row
        await client.send_event("first", "test", {"n": 1, "plus": 10})
        await client.send_event("second", "test", {"plus": 1}, subject="1")
        assert await client.handle("job").result(10) == 11
    await spy.close()


@pytest.mark.parametrize(("paused_at", "is_seen"), [(None, True), (1.5, False), (2.5, True)])
def test_two_workers_at_one_instance_would_be_seen(tmp_path: Path, paused_at: float | None, is_seen: bool) -> None:
    """What the test above relies on: worker 1 runs from 1 to 4, worker 2 from 2 to 3."""
    log = tmp_path / "log"
    moments = [("begin", 1, 1.0), ("begin", 2, 2.0), ("end", 2, 3.0), ("end", 1, 4.0)]
    lines = [{"what": what, "pid": pid, "at": at, "instance": "a", "op": "work:1"} for what, pid, at in moments]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    excused: dict[int, list[tuple[float, float]]] = defaultdict(list)
    if paused_at is not None:
        excused[1].append((paused_at, 3.5))
    with pytest.raises(AssertionError, match="at the same time") if is_seen else nullcontext():
        Crew("", "", log).check_no_overlap(excused)
