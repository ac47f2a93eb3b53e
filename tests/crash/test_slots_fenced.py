"""A worker is stopped at the moment it passes a slot on, and taken over: its admission must not count any more."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from pathlib import Path
from subprocess import Popen

import pytest

from tests.crash.queue_ground import LEASE, Ground, ground, observer
from tests.crash.queue_worker import LIMIT, PER_KEY, letter
from tests.crash.test_queue_kills import no_slot_is_lost
from tests.crash.test_transactions_paused import until_stopped

COUNT = 150
QUIET = 5.0
"""Seconds that a slot can stay free while an instance could have it: a regular round comes every second."""
HOLDERS = "SELECT queue_key, status, count(*) FROM {instances} WHERE queue = 'mail' AND status < 10 GROUP BY 1, 2"
pytestmark = [pytest.mark.play, pytest.mark.timeout(240)]


async def stopped(stage: Ground, n: int) -> Popen[bytes]:
    """A worker that has stopped just before it passes a slot on. On SQLite, its writer must not hold the file."""
    while True:
        process = stage.spawn(f"stop-pass-on {n}")
        await until_stopped(process)
        if stage.schema is not None:
            return process
        connection = sqlite3.connect(stage.url, isolation_level=None, timeout=1)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
            return process
        except sqlite3.OperationalError:
            stage.workers.kill(process)
        finally:
            connection.close()


async def idle(stage: Ground, longest: list[float]) -> None:
    """Measure for how long slots are free that somebody could have."""
    loop, since = asyncio.get_running_loop(), None
    async with observer(stage.workers, stage.schema) as look:
        while True:
            rows = await look(HOLDERS)
            held = {key: n for key, status, n in rows if status != 8}
            waiting = {key for key, status, _ in rows if status == 8}
            is_free = sum(held.values()) < LIMIT and any(held.get(key, 0) < PER_KEY for key in waiting)
            since = (since or loop.time()) if is_free else None
            longest[0] = max(longest[0], 0.0 if since is None else loop.time() - since)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_a_slot_passed_on_by_a_worker_that_is_fenced(backend: str, tmp_path: Path) -> None:
    async with ground(backend, tmp_path) as stage:
        for n in range(COUNT):
            await stage.client.start_workflow(letter.options(instance_id=f"l{n}"), f"c{n % 5}", 0.1)
        paused = [await stopped(stage, n) for n in (1, 4)]  # the second one takes the first one over
        other = stage.spawn()
        await asyncio.to_thread(stage.workers.ready, other)
        longest = [0.0]
        watching = asyncio.create_task(idle(stage, longest))
        try:
            before = await stage.client.count_instances(status="completed")
            async with asyncio.timeout(30):  # the leases end, and the other one goes on
                while await stage.client.count_instances(status="completed") < before + 20:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert await stage.client.count_instances(status="queued") > 20, "they come back to a full queue"
            for process in paused:
                os.kill(process.pid, signal.SIGCONT)
            await stage.until_completed(COUNT)
        finally:
            watching.cancel()
            await asyncio.wait([watching])
        assert watching.cancelled(), watching.exception()
        await no_slot_is_lost(stage)
        stage.check_limits()
        assert longest[0] < QUIET, "an instance stood in the queue while a slot was free"
        for process in (*paused, other):
            assert process.poll() is None, "it works on"
        assert await stage.client.count_instances() == COUNT
        print({"longest idle": round(longest[0], 3), "lease": LEASE})
