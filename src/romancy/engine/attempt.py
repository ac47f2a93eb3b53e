"""One attempt of an activity, from the moment it needs a slot until it has ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from romancy.api.context import ActivityContext
from romancy.core.clock import Alarm
from romancy.core.model import SECOND, from_us
from romancy.core.operations import ActivityCall
from romancy.core.tickets import Links
from romancy.engine.emission_head import Value
from romancy.engine.emissions import Emissions
from romancy.engine.resident import Resident
from romancy.engine.stages import ENDED, RUNNING, WAITING, WITHDRAWN
from romancy.errors import EmissionsFull
from romancy.hooks import NO_HEADERS, ActivityStartedInfo
from romancy.storage.attempts import Attempt

YIELD_EVERY, LARGE = 100, 4096
"""After this many values, or bytes in one, an attempt lets others run, and waits until there is room."""


class Runner(Protocol):
    """What runs the attempts (see activities.py), as far as they call it."""

    state: Any
    links: Links
    emissions: Emissions
    loop: asyncio.AbstractEventLoop

    def progress(self, attempting: Attempting, value: object) -> None: ...
    def expire(self, attempting: Attempting) -> None: ...
    def begin_thread(
        self, attempting: Attempting, fn: Callable[..., Any], context: ActivityContext
    ) -> asyncio.Future[tuple[Any, BaseException | None]]: ...


class Attempting:
    """One attempt that is queued or running."""

    __slots__ = (
        "_runner", "activity", "alarm", "call", "context", "emitted", "granted", "is_expired", "is_final", "is_on_loop",
        "limit", "problem", "progress_at", "record", "resident", "since", "stage", "task", "thread",
    )  # fmt: skip

    def __init__(self, runner: Runner, resident: Resident, call: ActivityCall, record: Attempt | None) -> None:
        self._runner, self.resident, self.call, self.record = runner, resident, call, record
        self.activity = call.activity
        self.context: ActivityContext | None = None
        self.task: asyncio.Future[Any] | None = None
        self.alarm: Alarm | None = None
        self.stage = WAITING
        self.emitted = 0
        """How many values it has emitted."""
        self.problem: EmissionsFull | None = None
        """Why it can emit nothing more."""
        self.progress_at = 0
        self.since = 0.0
        self.is_on_loop = call.activity.is_async
        """Whether it runs on the event loop, where it can be cancelled, and not in a thread."""
        self.limit = call.timeout
        self.is_expired = False
        """Whether its thread runs on although its time is over."""
        self.is_final = False
        """Whether its error is final, because its result can't be stored."""
        self.thread: asyncio.Future[Any] | None = None
        """The thread of a transaction. Cancelling the attempt cuts it off from the database, but can't end it."""
        self.granted: Callable[[], None] | None = None
        """Called when it gets a slot that was reserved for it. It begins later, after that is recorded."""

    def __repr__(self) -> str:
        return f"<Attempting {self.call.id} #{self.attempt} of {self.instance_id!r} {self.stage.value}>"

    @property
    def instance_id(self) -> str:
        return self.resident.instance.id

    @property
    def workflow_name(self) -> str:
        return self.resident.instance.definition.name

    @property
    def activity_id(self) -> str:
        return self.call.id

    @property
    def activity_name(self) -> str:
        return self.activity.name

    @property
    def known_as(self) -> str:
        """The id of the call as other services know it."""
        dropped = self.resident.instance.dropped
        return self.call.id if dropped is None else dropped.name(self.call.id)

    @property
    def attempt(self) -> int:
        return 1 if self.record is None else self.record.n + 1

    @property
    def first_at(self) -> int:
        if self.record is not None:
            return self.record.first_at
        dropped = self.resident.instance.dropped
        return self.call.opened_at if dropped is None else max(self.call.opened_at, dropped.at)

    @property
    def headers(self) -> Mapping[str, str]:
        return self.resident.instance.run.headers or NO_HEADERS

    @property
    def timeout_error(self) -> TimeoutError:
        """The error of an attempt whose time is over."""
        seconds = (self.limit or 0) / SECOND
        is_own = self.limit == self.call.timeout
        limit = f"its timeout of {seconds:g} s" if is_own else f"{seconds:g} s, the limit of its transaction on SQLite"
        return TimeoutError(f"the attempt ran longer than {limit}")

    @property
    def state(self) -> Any:
        return self._runner.state

    @property
    def links(self) -> Links:
        return self._runner.links

    @property
    def last_progress(self) -> Any:
        raw = None if self.record is None else self.record.progress
        return json.loads(raw) if raw else None

    def keep_progress(self, value: object) -> None:
        self._runner.progress(self, value)

    def started_info(self, now: int) -> ActivityStartedInfo:
        """Return the info for hooks when it begins."""
        return ActivityStartedInfo(
            self.instance_id,
            self.workflow_name,
            from_us(now),
            self.activity.name,
            self.call.id,
            self.attempt,
            undo_of=self.call.undo_of,
            first_at=from_us(self.first_at),
            headers=self.headers,
        )

    # --- emitting ---------------------------------------------------------------------------------------------------
    @property
    def must_settle(self) -> bool:
        """Whether it has emitted something, or an earlier attempt of the call may have."""
        if self.emitted > 0:
            return True
        resident, emissions = self.resident, self._runner.emissions
        is_new = resident.reopened is not None and not resident.reopened and resident.instance.dropped is None
        if (is_new and not emissions.heads) or self.activity.transactional:
            return False
        may_be_repeated = resident.reopened is None or self.call.id in resident.reopened
        is_retried = resident.instance.dropped is not None
        return may_be_repeated or is_retried or emissions.has_emitted(self.instance_id, self.call.id)

    def emit(self, topic: str, raw: bytes) -> bool:
        """Emit a value. Return whether there is room for more; in a thread, wait for it.

        Raise `CancelledError` if the attempt was given up: that also ends a thread which nobody waits for any more.
        """
        self._check_emits()
        self.emitted += 1
        try:
            is_on_loop = asyncio.get_running_loop() is self._runner.loop
        except RuntimeError:
            is_on_loop = False
        is_time_to_wait = self.emitted % YIELD_EVERY == 0 or len(raw) > LARGE
        if is_on_loop:
            has_room = self._runner.emissions.emit(self.instance_id, Value(self.call.id, self, topic, raw))
            return has_room and not is_time_to_wait
        self._runner.loop.call_soon_threadsafe(self._hand_over, topic, raw)
        if is_time_to_wait:
            asyncio.run_coroutine_threadsafe(self.room(), self._runner.loop).result()
        return True

    def _hand_over(self, topic: str, raw: bytes) -> None:
        """Emit a value of a thread. It waits from time to time, so that not too many are under way."""
        if self.stage is not RUNNING or self.problem is not None:
            return
        try:
            self._runner.emissions.emit(self.instance_id, Value(self.call.id, self, topic, raw), is_awaited=True)
        except EmissionsFull as error:
            self.problem = error  # raised by the next call, or by the end of the attempt

    async def room(self) -> None:
        """Wait for room. Let others run in any case."""
        await asyncio.sleep(0)
        await self._runner.emissions.room(self.instance_id, lambda: self.stage is RUNNING)
        self._check_emits()

    async def settle(self, outcome: tuple[Any, BaseException | None]) -> tuple[Any, BaseException | None]:
        """Wait until everything it emitted is stored: its outcome comes after that. If that fails, it has failed."""
        try:
            if self.stage is not WITHDRAWN:
                if not self.emitted:  # then what an earlier attempt emitted is void
                    self._runner.emissions.begin(self.instance_id, self.call.id, self)
                await self._runner.emissions.settled(self.instance_id, self)
        except (Exception, asyncio.CancelledError) as error:  # it can't be stored, or the attempt is over
            return outcome if outcome[1] is not None else (None, error)
        return outcome if self.problem is None or outcome[1] is not None else (None, self.problem)

    def _check_emits(self) -> None:
        if self.problem is not None:
            raise self.problem
        if self.stage is ENDED:
            raise RuntimeError(f"the attempt of activity {self.call.id!r} is over; it can't emit anything any more")
        if self.stage is not RUNNING:
            raise asyncio.CancelledError("the attempt was given up")
        if self.activity.transactional:
            raise RuntimeError(
                f"activity {self.call.id!r} is transactional, so it can't emit: nobody may see what is not committed; "
                "return the value, and emit it in the workflow"
            )

    # --- for transactions -------------------------------------------------------------------------------------------
    @property
    def is_wanted(self) -> bool:
        return self.stage is RUNNING

    def expire(self) -> None:
        self._runner.expire(self)

    def begin_thread(
        self, fn: Callable[..., Any], context: ActivityContext, /
    ) -> asyncio.Future[tuple[Any, BaseException | None]]:
        return self._runner.begin_thread(self, fn, context)
