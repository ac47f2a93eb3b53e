"""A stage for crash tests: an app whose process may die at any step of a script, and is then started anew."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar
from unittest.mock import patch

from romancy import App, RetryPolicy, WorkerOptions, Workflow
from romancy.core.history import Kind
from romancy.core.model import FOREVER_US, SECOND, Duration, duration_us
from romancy.engine import evidence
from romancy.errors import NotRetryable
from romancy.testing import Environment, ManualClock
from tests.crash.faults import Fault, MortalStorage
from tests.crash.ground import Ground, SQLiteGround

T = TypeVar("T")
BEGINNING = 1_800_000_000 * SECOND
LEFTOVERS = ("waits", "wait_keys", "deliveries", "requests", "attempts")
FAILURES = (Kind.ACTIVITY_FAILED, Kind.RETRIED)
_HANGS = 10.0
"""Real seconds after which a step that still goes on counts as hanging."""
RETRY = RetryPolicy(max_attempts=4, initial=1, jitter=0)
ground: Ground = SQLiteGround()
"""The fixture of the same name puts another here."""


class PatientEnvironment(Environment):
    """Waits for every activity however long it takes on a busy machine, except for those that hang on purpose."""

    hanging = 0

    async def settle(self) -> None:
        calm = 0
        while calm < 3:
            await asyncio.sleep(0 if calm else 0.0002)
            engine = self.app._runtime.engine
            is_calm = engine.is_idle_but_for_activities and engine.activities.running == PatientEnvironment.hanging
            calm = calm + 1 if is_calm else 0


@contextmanager
def hanging() -> Generator[None]:
    """Around the code of an activity that hangs on purpose."""
    PatientEnvironment.hanging += 1
    try:
        yield
    finally:
        PatientEnvironment.hanging -= 1


class Stage:
    """Plays steps; one during which the process dies is played again by its successor, as a careful caller would."""

    def __init__(self, env: Environment, storage: MortalStorage) -> None:
        self.env = env
        self.storage = storage
        self.deaths = 0

    async def start(self, wf: Workflow[..., Any], *args: Any, id: str) -> None:
        await self._play(lambda: self.env.start(wf.options(instance_id=id), *args))

    async def send(self, type: str, data: object = None, *, id: str, **more: Any) -> None:
        source = more.pop("source", "test")
        await self._play(lambda: self.env.send_event(type, source, data, id=id, **more))

    async def cancel(self, id: str, reason: str | None = None) -> None:
        await self._play(lambda: self.env.cancel(id, reason))

    async def resume(self, id: str) -> None:
        async def resumed() -> None:
            await self.env.app.resume_workflow(id)
            await self.env.settle()

        await self._play(resumed)

    async def retry(self, id: str) -> None:
        async def retried() -> None:
            with suppress(NotRetryable):  # it was retried just before the process died
                await self.env.app.retry_workflow(id)
            await self.env.settle()

        await self._play(retried)

    async def retry_now(self, id: str) -> None:
        async def hastened() -> None:
            with suppress(NotRetryable):  # the attempt began just before the process died, and the instance has ended
                await self.env.app.retry_now(id)
            await self.env.settle()

        await self._play(hastened)

    async def advance(self, by: Duration) -> None:
        moment = self.env.clock.now() + duration_us(by)
        await self._play(lambda: self.env.turn_to(max(moment, self.env.clock.now())))

    async def start_together(self, *starts: tuple[Workflow[..., Any], tuple[Any, ...], str]) -> None:
        app = self.env.app

        async def all_at_once() -> None:
            await asyncio.gather(*(app.start_workflow(wf.options(instance_id=id), *a) for wf, a, id in starts))
            await self.env.settle()

        await self._play(all_at_once)

    async def read(self, query: str) -> list[tuple[Any, ...]]:
        return await ground.read(query)

    async def _play(self, step: Callable[[], Awaitable[T]]) -> T:
        while True:
            playing = asyncio.ensure_future(step())
            async with asyncio.timeout(_HANGS):
                if await self._survived(playing):
                    return playing.result()
                await self._resurrect()

    async def _survived(self, playing: asyncio.Future[Any]) -> bool:
        death = asyncio.ensure_future(self.storage.died.wait())
        await asyncio.wait({playing, death}, return_when=asyncio.FIRST_COMPLETED)
        if not self.storage.died.is_set():
            death.cancel()
            return True
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        return False

    async def _resurrect(self) -> None:
        """A new process on the same database. It may die, too, while it takes over."""
        while True:
            self.deaths += 1
            self.storage = MortalStorage(self.storage.inner, self.storage.faults)
            self.env.app._runtime.storage = self.storage
            restarting = asyncio.ensure_future(self.restart())
            if await self._survived(restarting):
                return restarting.result()

    async def restart(self) -> None:
        """A new engine on the same database; every other worker there is known to be dead."""
        app = self.env.app
        dead = await self.read("SELECT id FROM romancy.workers")
        await app._runtime.crash()
        await app.start()
        me = app._runtime.engine.worker_id or ""
        await app._runtime.engine.storage.take_over(me, [id for (id,) in dead if id != me])
        await ground.dust_settled()  # what a dead process had sent off may still come in; a sweep finds it
        app._runtime.engine.kick()
        await self.env.settle()

    async def outcome(self) -> dict[str, Any]:
        """Everything that must not depend on when somebody died."""
        await ground.tidy()
        instances = await self.read("SELECT id, status, output, error FROM romancy.instances ORDER BY id")
        history = await self.read("SELECT instance, kind, op, at, payload FROM romancy.history ORDER BY instance, n")
        consumed = await self.read(
            "SELECT c.instance, e.source, e.id, c.op FROM romancy.consumed c "
            "JOIN romancy.events e ON e.seq = c.event ORDER BY 1, 2, 3"
        )
        events = await self.read("SELECT source, id, type, target, data FROM romancy.events ORDER BY source, id")
        left = {
            table: await self.read(
                f"SELECT t.* FROM romancy.{table} t JOIN romancy.instances i ON i.id = t.instance WHERE i.status >= 10"
            )
            for table in LEFTOVERS
        }
        return {
            "instances": [(id, status, output, _message(error)) for id, status, output, error in instances],
            "history": [(i, kind, op, at, _message(p) if kind in FAILURES else p) for i, kind, op, at, p in history],
            "consumed": consumed,
            "events": events,
            "views": await self.read("SELECT instance, value FROM romancy.views ORDER BY instance"),
            "attributes": await self.read(
                "SELECT instance, name, value FROM romancy.attributes ORDER BY instance, name"
            ),
            "left behind": {table: rows for table, rows in left.items() if rows},
        }


def _message(error: bytes | None) -> object:
    """A stored failure without its traceback, whose frames differ between a live and a recorded path.

    Also without the numbers of the entries that led to it: they depend on the order in which activities end.
    """
    return None if error is None else {k: v for k, v in json.loads(error).items() if k not in ("traceback", "culprits")}


@asynccontextmanager
async def stage(workflows: Sequence[Workflow[..., Any]], *faults: Fault) -> AsyncGenerator[Stage, None]:
    """A fresh database, and an app on it that the faults will kill."""
    clock = ManualClock(BEGINNING)
    inner = await ground.lay(clock)
    app = App(":memory:", workflows=workflows, worker=WorkerOptions(grace=0.1, compensation_retry=RETRY), retry=RETRY)
    app._runtime.clock, app._runtime.timer_window = clock, FOREVER_US
    storage = app._runtime.storage = MortalStorage(inner, faults)
    play = Stage(PatientEnvironment(app, clock), storage)
    try:
        with no_rest():
            if not await play._survived(asyncio.ensure_future(app.start())):
                await play._resurrect()
            yield play
    finally:
        await app._runtime.crash()
        await ground.clear()


@contextmanager
def no_rest() -> Generator[None]:
    """Suspects of the quarantine begin at once: the clock stands still here, and moments are compared."""
    with patch.object(evidence, "PAUSE", 0), patch.object(evidence, "RESTS", (0, 0)):
        yield
