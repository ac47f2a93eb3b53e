"""The environment in which tests run workflows."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, overload

from romancy.api.activity import Activity
from romancy.api.context import ActivityContext, TransactionContext
from romancy.api.workflow import Workflow, definition_of
from romancy.app import App
from romancy.core.clock import stopwatch
from romancy.core.codec import Codec
from romancy.core.model import FOREVER_US, SECOND, STOPPED, Attribute, Duration, duration_us, from_us
from romancy.core.payloads import PayloadCodec
from romancy.core.tickets import NO_LINKS, Links
from romancy.core.versions import stored_name
from romancy.emission_records import Emission, check_wanted
from romancy.emitted import stored
from romancy.errors import RomancyError
from romancy.handle import WorkflowHandle
from romancy.options import WorkerOptions
from romancy.records import Instance, Receipt, Wait
from romancy.service import runtime_of
from romancy.storage import open_storage
from romancy.storage.protocol import Storage
from romancy.testing.answers import answer_as, check_accepted
from romancy.testing.clock import ManualClock
from romancy.testing.fakes import (
    check_fake,
    check_step_fake,
    stand_in_for,
    stand_in_for_step,
    stand_in_for_workflow,
)

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
_TICKS = 100
"""How many ticks of schedules `result` waits for, if no timer is set."""
_PATIENCE = 0.3
"""Real seconds after which an activity that is still running counts as waiting for the clock."""
_PRUNE_EVERY = 3600 * SECOND
"""Microseconds of the clock between rounds of retention: a test that turns it by seconds need not pay for them."""


class TestHandle(WorkflowHandle[R]):
    """A handle whose `result` advances the clock from timer to timer."""

    __test__ = False
    _env: Environment

    async def result(self, timeout: Duration | None = None) -> R:
        """Return the result. Raise if the instance can't end, or `TimeoutError` after `timeout` on the env's clock."""
        env = self._env
        limit = None if timeout is None else env.clock.now() + duration_us(timeout, "timeout")
        ticks = 0
        while True:
            await env.settle()
            is_busy = not self._runtime.engine.is_idle  # before the status is read: it may end meanwhile
            if await self.status() in STOPPED:
                return await super().result()
            due = env.clock.next_alarm()
            only_ticks = due is not None and self._runtime.engine.only_schedules
            ticks = ticks + 1 if only_ticks else 0
            due = None if ticks > _TICKS and limit is None else due  # schedules go on forever
            if due is None and is_busy:
                continue  # settle again: an activity takes real time
            if due is None:
                waits = await env.waits(self)
                names = ", ".join(f"{w.kind} {w.wait_id}" for w in waits) or "nothing"
                hint = "; send it with env.send_event(...)" if any(w.kind == "event" for w in waits) else ""
                raise RomancyError(
                    f"instance {self.instance_id!r} can't end: it waits for {names}, and no timer is set{hint}"
                )
            if limit is not None and due > limit:
                await env.turn_to(limit)
                raise TimeoutError(f"instance {self.instance_id!r} has not ended by {from_us(limit)}")
            await env.turn_to(due)


class Environment:
    """The real engine with a clock that you control. Whenever a call returns, nothing runs but long activities."""

    def __init__(self, app: App, clock: ManualClock, patience: float | None = None) -> None:
        self.app, self._patience = app, _PATIENCE if patience is None else patience
        self._runtime = runtime_of(app)
        self.clock = clock
        self._fakes: dict[Hashable, Callable[..., Any]] = {}
        self._pruned_at = clock.now()

    def _prepare(self) -> None:
        """Tell a new engine of the replacements. Those that are made later it knows by itself, whoever makes them."""
        engine = self._runtime.engine
        engine.activities.replacements, engine.emissions.pause = self._fakes, 0.0

    @property
    def now(self) -> datetime:
        """The current time of the environment's clock."""
        return from_us(self.clock.now())

    async def start(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> TestHandle[R]:
        """Start a workflow, registering it if necessary; return when everything is idle."""
        self.app.register(wf)
        handle: WorkflowHandle[Any] = await self.app.start_workflow(wf, *args, **kwargs)
        await self.settle()
        return self._handle(handle.instance_id, definition_of(wf).signature.result, handle.created)

    @overload
    def handle(self, instance_id: str, wf: Workflow[..., R], /) -> TestHandle[R]: ...
    @overload
    def handle(self, instance_id: str, /) -> TestHandle[Any]: ...
    def handle(self, instance_id: str, wf: Workflow[..., Any] | None = None, /) -> TestHandle[Any]:
        """Return a handle to an instance that `start` did not return, such as one that an event started.

        >>> await env.send_event("order.placed", "shop", {"id": 7})
        >>> [found] = (await env.app.list_instances(workflow="order")).items
        >>> await env.handle(found.instance_id, order).result()
        """
        return self._handle(instance_id, definition_of(wf).signature.result if wf else None)

    async def advance(self, by: Duration) -> None:
        """Move the clock forward, stopping at every timer on the way."""
        await self.turn_to(self.clock.now() + duration_us(by, "by"))

    async def turn_to(self, moment: int) -> None:
        """Move the clock to a time in microseconds since the epoch, stopping at every timer on the way."""
        await self.settle()
        while (due := self.clock.next_alarm()) is not None and due <= moment:
            self.clock.turn_to(max(due, self.clock.now()))
            await self._prune()
            await self.settle()
        self.clock.turn_to(moment)
        await self._prune()
        await self.settle()

    async def _prune(self) -> None:
        """Remove what retention removes by now, as in production."""
        now = self.clock.now()
        if now - self._pruned_at >= _PRUNE_EVERY and self._runtime.engine.is_worker:
            self._pruned_at = now
            await self._runtime.engine.prune()

    async def answer(
        self, handle: WorkflowHandle[Any], person: str, data: object, *, ask_id: str | None = None
    ) -> None:
        """Answer an open question of an instance as one of the people who were asked, and wait until all is idle.

        Raise `RomancyError` if the workflow refuses the answer.
        """
        given = await answer_as(self._runtime, handle.instance_id, person, data, ask_id)
        await self.settle()
        await check_accepted(self._runtime, given)

    async def send_event(
        self,
        type: str,
        source: str,
        data: object = None,
        *,
        subject: str | None = None,
        id: str | None = None,
        to: str | None = None,
        extensions: Mapping[str, Attribute] | None = None,
    ) -> Receipt:
        """Send an event; return when everything is idle again."""
        receipt = await self.app.send_event(type, source, data, subject=subject, id=id, to=to, extensions=extensions)
        await self.settle()
        return receipt

    async def cancel(self, handle: WorkflowHandle[Any] | str, reason: str | None = None) -> None:
        """Cancel an instance; return when everything is idle."""
        await self.app.cancel_workflow(handle if isinstance(handle, str) else handle.instance_id, reason=reason)
        await self.settle()

    async def waits(self, handle: WorkflowHandle[Any] | None = None) -> Sequence[Wait]:
        """Return the waits of one instance, or of all instances."""
        if handle is not None:
            return (await self.app.get_instance(handle.instance_id)).waits
        return (await self.app.list_waits(limit=1000)).items

    async def emitted(self, handle: WorkflowHandle[Any], topic: str | None = None) -> list[Emission[Any]]:
        """Return what an instance has emitted by now, on one topic or on all, when everything is idle."""
        await self.settle()
        return await stored(self._runtime.engine, handle.instance_id, *check_wanted(topic, 0), sys.maxsize)

    async def children(self, handle: WorkflowHandle[Any]) -> list[TestHandle[Any]]:
        """Return the children that an instance has started, the first one first.

        Those that started at the same time are in the order of their ids: `pay:2` before `pay:10`.
        """
        found: list[Instance] = []
        cursor, is_last = None, False
        while not is_last:
            page = await self.app.list_instances(parent=handle.instance_id, limit=1000, cursor=cursor)
            found += page.items
            cursor, is_last = page.cursor, page.cursor is None
        return [self._child(child) for child in sorted(found, key=_by_start)]

    def _child(self, child: Instance) -> TestHandle[Any]:
        definition = self._runtime.registry.get(stored_name(child.workflow, child.version))
        return self._handle(child.instance_id, definition.signature.result if definition else None)

    def _handle(self, id: str, result: Codec | None, created: bool = True) -> TestHandle[Any]:
        made: TestHandle[Any] = TestHandle(self.app, self._runtime, id, result, created)
        made._env = self  # pyright: ignore[reportPrivateUsage]
        return made

    async def restart(self) -> None:
        """Crash and restart: everything in memory is lost, and everything stored is replayed."""
        engine = self._runtime.engine
        dead = [engine.worker_id] if engine.worker_id else []
        for worker in dead:
            await engine.storage.leave(worker)  # no workflow is to blame for this crash
        await self._runtime.crash()
        await self.app.start()
        self._prepare()
        engine = self._runtime.engine
        await engine.storage.take_over(engine.worker_id or "", dead)
        engine.kick()
        await self.settle()

    def replace(
        self,
        target: Activity[P, R] | Workflow[P, R],
        fake: Callable[P, R] | Callable[P, Coroutine[Any, Any, R]],
        /,
    ) -> None:
        """Replace an activity, or a workflow that others call as a child: call `fake(*args)`, without ctx, instead."""
        check_fake(target, fake)
        if isinstance(target, Workflow):
            self.app.register(target)
            self._runtime.registry.replace(definition_of(target), stand_in_for_workflow(fake))
            return
        self._fakes[target.fn] = stand_in_for(target._definition, fake)  # pyright: ignore[reportPrivateUsage]

    def replace_step(self, name: str, fake: Callable[[], Any], /) -> None:
        """Replace the function of every step with this name: call `fake()`, plain or async, instead."""
        check_step_fake(name, fake)
        self._fakes[name] = stand_in_for_step(fake)

    async def settle(self) -> None:
        """Wait until everything is idle: nothing to run, nothing to store, no activity running.

        An activity that runs longer than the patience of the environment, in real time, counts as waiting.
        """
        engine, calm, since = self._runtime.engine, 0, stopwatch()
        while calm < 3:
            await asyncio.sleep(0 if calm else 0.0002)
            only_activities = engine.activities.running and engine.is_idle_but_for_activities
            if engine.is_idle or (only_activities and stopwatch() - since > self._patience):
                calm += 1
            else:
                calm = 0
                if not only_activities:
                    since = stopwatch()


def _by_start(child: Instance) -> tuple[datetime, list[str | int]]:
    parts = enumerate(re.split(r"(\d+)", child.instance_id))
    return child.started_at, [int(part) if n % 2 else part for n, part in parts]


@asynccontextmanager
async def environment(
    *,
    workflows: Sequence[Workflow[..., Any]] = (),
    database: str = ":memory:",
    patience: float | None = None,
    **options: Any,
) -> AsyncGenerator[Environment, None]:
    """Run the real engine on `:memory:` or a file, with a clock that you control. `options` are passed to `App`.

    `patience`: the real seconds after which an activity that is still running counts as waiting (default: 0.3).
    """
    clock = ManualClock()
    if options.get("worker", True) is True:
        options["worker"] = WorkerOptions(grace=0.1)
    app = App(database, workflows=workflows, **options)
    runtime = runtime_of(app)
    runtime.clock, runtime.timer_window = clock, FOREVER_US
    storage = runtime.storage = _storage(database, clock, runtime.codec)
    await storage.open()
    try:
        await app.start()
        env = Environment(app, clock, patience)
        env._prepare()  # pyright: ignore[reportPrivateUsage]
        try:
            yield env
        finally:
            await app.stop()
    finally:
        await storage.close()


def _storage(database: str, clock: ManualClock, codec: PayloadCodec | None) -> Storage:
    if codec is None:
        return open_storage(database, durability="normal", clock=clock)
    from romancy.storage.sealed import Vault, VaultOpener, sealed  # lazy: few need it

    vault = Vault(codec)
    return sealed(open_storage(database, durability="normal", clock=clock, opener=VaultOpener(vault)), vault)


@dataclass
class _Attempt:
    instance_id: str = "test"
    workflow_name: str = "test"
    activity_id: str = "activity:1"
    activity_name: str = "activity"
    attempt: int = 1
    state: Any = None
    last_progress: Any = None
    links: Links = NO_LINKS
    headers: Mapping[str, str] = field(default_factory=lambda: {})
    emitted: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])

    @property
    def known_as(self) -> str:
        return self.activity_id

    def keep_progress(self, value: object) -> None:
        self.last_progress = value

    def emit(self, topic: str, raw: bytes) -> bool:
        self.emitted.append((topic, json.loads(raw)))
        return True

    async def room(self) -> None:
        """There is always room."""


class TestActivityContext(ActivityContext):
    """A context for calling an activity's plain function. `emitted` has the topics and values that it emitted."""

    __test__ = False
    __slots__ = ("emitted",)

    def __init__(self, about: _Attempt) -> None:
        super().__init__(about)
        self.emitted: Sequence[tuple[str, Any]] = about.emitted


def activity_context(**fields: Any) -> TestActivityContext:
    """Return a context for calling an activity's plain function: `await charge.fn(activity_context(), 42)`.

    `fields`: instance_id, workflow_name, activity_id, activity_name, attempt, state, last_progress, headers. What the
    function emits is in `ctx.emitted`, as pairs of topic and value.
    """
    return TestActivityContext(_Attempt(**fields))


def transaction_context(connection: C, /, *, state: Any = None) -> TransactionContext[C]:
    """Return a context for calling a transactional activity's plain function with a connection of your own.

    >>> await pay.fn(transaction_context(connection), 42)
    """
    return TransactionContext(_Attempt(state=state), connection)
