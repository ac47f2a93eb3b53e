"""Workers are killed and paused while they undo: every undo is recorded once, in the right order."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from romancy import App, Database
from tests import pg_server
from tests.postgres.crew import Crew

pytestmark = pytest.mark.play

TRIPS, BOOKINGS = 60, 5
LEASE = 1.5


@pytest.fixture
async def crew(tmp_path: Path) -> AsyncIterator[Crew]:
    async with pg_server.schema() as schema:
        crew = Crew(pg_server.url(), schema, tmp_path / "log")
        try:
            yield crew
        finally:
            crew.end()


async def undone(crew: Crew, count: int) -> None:
    async with asyncio.timeout(40):
        while len(crew.lines("undone")) < count:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.01)


async def ended(client: App, count: int) -> None:
    async with asyncio.timeout(60):
        while len((await client.list_instances(status="failed", limit=200)).items) < count:
            for stopped in (await client.list_instances(status="blocked", limit=200)).items:
                assert stopped.error is not None
                assert stopped.error["type"] == "KillsWorkers"  # three workers died while it ran: it is blameless
                await client.resume_workflow(stopped.instance_id)
            await asyncio.sleep(0.1)


async def test_undos_survive_their_workers(crew: Crew) -> None:
    first, second = crew.spawn(LEASE), crew.spawn(LEASE)
    await crew.ready(first, second)
    async with App(Database(crew.url, schema=crew.schema), worker=False) as client:
        for n in range(TRIPS):
            await client.start_workflow("trip", n, instance_id=f"trip-{n}")
        await undone(crew, 20)
        first.kill()
        first.wait()
        third = crew.spawn(LEASE)
        await crew.ready(third)
        await undone(crew, 60)
        second.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2 * LEASE)
        second.send_signal(signal.SIGCONT)
        await undone(crew, 120)
        third.kill()
        third.wait()
        await crew.ready(crew.spawn(LEASE))
        await ended(client, TRIPS)
        for n in range(TRIPS):
            done = [e.operation for e in await client.get_history(f"trip-{n}") if e.kind == "activity_completed"]
            bookings = [op for op in done if not op.startswith("undo ")]
            assert len(bookings) == BOOKINGS
            assert done[BOOKINGS:] == [f"undo {op}:1" for op in reversed(bookings)]
    runs = Counter((line["instance"], line["op"]) for line in crew.lines("undone"))
    assert set(runs) == {(f"trip-{n}", f"undo book:{k}:1") for n in range(TRIPS) for k in range(1, BOOKINGS + 1)}
    print(f"{sum(runs.values())} runs of {len(runs)} undos")
