"""The real parts: worker processes on a database of their own, killed, stopped and cut off while callers go on."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg

from romancy import App, Database, InstanceExists, RomancyError
from romancy.core.model import SECOND
from romancy.errors import InstanceNotFound
from tests import pg_server
from tests.crash.processes import Cluster, cluster
from tests.property.programs import program, reaction
from tests.soak.callers import Callers
from tests.soak.drawing import Drawing
from tests.soak.oracle import Oracle, Span, Violation
from tests.soak.proxy import Proxy

WORKERS = 3
CHAOS = 12.0
"""Seconds."""
REST = 120.0
"""Seconds within which everything must have come to rest."""
PATIENCE = 120.0
"""Seconds within which a worker must be up; many on a busy machine."""
LEASE = 1.0
SLACK = 0.1
"""Seconds by which clocks of one machine, read in different processes and by the database, may differ."""


# --- where it takes place ---------------------------------------------------------------------------------------------
class SQLiteSite:
    """A file."""

    name = "sqlite"

    async def open(self, stack: AsyncExitStack, folder: Path) -> None:
        self.database = str(folder / "romancy.db")
        self.proxies: list[Proxy | None] = [None] * (WORKERS + 1)

    def url(self, number: int) -> str:
        return self.database

    schema: str | None = None

    async def transactions(self) -> Callable[[int], int]:
        return lambda seq: 0  # one writer, hence one order

    def pause(self, cluster: Cluster, process: subprocess.Popen[bytes]) -> None:
        cluster.pause(process)

    async def restart(self, random: random.Random) -> None:
        """There is no server."""


@cache
def _server() -> pg_server.Server:
    return pg_server.Server()


class PostgresSite:
    """A server of our own; every process has a way to it that can be cut."""

    name = "postgres"

    async def open(self, stack: AsyncExitStack, folder: Path) -> None:
        self._server = await asyncio.to_thread(_server)
        self.schema: str | None = await stack.enter_async_context(pg_server.schema(self._server.url))
        self.proxies: list[Proxy | None] = []
        for _ in range(WORKERS + 1):
            proxy = Proxy(self._server.url)
            await proxy.open()
            stack.push_async_callback(proxy.close)
            self.proxies.append(proxy)

    def url(self, number: int) -> str:
        proxy = self.proxies[number]
        assert proxy is not None
        return proxy.url

    async def transactions(self) -> Callable[[int], int]:
        connection = await asyncpg.connect(self._server.url)
        try:
            return dict(
                await connection.fetch(f'SELECT seq, xid::text::bigint FROM "{self.schema}".events')
            ).__getitem__
        finally:
            await connection.close()

    def pause(self, cluster: Cluster, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGSTOP)

    async def restart(self, random: random.Random) -> None:
        await asyncio.to_thread(random.choice((self._server.stop, self._server.kill)))
        await asyncio.sleep(random.choice((0.0, 0.5, 1.5)))
        await asyncio.to_thread(self._server.start)


Site = SQLiteSite | PostgresSite


class WallTimeline:
    """Places are moments, each known to lie between a call and its answer."""

    def __init__(self) -> None:
        self.calls: dict[object, tuple[float, float]] = {}
        """What was asked for (an event or an instance): when first, and when it was acknowledged."""
        self._seen: dict[int, float] = {}

    def asked(self, key: object) -> None:
        self.calls.setdefault(key, (time.time(), float("inf")))

    def acknowledged(self, key: object) -> None:
        began, end = self.calls[key]
        self.calls[key] = began, min(end, time.time())

    def event(self, event: Any) -> Span:
        _, end = self.calls.get((event.source, event.id), (0.0, float("inf")))
        seen = self._seen.setdefault(event.seq, time.time())
        return Span(event.accepted_at / SECOND - SLACK, min(end, seen) + SLACK)

    def born(self, instance: str) -> Span:
        began, end = self.calls[instance]
        return Span(began - SLACK, end + SLACK)

    def entry(self, instance: str, n: int, history: list[Any]) -> Span:
        following = [entry._raw.at for entry in history if entry._raw.n > n and entry.kind != "event_sent"]
        at = next(entry._raw.at for entry in history if entry._raw.n == n)
        return Span(at / SECOND - SLACK, following[0] / SECOND + SLACK if following else float("inf"))

    def time(self, moment: int) -> Span:
        return Span(moment / SECOND - SLACK, moment / SECOND - SLACK)


class RealWorld(Callers):
    """One round: callers and faults for a while, then rest, and the judge."""

    def __init__(self, seed: int, site: Site, counts: Counter[str], chaos: float = CHAOS) -> None:
        source = random.Random(seed)
        super().__init__(source, Drawing(source, scale=0.15))
        self.site, self.counts, self._chaos_for = site, counts, chaos
        self.timeline = WallTimeline()
        self._began = time.monotonic()
        self._workers: list[subprocess.Popen[bytes] | None] = [None] * WORKERS
        self._busy: set[int] = set()
        self._calm = False
        self._restarting = False
        self._blocked: set[str] = set()

    def now(self) -> float:
        return time.monotonic() - self._began

    def reader(self) -> App:
        return self.app

    def asked(self, key: object) -> None:
        self.timeline.asked(key)

    def acknowledged(self, key: object) -> None:
        self.timeline.acknowledged(key)

    def found_blocked(self, id: str, reason: str) -> None:
        super().found_blocked(id, reason)
        self._blocked.add(id)

    async def ask(self, what: str, call: Callable[[App], Awaitable[Any]]) -> Any:
        while True:
            self.say(what)
            try:
                return await call(self.app)
            except (InstanceExists, InstanceNotFound):
                raise
            except RomancyError as error:
                self.say(f"{what}: {type(error).__name__}: {error}")
            if self.random.random() < 0.2:
                return None
            await asyncio.sleep(0.3)

    # --- the course of things -----------------------------------------------------------------------------------------
    async def play(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="romancy-soak-"))
        try:
            async with AsyncExitStack() as stack:
                self.cluster = stack.enter_context(cluster(folder, "tests.soak.worker"))
                await self.site.open(stack, folder)
                database = Database(self.site.url(WORKERS), self.site.schema)
                self.app = App(database, workflows=[program, reaction], worker=False)
                await stack.enter_async_context(self.app)
                for number in range(WORKERS):
                    self._spawn_worker(number)
                for number in range(WORKERS):
                    await self._ready(number)
                await self._chaos()
                await self._rest()
                await self._end()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _chaos(self) -> None:
        end = time.monotonic() + self._chaos_for
        faults = asyncio.ensure_future(self._faults())
        for _ in range(4):
            self.spawn(self.start())
        try:
            while time.monotonic() < end:
                await asyncio.sleep(self.random.expovariate(8.0))
                self.spawn(self.choose(self.calls))
        finally:
            faults.cancel()
            await asyncio.wait({faults})
            if not faults.cancelled():
                faults.result()

    async def _rest(self) -> None:
        """Everybody is up and connected again; then the judge is asked until there is nothing to find fault with."""
        self._calm = True
        self.say("calm")
        end = time.monotonic() + REST
        while True:
            try:
                await self._heal()
                await self.resume()
                await self._judge()
                return
            except (AssertionError, RomancyError) as error:
                if time.monotonic() > end:
                    raise Violation(f"{error}") from error
            await asyncio.sleep(1.0)

    async def _heal(self) -> None:
        for proxy in self.site.proxies:
            if proxy is not None:
                proxy.heal()
        for number, process in enumerate(self._workers):
            if number not in self._busy:
                if process is not None and process.poll() is None:
                    process.send_signal(signal.SIGCONT)
                else:
                    self._spawn_worker(number)
        if self.tasks or self._busy or self._restarting:
            raise Violation(f"nobody answers {self.tasks}")

    async def _judge(self) -> None:
        oracle = Oracle(self.told, self.timeline)
        oracle.was_blocked = lambda id: True
        await oracle.compare(self.app, int((time.time() - 1.0) * SECOND), self.site.transactions)
        self.oracle = oracle
        for violation in self.violations:
            raise Violation(violation)

    async def _end(self) -> None:
        for id, run in list(self.oracle.runs.items()):
            if run.status is None:
                await self.cancel_one(id)
        end = time.monotonic() + REST
        while True:
            await self._rest()
            try:
                self.oracle.check_ended()
                break
            except AssertionError:
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(0.5)
        self.oracle.check_replays()
        self.counts["programs"] += len(self.oracle.runs)
        self.counts["events"] += len(self.oracle.world.events)
        self.counts["entries"] += sum(len(history) for history in self.oracle.histories.values())
        self.counts["known"] += len(self._blocked)

    # --- faults ------------------------------------------------------------------------------------------------------
    async def _faults(self) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(2.5))
            kinds: list[tuple[str, Callable[[int], Coroutine[Any, Any, None]], int]] = [
                ("killed", self._kill, 5),
                ("paused", self._pause, 3),
                ("stopped", self._stop, 1),
            ]
            if self.site.proxies[0] is not None:
                kinds += [
                    ("cut", self._cut, 6),
                    ("blocked line", self._block, 2),
                    ("answers lost", self._lose_answers, 4),
                    ("server restarted", self._restart, 1),
                ]
            [(kind, fault, _)] = self.random.choices(kinds, [weight for _, _, weight in kinds])
            number = self.random.randrange(
                WORKERS + (1 if fault in (self._cut, self._block, self._lose_answers) else 0)
            )
            if number not in self._busy:
                self.spawn(self._do(kind, fault, number))

    async def _do(self, kind: str, fault: Callable[[int], Coroutine[Any, Any, None]], number: int) -> None:
        self._busy.add(number)
        try:
            self.say(f"{kind}: {number}")
            self.counts[kind] += 1
            await fault(number)
        finally:
            self._busy.discard(number)

    def _spawn_worker(self, number: int) -> None:
        more = [self.site.schema] if self.site.schema else []
        self._workers[number] = self.cluster.spawn(LEASE, *more, database=self.site.url(number))

    async def _ready(self, number: int) -> None:
        """One that is not up yet is spared: else a slow machine would have no workers at all."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            process = self._workers[number]
            if process is None or process.poll() is not None or process.pid in self.cluster.pids("ready"):
                return
            await asyncio.sleep(0.05)
        raise Violation(f"worker {number} does not come up within {PATIENCE:g} s")

    async def _pausing(self, *choices: float) -> None:
        await asyncio.sleep(self.random.choice(choices))

    async def _kill(self, number: int) -> None:
        process = self._workers[number]
        if process is not None:
            await asyncio.to_thread(self.cluster.kill, process)
        await self._pausing(0.0, 0.3, 1.5)
        self._spawn_worker(number)
        await self._ready(number)

    async def _stop(self, number: int) -> None:
        process = self._workers[number]
        if process is not None:
            try:
                await asyncio.to_thread(self.cluster.stop, process)
            except subprocess.TimeoutExpired:
                self.say(f"{number} does not stop within ten seconds")
                await asyncio.to_thread(self.cluster.kill, process)
        self._spawn_worker(number)
        await self._ready(number)

    async def _pause(self, number: int) -> None:
        process = self._workers[number]
        if process is not None and process.poll() is None:
            await asyncio.to_thread(self.site.pause, self.cluster, process)
            await self._pausing(0.2, 1.0, 2.5)
            process.send_signal(signal.SIGCONT)

    async def _cut(self, number: int) -> None:
        proxy = self.site.proxies[number]
        assert proxy is not None
        proxy.cut()

    async def _block(self, number: int) -> None:
        proxy = self.site.proxies[number]
        assert proxy is not None
        proxy.block()
        await self._pausing(0.2, 1.0, 2.5)
        proxy.heal()

    async def _lose_answers(self, number: int) -> None:
        proxy = self.site.proxies[number]
        assert proxy is not None
        proxy.lose_answers()
        await self._pausing(0.05, 0.2, 1.0)
        proxy.heal()

    async def _restart(self, number: int) -> None:
        if not self._restarting:
            self._restarting = True
            await self.site.restart(self.random)
            self._restarting = False


def play(seed: int, site: Site, counts: Counter[str], chaos: float = CHAOS) -> None:
    """One round; raises `AssertionError` with its story where a promise was broken."""
    logger = logging.getLogger("romancy")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    world: RealWorld | None = None

    async def run() -> None:
        nonlocal world
        world = RealWorld(seed, site, counts, chaos)
        await world.play()

    try:
        asyncio.run(run())
    except AssertionError as error:
        error.add_note("\n".join(world.story if world is not None else []))
        raise
    finally:
        logger.setLevel(level)
