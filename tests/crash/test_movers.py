"""Three workers move what four callers leave in their transactions, and are killed at random all the time."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from romancy import App, Database
from tests import pg_schemas, pg_server
from tests.crash.inbox_crew import END, reader
from tests.crash.processes import Cluster, cluster
from tests.crash.queue_ground import observer

ROWS = 2000 if os.environ.get("ROMANCY_TEST_THOROUGH") else 500
CALLERS = ("ann", "bob", "cid", "dan")
LEASE = 2.0
pytestmark = [pytest.mark.play, pytest.mark.timeout(600)]


class Crew:
    """The processes, and a client to look at what they do."""

    def __init__(self, client: App, processes: Cluster, url: str, schema: str | None) -> None:
        self.client, self.processes, self._url, self._schema = client, processes, url, schema
        self.kills = 0

    def spawn(self, *caller: str) -> Popen[bytes]:
        return self.processes.spawn(LEASE, self._schema or "", *caller, database=self._url)

    @asynccontextmanager
    async def killing(self) -> AsyncIterator[None]:
        crew = [self.spawn() for _ in range(3)]
        await asyncio.to_thread(self.processes.ready, *crew, within=60)
        task = asyncio.create_task(self._kill_at_random(crew))
        try:
            yield
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _kill_at_random(self, crew: list[Popen[bytes]]) -> None:
        choose = random.Random(3)
        while True:
            ready = [process for process in crew if process.pid in self.processes.pids("ready")]
            await asyncio.sleep(choose.uniform(0.2, 1.0))
            if ready:
                victim = choose.choice(ready)
                self.processes.kill(victim)
                self.kills += 1
                crew[crew.index(victim)] = self.spawn()

    def left(self, kind: str, caller: str) -> list[int]:
        return [line["n"] for line in self.processes.lines(kind) if line["caller"] == caller]


@asynccontextmanager
async def crew(backend: str, folder: Path) -> AsyncIterator[tuple[Crew, Any]]:
    async with pg_schemas.schemas() as another:
        schema = another() if backend == "postgres" else None
        with cluster(folder, "tests.crash.inbox_crew") as processes:
            url = processes.database if schema is None else pg_server.url()
            async with App(Database(url, schema=schema), worker=False) as client, observer(processes, schema) as look:

                async def ask(table: str, query: str) -> list[Any]:
                    name = f"romancy_{table}" if schema is None else f'"{schema}".{table}'
                    return await look(query.replace("TABLE", name))

                yield Crew(client, processes, url, schema), ask


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_every_row_takes_effect_once_and_in_order(backend: str, tmp_path: Path) -> None:
    async with crew(backend, tmp_path) as (stage, ask):
        for name in CALLERS:
            await stage.client.start_workflow(reader.options(instance_id=f"reads-{name}"), name)
        async with stage.killing():
            callers = [stage.spawn(name, str(ROWS // len(CALLERS))) for name in CALLERS]
            for process in callers:
                assert await asyncio.to_thread(process.wait, 300) == 0
        assert len(stage.processes.lines("rolled back")) > ROWS / 50
        assert stage.kills >= 3, "they are killed while callers leave something"
        await check_order(stage)
        await check_nothing_else(stage, ask)


async def check_order(stage: Crew) -> None:
    """Each event has reached its reader, in the order of its caller, and each start what was left for it after it."""
    for name in CALLERS:
        taken = await stage.client.handle(f"reads-{name}", reader).result(120)
        assert taken == [*stage.left("event", name), END]
    for name in CALLERS:
        for n in stage.left("after", name):
            assert await stage.client.handle(f"{name}-{n - 1}").result(60) == 2 * n - 1


async def check_nothing_else(stage: Crew, ask: Any) -> None:
    """What was left is there once, what was rolled back is not there, and the inbox is empty."""
    assert await ask("inbox", "SELECT * FROM TABLE") == []
    found = [id for (id,) in await ask("instances", "SELECT id FROM TABLE")]
    started = [f"{name}-{n}" for name in CALLERS for n in stage.left("start", name)]
    assert sorted(found) == sorted([*started, *(f"reads-{name}" for name in CALLERS)])
    events = [id for (id,) in await ask("events", "SELECT id FROM TABLE WHERE id LIKE '%-%' AND length(id) < 30")]
    sent = [f"{name}-{n}" for name in CALLERS for kind in ("event", "after") for n in stage.left(kind, name)]
    assert sorted(events) == sorted(sent)
    assert len(started) + len(sent) == ROWS
    print({"rows": ROWS, "kills": stage.kills, "rolled back": len(stage.processes.lines("rolled back"))})
