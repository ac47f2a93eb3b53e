"""Restate: its server (from npm, with a log and store of its own) drives a Python service (`restate_service`).

    .bench/restate/bin/python -m bench.systems.restate_ WORKLOAD --database restate:///abs/folder --size N

This process starts both, on free ports, is the client at the server's HTTP ingress, and takes both with it however it
ends. A workflow is a handler of a Restate service, the lightest durable thing there; an activity is `ctx.run_typed`; an
event is an awakeable, resolved over HTTP; a broadcast is a durable promise, for which any number of handlers of one
workflow key wait; eviction is suspension. `http` posts events that each start a workflow of no activity (those that
wake one come over HTTP too: `wake`). `recovery` kills the service, where the workflows run, not the server.

Settings, and why:
- Durability is the server's default: a step counts once it is fsynced (`rocksdb-disable-wal-fsync = false`) in the log.
- `default-num-partitions = 4`: the default 24 is meant to spread over a cluster; on two cores it only costs the server.
- `h2_max_concurrent_streams`, `keep_alive_max_requests`, `keep_alive_timeout`: as Restate's page on serving Python has
  them for production. One process (no `workers`): on two cores, which the server needs too, two were not faster.
- `default-retry-policy`: from 50 ms to 1 s (default 500 ms to 1 min), or `recovery` would measure the back-off.
- `inactivity-timeout` stays at 1 min: who waits stays connected, fastest to wake; but 0.1 s, then suspended, for
  `resume` and `memory`, which are about long waits.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

from bench.systems.common import Figures, Task, clock, main, rss_kb, spread_ms, workload

REQUIREMENTS = ("restate-sdk[serde]==1.2.0", "hypercorn==0.18.0")
NODE_REQUIREMENTS = ("@restatedev/restate-server@1.7.12",)
CONCURRENCY = (32, 128, 1000)
SERVER = {
    "RESTATE_DEFAULT_NUM_PARTITIONS": "4",
    "RESTATE_DEFAULT_RETRY_POLICY__INITIAL_INTERVAL": "50ms",
    "RESTATE_DEFAULT_RETRY_POLICY__MAX_INTERVAL": "1s",
    "RESTATE_DISABLE_TELEMETRY": "true",
    "RESTATE_LISTEN_MODE": "tcp",
    "RESTATE_BIND_IP": "127.0.0.1",
    "RESTATE_LOG_FILTER": "warn",
}
STEPS, WAIT, WAIT_SUSPENDED = "/bench/steps", "/bench/wait", "/bench/wait_suspended"
SUSPENDED = "sys_invocation where status = 'suspended'"


class Connection:
    """One keep-alive connection; as little work per request as Python allows, so that the load costs little."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def post(self, path: str, value: object = None) -> tuple[int, bytes]:
        body = b"" if value is None else json.dumps(value).encode()
        kind = "content-type: application/json\r\n" if body else ""
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n{kind}"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        return int(head[9:12]), await self._body(head)

    async def _body(self, head: bytes) -> bytes:
        if b"transfer-encoding: chunked" not in head:
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            return await self._reader.readexactly(int(length or 0))
        body = b""
        while size := int(await self._reader.readline(), 16):
            body += (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()
        return body


class Tally:
    """Requests that were answered, and how; of those that were not, nothing is known."""

    def __init__(self) -> None:
        self.begin = self.end = clock()
        self.answers: list[bytes] = []
        self.failed = 0

    def add(self, status: int, body: bytes) -> None:
        if status < 300:
            self.answers.append(body)
            self.end = clock()
        elif not self.failed:
            print(f"failed with {status}: {body.decode(errors='replace')}", file=sys.stderr)
        self.failed += status >= 300

    def rate(self, each: int = 1) -> float | None:
        return len(self.answers) * each / (self.end - self.begin) if self.answers else None

    def figures(self, size: int, **figures: float | None) -> Figures:
        missing = {"failed": self.failed, "unfinished": size - len(self.answers) - self.failed}
        return {**figures, **{name: count for name, count in missing.items() if count}}


def free_port(low: int) -> int:
    """Below the ports that the kernel gives to connections: such a one may be gone again before the server has it."""
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(low, low + 5000))) as s:
            return s.getsockname()[1]


def server_program() -> str:
    packages = Path(sys.prefix, "node/node_modules/@restatedev")
    for program in packages.glob("restate-server-*/bin/restate-server"):
        return str(program)
    sys.exit(f"no restate-server in {packages}: npm install --prefix {sys.prefix}/node {NODE_REQUIREMENTS[0]}")


async def spawn(log: Path, *command: str, **options: Any) -> Process:
    def die_with_parent() -> None:  # PR_SET_PDEATHSIG: also when the parent gets no chance to tidy up
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)

    with log.open("ab") as file:
        options = {"stdout": file, "stderr": file, "start_new_session": True, "preexec_fn": die_with_parent, **options}
        return await asyncio.create_subprocess_exec(*command, **options)


class Restate:
    """The two processes, and what one asks of them; none of it goes on beyond the task's limit."""

    def __init__(self, task: Task) -> None:
        self.task, self.folder = task, task.path
        self.ingress, self.admin, self.node, self.port = map(free_port, (10_000, 15_000, 20_000, 25_000))
        self.processes: list[Process] = []
        self.reports: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._reported = asyncio.Event()

    async def start_server(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        ports = {"BIND_PORT": self.node, "ADMIN__BIND_PORT": self.admin, "INGRESS__BIND_PORT": self.ingress}
        env = os.environ | SERVER | {f"RESTATE_{name}": str(port) for name, port in ports.items()}
        command = (server_program(), "--base-dir", str(self.folder))
        self.processes.append(await spawn(self.folder / "server.log", *command, env=env))

    async def start_service(self, **environment: str) -> None:
        command = (sys.executable, "-m", "bench.systems.restate_service", str(self.port))
        env = os.environ | environment
        self.processes.append(await spawn(self.folder / "service.log", *command, stdout=PIPE, env=env))
        self._reading = asyncio.create_task(self._read(self.processes[-1].stdout))

    async def _read(self, lines: Any) -> None:
        async for line in lines:
            kind, key, value = line.decode().split()
            self.reports[kind][key] = value
            self._reported.set()

    async def kill_service(self) -> None:
        self.processes[-1].kill()
        await self.processes.pop().wait()
        await self._reading

    async def reported(self, kind: str, count: int) -> list[str]:
        """What the service reported of a kind, once it is so many."""
        while len(self.reports[kind]) < count and self.task.left:
            self._reported.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._reported.wait(), self.task.left)
        return list(self.reports[kind].values())

    async def register(self) -> None:
        answer: object = "no answer"
        while self.task.left and all(process.returncode is None for process in self.processes):
            with suppress(OSError, EOFError):
                admin = await Connection.open(self.admin)
                status, answer = await admin.post("/deployments", {"uri": f"http://127.0.0.1:{self.port}/"})
                if status < 300:
                    return
            await asyncio.sleep(0.05)
        ended = [process.returncode for process in self.processes]
        sys.exit(f"Restate did not get ready: {answer}; exit codes {ended}; the logs are in {self.folder}")

    async def stored(self, count: int, rows: str) -> bool:
        """Whether the server itself knows of so many rows, as soon as it does."""
        admin = await Connection.open(self.admin)
        while self.task.left:
            _, answer = await admin.post("/query", {"query": f"select count(*) as n from {rows}"})
            if json.loads(answer)["rows"][0]["n"] >= count:
                return True
            await asyncio.sleep(0.1)
        return False

    async def post_all(self, paths: Iterable[str], value: object = None, connections: int = 64) -> Tally:
        opened = [await Connection.open(self.ingress) for _ in range(connections)]
        tally, todo = Tally(), iter(paths)

        async def some(connection: Connection) -> None:
            try:
                for path in todo:
                    tally.add(*await connection.post(path, value))
            except (OSError, EOFError) as error:
                tally.add(599, repr(error).encode())

        with suppress(TimeoutError):
            async with asyncio.timeout(self.task.left), asyncio.TaskGroup() as group:
                for connection in opened:
                    group.create_task(some(connection))
        return tally

    def post_soon(self, count: int, path: str, value: object = None) -> asyncio.Task[Tally]:
        return asyncio.create_task(self.post_all([path] * count, value, count))

    async def resolve(self, names: list[str], connections: int = 1) -> float:
        """Sends each awakeable its event; when it began."""
        return (await self.post_all([f"/restate/awakeables/{name}/resolve" for name in names], 1, connections)).begin


def measured(measure: Callable[[Restate, Task], Awaitable[Figures]]) -> None:
    """Declares a workload that finds Restate running, and warm."""

    @wraps(measure)
    async def run(task: Task) -> Figures:
        restate = Restate(task)
        try:
            await restate.start_server()
            await restate.start_service()
            await restate.register()
            await restate.post_all([STEPS] * 50, 1, 8)
            return await measure(restate, task)
        finally:
            for process in restate.processes:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    workload(run)


@measured
async def finish(restate: Restate, task: Task) -> Figures:
    tally = await restate.post_all([STEPS] * task.size, 1, task.concurrency or 64)
    return tally.figures(task.size, workflows_per_s=tally.rate())


@measured
async def sequential(restate: Restate, task: Task) -> Figures:
    tally = await restate.post_all([STEPS], task.size, 1)
    return tally.figures(1, activities_per_s=tally.rate(task.size))


@measured
async def parallel(restate: Restate, task: Task) -> Figures:
    tally = await restate.post_all([STEPS] * task.size, task.steps, task.size)
    return tally.figures(task.size, activities_per_s=tally.rate(task.steps))


@measured
async def http(restate: Restate, task: Task) -> Figures:
    tally = await restate.post_all([STEPS] * task.size, 0, task.concurrency or 64)
    return tally.figures(task.size, events_per_s=tally.rate())


@measured
async def wake(restate: Restate, task: Task) -> Figures:
    waiting = restate.post_soon(task.size, WAIT, 0)
    names = await restate.reported("waits", task.size)
    begin = await restate.resolve(names, task.concurrency or 32)
    tally = await waiting
    wall = tally.end - begin if tally.answers else None
    return tally.figures(task.size, wall_s=wall, events_per_s=len(tally.answers) / wall if wall else None)


@measured
async def latency(restate: Restate, task: Task) -> Figures:
    tally, took = Tally(), list[float]()
    while len(took) < task.size and task.left:
        restate.reports.clear()
        waiting = restate.post_soon(1, WAIT, 0)
        names = await restate.reported("waits", 1)
        await asyncio.sleep(0.05)  # it reported just before it waits; now it does, and all is idle
        begin = await restate.resolve(names)
        tally.answers += (await waiting).answers
        took += [float(woke) - begin for woke in await restate.reported("woke", 1)]
    return tally.figures(task.size, **(spread_ms(took) if took else {}))


@measured
async def broadcast(restate: Restate, task: Task) -> Figures:
    waiting = restate.post_soon(task.size, "/gate/main/pass_through")
    await restate.stored(task.size, "sys_journal where entry_type = 'Command: GetPromise'")
    opening = await restate.post_all(["/gate/main/open"], connections=1)
    tally = await waiting
    return tally.figures(task.size, wall_s=tally.end - opening.begin if tally.answers else None)


@measured
async def sleepers(restate: Restate, task: Task) -> Figures:
    tally = await restate.post_soon(task.size, "/bench/sleep_until", time.time() + 2 + task.size / 50)
    late = [float(seconds) for seconds in await restate.reported("late", len(tally.answers))]
    if any(float(ahead) <= 0 for ahead in tally.answers):
        sys.exit("sleepers: some were started only after the moment they were to sleep until; try fewer")
    return tally.figures(task.size, **(spread_ms(late) if late else {}))


@measured
async def resume(restate: Restate, task: Task) -> Figures:
    waiting = restate.post_soon(1, WAIT_SUSPENDED, task.size)
    names = await restate.reported("waits", 1)
    await restate.stored(1, SUSPENDED)
    begin = await restate.resolve(names)
    tally = await waiting
    took = [float(woke) - begin for woke in await restate.reported("woke", 1)]
    return tally.figures(1, seconds=min(took, default=None))


@measured
async def memory(restate: Restate, task: Task) -> Figures:
    sizes: dict[int, float] = {}
    # Little by little, or the burst of starting them counts too; the first hundred are the warm-up.
    for there in [*range(100, task.size + 100, 100), task.size + 100]:
        await restate.post_all([f"{WAIT_SUSPENDED}/send"] * (there - max(sizes, default=0)), 0, 8)
        if not await restate.stored(there, SUSPENDED):
            break
        sizes[there] = sum(rss_kb(process.pid) for process in restate.processes)
    waiting = max(sizes, default=100) - 100
    each = (sizes[waiting + 100] - sizes[100]) / waiting if waiting else None
    return {"kb_per_workflow": each} | ({"unfinished": task.size - waiting} if waiting < task.size else {})


@measured
async def recovery(restate: Restate, task: Task) -> Figures:
    """All are held in their second step until the kill."""
    await restate.kill_service()
    await restate.start_service(BENCH_HOLD="3600")
    waiting = restate.post_soon(task.size, "/bench/slow_second")
    await restate.reported("ran", task.size)
    await restate.kill_service()
    restate.reports.clear()
    begin = clock()
    await restate.start_service()
    again = [float(ran) - begin for ran in await restate.reported("ran", 1)]
    tally = await waiting
    all_s = tally.end - begin if len(tally.answers) == task.size else None
    return tally.figures(task.size, first_s=min(again, default=None), all_s=all_s)


if __name__ == "__main__":
    main()
