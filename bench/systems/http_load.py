"""Events over HTTP, end to end: each one accepted durably wakes another waiting workflow, which then finishes.

One server process (`romancy serve`) and one load process share the machine. First as fast as it goes, over 32
connections; then at a steady 750 a second, to see how long one event takes when there is room.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from bench.systems.common import Figures, spread_ms

CONNECTIONS = 32
APP = """
from romancy import App, WorkflowContext, wait_event, workflow

@workflow
async def waiter(ctx: WorkflowContext, key: int) -> int:
    return (await wait_event(ctx, "go", where={{"key": key}})).data["key"]

app = App({database!r}, workflows=[waiter])
"""


class Connection:
    """One keep-alive connection; as little work per request as Python allows, so that the load costs little."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def post(self, path: str, content_type: str, body: bytes) -> tuple[int, bytes]:
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        return await self._answer()

    async def get(self, path: str) -> tuple[int, bytes]:
        self._writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        return await self._answer()

    async def _answer(self) -> tuple[int, bytes]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        return int(head[9:12]), await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


async def start_all(connections: list[Connection], first: int, count: int) -> None:
    keys = iter(range(first, first + count))

    async def some(connection: Connection) -> None:
        for key in keys:
            body = json.dumps({"args": [key], "instance_id": f"w{key}"}).encode()
            status, text = await connection.post("/api/workflows/waiter/start", "application/json", body)
            assert status == 201, text

    await asyncio.gather(*(some(c) for c in connections))


def event(key: int) -> bytes:
    about = {
        "specversion": "1.0",
        "id": f"e{key}",
        "source": "/bench",
        "type": "go",
        "datacontenttype": "application/json",
    }
    return json.dumps({**about, "data": {"key": key, "note": "x" * 100}}).encode()


async def flood(connections: list[Connection], first: int, count: int) -> float:
    """Events a second, until the last workflow has finished."""
    keys = iter(range(first, first + count))

    async def some(connection: Connection) -> None:
        for key in keys:
            status, text = await connection.post("/", "application/cloudevents+json", event(key))
            assert status == 202, text
            assert b'"delivered":1' in text, text

    begin = time.perf_counter()
    await asyncio.gather(*(some(c) for c in connections))
    await all_done(connections[0], first + count)
    return count / (time.perf_counter() - begin)


async def paced(connections: list[Connection], first: int, count: int, rate: float) -> list[float]:
    """Seconds each event took to be accepted, sent at a steady rate whatever the answers do."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for connection in connections:
        free.put_nowait(connection)
    took: list[float] = []

    async def one(key: int, due: float) -> None:
        connection = await free.get()
        status, text = await connection.post("/", "application/cloudevents+json", event(key))
        took.append(time.perf_counter() - due)
        free.put_nowait(connection)
        assert status == 202, text

    begin = time.perf_counter()
    tasks: list[asyncio.Task[None]] = []
    for n in range(count):
        due = begin + n / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(first + n, due)))
    await asyncio.gather(*tasks)
    await all_done(connections[0], first + count)
    return took


async def all_done(connection: Connection, wanted: int) -> None:
    line = b'romancy_workflows_ended_total{status="completed",workflow="waiter"}'
    while True:
        _, text = await connection.get("/metrics")
        ended = text.split(line)[1].split(b"\n")[0] if line in text else b"0"
        if float(ended) >= wanted:
            return
        await asyncio.sleep(0.005)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[list[Connection]]:
    connections = [Connection(port) for _ in range(CONNECTIONS)]
    for connection in connections:
        await connection.open()
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


async def _measure(port: int, events: int) -> Figures:
    async with connected(port) as connections:
        await start_all(connections, 0, events)
        rate = await flood(connections, 0, events)
        await start_all(connections, events, events)
        took = await paced(connections, events, events, 750)
    return {"events_per_s": rate, **spread_ms(took)}


def measure(database: str, events: int) -> Figures:
    """Serve an app on this database, and send it so many events, twice."""
    with serving(database) as (port, _):
        return asyncio.run(_measure(port, events))


@contextmanager
def serving(database: str) -> Iterator[tuple[int, int]]:
    """Serve an app on this database; yield its port and its process."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "bench_app.py").write_text(APP.format(database=database))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "romancy", "serve", "bench_app:app", "--port", str(port)]
        server = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, env={**os.environ})
        try:
            _wait_for(port)
            yield port, server.pid
        finally:
            server.terminate()
            server.wait()


def _wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not start")
