"""One attempt of an activity, from the moment it needs a slot until it has ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Protocol

from romancy.api.context import ActivityContext
from romancy.core.clock import Alarm
from romancy.core.operations import ActivityCall
from romancy.core.tickets import Links
from romancy.engine.resident import Resident
from romancy.engine.stages import RUNNING, WAITING
from romancy.storage.batch import Attempt


class Runner(Protocol):
    """What runs the attempts (see activities.py), as far as they call it."""

    state: Any
    links: Links

    def progress(self, attempting: Attempting, value: object) -> None: ...
    def expire(self, attempting: Attempting) -> None: ...
    def begin_thread(
        self, attempting: Attempting, fn: Callable[..., Any], context: ActivityContext
    ) -> asyncio.Future[tuple[Any, BaseException | None]]: ...


class Attempting:
    """One attempt that is queued or running."""

    __slots__ = (
        "_runner", "activity", "alarm", "call", "context", "granted", "is_final", "is_on_loop", "limit", "progress_at",
        "record", "resident", "since", "stage", "task", "thread",
    )  # fmt: skip

    def __init__(self, runner: Runner, resident: Resident, call: ActivityCall, record: Attempt | None) -> None:
        self._runner, self.resident, self.call, self.record = runner, resident, call, record
        self.activity = call.activity
        self.context: ActivityContext | None = None
        self.task: asyncio.Future[Any] | None = None
        self.alarm: Alarm | None = None
        self.stage = WAITING
        self.progress_at = 0
        self.since = 0.0
        self.is_on_loop = call.activity.is_async
        """Whether it runs on the event loop, where it can be cancelled, and not in a thread."""
        self.limit = call.timeout
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
