"""The simulation: a few processes on one database in memory, callers, and everything that may go wrong, by one seed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from romancy import ActivityContext, App, InstanceExists, RomancyError, WorkerOptions
from romancy.core.model import SECOND
from romancy.engine.watchdog import Watchdog
from romancy.errors import InstanceNotFound, StorageError
from tests.crash.stage import LEFTOVERS
from tests.property.programs import program, reaction
from tests.soak.callers import Callers, Thing
from tests.soak.drawing import Drawing
from tests.soak.faults import FaultyStorage, Nature, Neighbours
from tests.soak.loop import VirtualClock, VirtualLoop, deterministic
from tests.soak.oracle import Oracle, Span, Violation
from tests.soak.storage import InlineStorage, Journal

PHASES = 2
CHAOS = 14.0
"""Virtual seconds of one phase."""
CALM = 22.0
"""Virtual seconds after which everything has come to rest: leases have ended, and strays were looked for."""
PATIENCE = 120.0
"""Virtual seconds for callers to get their answers once all is calm."""
_EXPECTED = (
    "the database can't be written",
    "is blocked:",
    "stopping with steps not stored",
    "can't be handed back",
    "Task was destroyed",
)


class Process:
    """A place where an app runs, dies and is started again."""

    def __init__(self, world: SimulatedWorld, number: int, *, worker: bool) -> None:
        draw = world.random
        self.world, self.number, self.is_worker = world, number, worker
        self.app: App | None = None
        self.stopping: App | None = None
        self.storage: FaultyStorage | None = None
        self.lease = draw.choice((1, 3, 10))
        self.max_resident = draw.choice((1, 2, 1000))
        self.max_activities = draw.choice((1, 100))
        self.is_remote = draw.random() < 0.4
        self.changing = False
        self.death = asyncio.Event()

    def __repr__(self) -> str:
        return f"{'worker' if self.is_worker else 'client'} {self.number}"

    async def start(self) -> None:
        if self.app is not None or self.stopping is not None or self.changing:
            return
        world = self.world
        self.changing = True
        try:
            while True:
                storage = FaultyStorage(
                    world.storage, world.journal, world.nature, world.neighbours, self.killed, is_remote=self.is_remote
                )
                app = App(
                    ":memory:",
                    workflows=[program, reaction],
                    lease=self.lease,
                    worker=self.is_worker and WorkerOptions(grace=0.5, max_resident=self.max_resident),
                    max_activities=self.max_activities,
                    state=Attempts(world, self),
                )
                app._runtime.clock, app._runtime.storage = world.clock, storage
                try:
                    await app.start()
                except StorageError:
                    storage.die()
                    await app._runtime.crash()
                    await asyncio.sleep(0.2)
                    continue
                self.app, self.storage = app, storage
                if storage.dead:
                    world.spawn(self.crash())
                return
        finally:
            self.changing = False

    def killed(self) -> None:
        self.world.spawn(self.crash())

    async def crash(self) -> None:
        app, storage = self.app or self.stopping, self.storage
        self.app = self.stopping = None
        if app is not None and storage is not None:
            storage.die()
            self.world.say(f"{self} dies")
            self.death.set()
            self.death = asyncio.Event()
            await app._runtime.crash()
            self.world.spawn(self.come_back())

    async def stop(self) -> None:
        app, self.app = self.app, None
        if app is not None:
            self.world.say(f"{self} stops")
            self.stopping = app
            with contextlib.suppress(RomancyError):
                await self.world.unless_dead(self, app.stop())
            if self.stopping is app and self.storage is not None:
                self.storage.close()
                self.stopping = None
                self.world.spawn(self.come_back())

    async def come_back(self) -> None:
        await asyncio.sleep(self.world.random.choice((0.0, 0.1, 1.0, 4.0)))
        await self.start()


class Attempts:
    """The `state` of an app: hears of every attempt of an activity, and checks that it may begin."""

    def __init__(self, world: SimulatedWorld, process: Process) -> None:
        self._world, self._process = world, process

    def begins(self, ctx: ActivityContext) -> float:
        self._note(ctx)
        return self._world.random.choice((0, 0, 0.01, 0.3, 1.5))

    def begins_in_thread(self, ctx: ActivityContext) -> None:
        self._note(ctx)

    def _note(self, ctx: ActivityContext) -> None:
        world, key = self._world, (ctx.instance_id, ctx.activity_id)
        world.attempts.append((*key, ctx.attempt, world.length(ctx.instance_id)))
        if ctx.attempt - 1 > world.journal.attempts[key]:
            world.violate(f"attempt {ctx.attempt} of {key} began before the failure of the last was stored")


class LogTimeline:
    """Places are positions in the log, known exactly."""

    def __init__(self, journal: Journal, world: SimulatedWorld) -> None:
        self._journal, self._world = journal, world

    def event(self, event: Any) -> Span:
        return Span(event.seq, event.seq)

    def born(self, instance: str) -> Span:
        return _exactly(self._journal.born[instance])

    def entry(self, instance: str, n: int, history: list[Any]) -> Span:
        return _exactly(self._journal.entries.get((instance, n), self._journal.born[instance]))

    def time(self, moment: int) -> Span:
        if self._world.stepped_back:
            return _exactly(0)
        return _exactly(self._journal.visible_at(moment) + 0.5)


def _exactly(place: float) -> Span:
    return Span(place, place)


class SimulatedWorld(Callers):
    """One seed: programs, callers, faults; then calm, and the judge. Again; and an end for everybody."""

    def __init__(self, seed: int, source: random.Random, loop: VirtualLoop, counts: Counter[str]) -> None:
        super().__init__(source, Drawing(source))
        self.seed, self.loop = seed, loop
        self.clock = VirtualClock(loop)
        self.storage = InlineStorage(self.clock)
        self.journal = Journal(self.storage, self.clock)
        intensity = source.choice((0.1, 0.3, 0.5))
        self.nature = Nature(source, intensity, intensity * 0.7, source.choice((0.0, 0.3, 0.9)), counts)
        self.neighbours = Neighbours()
        self.counts = counts
        self.oracle = Oracle(self.told, LogTimeline(self.journal, self))
        self.oracle.was_blocked = lambda id: id in self.journal.blocked
        self.stepped_back = False
        self.attempts: list[tuple[str, str, int, int]] = []
        self.processes = [Process(self, n, worker=True) for n in range(source.randint(2, 4))]
        self.processes.append(Process(self, len(self.processes), worker=False))

    def now(self) -> float:
        return self.loop.time()

    def reader(self) -> App:
        """One that no fault strikes."""
        return self._reader

    def length(self, instance: str) -> int:
        return self.storage.read("SELECT count(*) FROM romancy_history WHERE instance = ?", instance)[0][0]

    # --- the course of things ----------------------------------------------------------------------------------------
    async def play(self) -> None:
        await self.storage.open()
        self._reader = App(":memory:", workflows=[program, reaction], worker=False)
        self._reader._runtime.clock, self._reader._runtime.storage = self.clock, self.storage
        await self._reader.start()
        try:
            await self._play()
        except BaseException:
            await self._abandon()
            raise
        await self._close()

    async def _play(self) -> None:
        self.nature.calm = True
        for process in self.processes:
            await process.start()
        for _ in range(PHASES):
            await self._chaos()
            await self._rest()
            await self._judge()
        await self._end()

    async def _chaos(self) -> None:
        self.nature.calm = False
        end = self.loop.time() + CHAOS
        for _ in range(self.random.randint(1, 3)):
            self.spawn(self.start())
        while self.loop.time() < end:
            await asyncio.sleep(self.random.expovariate(4.0))
            self.spawn(self.choose(self._things))

    @property
    def _things(self) -> list[tuple[Thing, int]]:
        return [
            *self.calls,
            (self._kill, 4),
            (self._stop, 2),
            (self._fence, 4),
            (self._cut_off, 4),
            (self._jump, 1),
            (self._step_back, 1 if self.seed % 7 == 0 else 0),
        ]

    async def _rest(self) -> None:
        """No more faults; everybody is up. Whatever is under way ends."""
        self.nature.calm = True
        self.say("calm")
        end = self.loop.time() + CALM
        while self.loop.time() < end or self._blocked():
            for process in self.processes:
                await process.start()
            for id in self._blocked():
                await self._reader.resume_workflow(id)
            await asyncio.sleep(2.0)
            if self.loop.time() > end + PATIENCE:
                raise Violation(f"blocked again and again: {self._blocked()}")
        await self._settle()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=PATIENCE)
            if self.tasks:
                states = [
                    (p, p.app and p.app._runtime.engine, p.storage and p.storage.dead, p.changing, p.stopping)
                    for p in self.processes
                ]
                raise Violation(f"nobody answers {self.tasks} {states}")

    async def _settle(self) -> None:
        """A time limit that ends at this very moment may lead to more that is due by now."""
        before, steps = -1, self._steps()
        while steps != before:
            await asyncio.sleep(0.1)
            before, steps = steps, self._steps()

    def _steps(self) -> int:
        return self.storage.read("SELECT coalesce(sum(version), 0) FROM romancy_instances")[0][0]

    async def _judge(self) -> None:
        self.oracle.world.stepped_back = self.stepped_back
        await self.oracle.compare(self._reader, self.clock.now() - 1000)
        self._check_attempts()
        for violation in (*self.violations, *self.journal.violations):
            raise Violation(violation)

    def _check_attempts(self) -> None:
        """No activity began before the entry that led to it was stored."""
        for instance, op, attempt, length in self.attempts:
            run = self.oracle.runs.get(instance)
            opened = None if run is None else run.opened.get(op)
            if opened is None:
                if instance not in self.journal.blocked:
                    raise Violation(f"attempt {attempt} of {op} in {instance}: the workflow never asked for it")
            elif length < opened:
                raise Violation(f"attempt {attempt} of {op} in {instance} began before entry {opened} was stored")
        self.attempts.clear()

    async def _end(self) -> None:
        for id, run in list(self.oracle.runs.items()):
            if run.status is None:
                await self.cancel_one(id)
        await self._rest()
        await self._judge()
        self.oracle.check_ended()
        self.oracle.check_replays()
        for table in LEFTOVERS:
            left = self.storage.read(
                f"SELECT t.* FROM romancy_{table} t JOIN romancy_instances i ON i.id = t.instance WHERE i.status >= 10"
            )
            if left:
                raise Violation(f"left behind in {table}: {left}")

    async def _abandon(self) -> None:
        """Leave nothing behind that would come to light later, in somebody else's hands."""
        for app in [self._reader, *(process.app or process.stopping for process in self.processes)]:
            if app is not None:
                await app._runtime.crash()
        await self.storage.close()

    async def _close(self) -> None:
        for process in self.processes:
            if process.app is not None:
                await process.app.stop()
        await self._reader.stop()
        await self.storage.close()

    # --- callers -----------------------------------------------------------------------------------------------------
    def _any_app(self) -> tuple[Process, App] | None:
        up = [(process, process.app) for process in self.processes if process.app is not None]
        return self.random.choice(up) if up else None

    async def ask(self, what: str, call: Callable[[App], Awaitable[Any]]) -> Any:
        """Ask somebody, and again somebody, until there is an answer or the caller gives up. None: who knows."""
        while True:
            found = self._any_app()
            if found is not None:
                process, app = found
                self.say(f"{what} by {process}")
                try:
                    return await self.unless_dead(process, call(app))
                except (InstanceExists, InstanceNotFound):
                    raise
                except RomancyError as error:
                    self.say(f"{what} by {process}: {type(error).__name__}")
            if self.random.random() < 0.3:
                return None
            await asyncio.sleep(self.random.choice((0.0, 0.2, 1.0)))

    async def unless_dead(self, process: Process, call: Awaitable[Any]) -> Any:
        """Whoever asks is part of the process, and dies with it."""
        asking, death = asyncio.ensure_future(call), asyncio.ensure_future(process.death.wait())
        await asyncio.wait({asking, death}, return_when=asyncio.FIRST_COMPLETED)
        death.cancel()
        if asking.done():
            return asking.result()
        asking.cancel()
        await asyncio.wait({asking})
        raise RomancyError("the process died")

    def _blocked(self) -> list[str]:
        return [id for (id,) in self.storage.read("SELECT id FROM romancy_instances WHERE status = 9")]

    # --- faults that are no storage's ---------------------------------------------------------------------------------
    def _any_up(self) -> Process | None:
        up = [process for process in self.processes if process.app is not None]
        return self.random.choice(up) if up else None

    async def _kill(self) -> None:
        process = self._any_up()
        if process is not None:
            self.nature.count("killed")
            await process.crash()

    async def _stop(self) -> None:
        process = self._any_up()
        if process is not None:
            self.nature.count("stopped")
            await process.stop()

    async def _fence(self) -> None:
        """Somebody is taken for dead who is not."""
        process = self._any_up()
        victim = process.app._runtime.engine.worker_id if process is not None and process.app is not None else None
        if victim is not None:
            self.nature.count("fenced")
            self.say(f"{process} is fenced")
            await self.storage.take_over("", [victim])

    async def _cut_off(self) -> None:
        process = self._any_up()
        if process is not None and process.storage is not None:
            self.nature.count("cut off")
            process.storage.cut_off_until = self.loop.time() + self.random.choice((0.3, 1.5, 4.0, 12.0))
            self.say(f"{process} is cut off until {process.storage.cut_off_until:.3f}")

    async def _jump(self) -> None:
        self.nature.count("clock forwards")
        by = self.random.choice((1, 5, 20, 3600))
        self.say(f"the clock jumps by {by} s")
        self.clock.offset += by * SECOND

    async def _step_back(self) -> None:
        self.nature.count("clock back")
        self.stepped_back = True
        self.say("the clock is set back by 5 s")
        self.clock.offset -= 5 * SECOND


class _Errors(logging.Handler):
    """What the engine or asyncio call an error, but for what is done to them on purpose."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if not any(expected in text for expected in _EXPECTED):
            self.found.append(text + (f": {record.exc_info[1]!r}" if record.exc_info else ""))


def simulate(seed: int, counts: Counter[str]) -> SimulatedWorld:
    """Play a world; raises `Violation` with its story."""
    errors, loggers = _Errors(), [logging.getLogger(name) for name in ("romancy", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(errors)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
    world: SimulatedWorld | None = None
    watch, Watchdog.start = Watchdog.start, lambda self: None  # type: ignore[method-assign]
    try:
        with deterministic(seed) as (source, loop):
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                world = SimulatedWorld(seed, source, loop, counts)
                runner.run(world.play())
        if errors.found:
            raise Violation(f"logged as an error: {errors.found[0]}")
    except AssertionError as error:
        more = "".join(f"\n  logged: {line}" for line in errors.found[:5])
        error.add_note("\n".join(world.story if world is not None else []) + more)
        raise
    finally:
        Watchdog.start = watch  # type: ignore[method-assign]
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(errors)
            logger.setLevel(level)
            logger.propagate = True
    counts["programs"] += len(world.oracle.runs)
    counts["events"] += len(world.oracle.world.events)
    counts["entries"] += sum(len(history) for history in world.oracle.histories.values())
    return world
