"""kill -9 of the server while events pour in: what was answered 202 is there, and is delivered exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from tests.helpers import eventually

APP = """
import os
from romancy import ActivityContext, App, WorkerOptions, WorkflowContext, activity, wait_event, workflow

@activity
async def note(ctx: ActivityContext, id: str) -> None:
    with open(os.environ["RECEIVED"], "a") as log:
        log.write(id + "\\n")

@workflow
async def collect(ctx: WorkflowContext, key: str, wanted: int) -> list[str]:
    got: list[str] = []
    while len(got) < wanted:
        event = await wait_event(ctx, "item", where={"key": key})
        await note(ctx, event.id)
        got.append(event.id)
    return got

app = App("served.db", workflows=[collect], worker=WorkerOptions(grace=1))
"""
COLLECTORS = 5
EACH = 60


class Served:
    """`romancy serve` as a process that dies and comes back on the same port."""

    def __init__(self, folder: Path) -> None:
        (folder / "served.py").write_text(APP)
        self.folder, self.received = folder, folder / "received"
        self.received.touch()
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        log = self.folder / "log"
        begun = log.stat().st_size if log.exists() else 0
        command = [sys.executable, "-m", "romancy", "serve", "served:app", "--port", str(self.port)]
        with log.open("a") as output:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stderr=output, env={**os.environ, "RECEIVED": str(self.received)}
            )
        eventually(lambda: "http://127.0.0.1:" in log.read_text()[begun:], 30, "the server")
        self.port = int(log.read_text()[begun:].split("http://127.0.0.1:")[1].split()[0])

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def served(tmp_path: Path):
    server = Served(tmp_path)
    server.start()
    yield server
    server.kill()


class Answered:
    """The events that were answered 202."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self._waiting: list[tuple[int, asyncio.Event]] = []

    def add(self, id: str) -> None:
        self.ids.add(id)
        for wanted, reached in self._waiting:
            if len(self.ids) >= wanted:
                reached.set()

    async def reach(self, wanted: int) -> None:
        reached = asyncio.Event()
        self._waiting.append((wanted, reached))
        async with asyncio.timeout(60):
            await reached.wait()


async def post(client: httpx2.AsyncClient, served: Served, key: str, id: str, answered: Answered) -> None:
    """Send until it is acknowledged, as a careful sender does: the same id every time."""
    event = {"specversion": "1.0", "id": id, "source": "load", "type": "item", "data": {"key": key}}
    while True:
        try:
            answer = await client.post(
                f"{served.url}/", json=event, headers={"content-type": "application/cloudevents+json"}
            )
        except httpx2.HTTPError:
            await asyncio.sleep(0.05)  # the server is down: nothing was answered
            continue
        if answer.status_code == 202:
            answered.add(id)
            return
        assert answer.status_code == 503, answer.text
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_every_acknowledged_event_is_delivered_exactly_once(served: Served) -> None:
    answered = Answered()
    async with httpx2.AsyncClient(timeout=10) as client:
        for c in range(COLLECTORS):
            body = {"args": [f"k{c}", EACH], "instance_id": f"c{c}"}
            assert (await client.post(f"{served.url}/api/workflows/collect/start", json=body)).status_code == 201
        gate = asyncio.Semaphore(20)

        async def one(key: str, id: str) -> None:
            async with gate:
                await post(client, served, key, id, answered)

        load = [asyncio.create_task(one(f"k{n % COLLECTORS}", f"e{n}")) for n in range(COLLECTORS * EACH)]
        for share in (0.2, 0.6):
            await answered.reach(int(share * len(load)))
            known = set(answered.ids)
            await asyncio.to_thread(served.kill)
            await asyncio.to_thread(served.start)
            await assert_stored(client, served, known)
        await asyncio.gather(*load)
        for c in range(COLLECTORS):
            answer = await client.get(f"{served.url}/api/instances/c{c}/result", params={"timeout": 30}, timeout=40)
            got = answer.json()["output"]
            assert Counter(got) == Counter(f"e{n}" for n in range(c, COLLECTORS * EACH, COLLECTORS))
    noted = Counter(served.received.read_text().split())
    assert set(noted) == answered.ids, "activities ran for every event (at least once each)"


async def assert_stored(client: httpx2.AsyncClient, served: Served, known: set[str]) -> None:
    stored: set[str] = set()
    cursor = None
    while True:
        params = {"limit": 1000, **({"cursor": cursor} if cursor else {})}
        page = (await client.get(f"{served.url}/api/events", params=params)).json()
        stored |= {item["id"] for item in page["items"]}
        cursor = page["cursor"]
        if cursor is None:
            break
    assert known <= stored, "answered 202, then lost"
