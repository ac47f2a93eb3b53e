"""Hooks report what happened: after it is stored, and never for replayed steps."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True)
class WorkflowInfo:
    """A workflow started, ended or was blocked."""

    instance_id: str
    workflow: str
    at: datetime
    error: Exception | None = None
    started_at: datetime | None = None
    """When the instance was started. Given when it ends, continues or is blocked."""
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS, kw_only=True, repr=False)
    """What travels with the instance; see `StartRequest.headers`."""


@dataclass(frozen=True)
class WorkflowStartedInfo(WorkflowInfo):
    """A workflow started."""

    parent: str | None = None
    """The instance whose child it is."""


@dataclass(frozen=True)
class WorkflowAdmittedInfo(WorkflowInfo):
    """A queued instance got a slot, and runs as soon as a worker has room. Told by the worker that has admitted it."""

    queue: str = ""


@dataclass(frozen=True)
class WorkflowContinuedInfo(WorkflowInfo):
    """An instance continued as new. `workflow` is the one that ended this run."""

    run_number: int = 1
    """The number of the run that begins."""


@dataclass(frozen=True)
class WorkflowRetriedInfo(WorkflowInfo):
    """An instance that had failed, or was cancelled, goes on."""

    retry: int = 1
    """How often it was retried, including this time."""
    dropped: tuple[int, ...] = ()
    """The numbers of the entries in its history that no longer count."""


class WorkflowCompletedInfo(WorkflowInfo):
    """A workflow returned."""


class WorkflowFailedInfo(WorkflowInfo):
    """A workflow ended with an error."""


class WorkflowCancelledInfo(WorkflowInfo):
    """A workflow was cancelled."""


class WorkflowBlockedInfo(WorkflowInfo):
    """A workflow can't continue until its code is fixed."""


@dataclass(frozen=True)
class ActivityInfo:
    """An activity started, completed, failed, or will be retried."""

    instance_id: str
    workflow: str
    at: datetime
    activity: str
    activity_id: str
    attempt: int
    undo_of: str | None = field(default=None, kw_only=True)
    """The operation it undoes, if it undoes one."""
    first_at: datetime | None = field(default=None, kw_only=True)
    """When its first attempt could begin."""
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS, kw_only=True, repr=False)
    """What travels with the instance; see `StartRequest.headers`."""


class ActivityStartedInfo(ActivityInfo):
    """An attempt starts."""


class ActivityCompletedInfo(ActivityInfo):
    """An activity completed, and its result is stored."""


@dataclass(frozen=True)
class ActivityFailedInfo(ActivityInfo):
    """An activity failed and will not be retried."""

    error_type: str = ""
    message: str = ""


@dataclass(frozen=True)
class ActivityRetryingInfo(ActivityInfo):
    """An attempt failed; the next one is due at `next_at`."""

    error_type: str = ""
    message: str = ""
    next_at: datetime | None = None


@dataclass(frozen=True)
class ActivityLostInfo(ActivityInfo):
    """The worker died while an attempt was running, or had just begun it. It is tried again.

    It is not known how long it ran. The number of the attempt counts those that failed, so the next one has it, too.
    """

    crashes: int = 1
    """How often that has happened to this call."""


@dataclass(frozen=True)
class EventReceivedInfo:
    """An instance received an event."""

    instance_id: str
    workflow: str
    at: datetime
    event_type: str
    event_data: Any
    event: Any
    wait_id: str
    since: datetime | None = field(default=None, kw_only=True)
    """When the wait started."""
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS, kw_only=True, repr=False)
    """What travels with the instance; see `StartRequest.headers`."""


@dataclass(frozen=True)
class EventSentInfo:
    """An instance sent an event."""

    instance_id: str
    workflow: str
    at: datetime
    event_type: str
    event_id: str
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS, kw_only=True, repr=False)
    """What travels with the instance; see `StartRequest.headers`."""


@dataclass(frozen=True)
class WaitInfo:
    """A wait for an event started, completed, or timed out."""

    instance_id: str
    workflow: str
    at: datetime
    wait_id: str
    types: tuple[str, ...]
    due_at: datetime | None = None
    since: datetime | None = field(default=None, kw_only=True)
    """When the wait started."""
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS, kw_only=True, repr=False)
    """What travels with the instance; see `StartRequest.headers`."""


class WaitStartedInfo(WaitInfo):
    """A wait started."""


class WaitCompletedInfo(WaitInfo):
    """The event of a wait arrived."""


class WaitTimedOutInfo(WaitInfo):
    """A wait timed out."""


@dataclass(frozen=True)
class TimerInfo:
    """A timer started or fired."""

    instance_id: str
    workflow: str
    at: datetime
    timer_id: str
    due_at: datetime
    since: datetime | None = field(default=None, kw_only=True)
    """When the timer started."""
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS, kw_only=True, repr=False)
    """What travels with the instance; see `StartRequest.headers`."""


class TimerStartedInfo(TimerInfo):
    """A timer started."""


class TimerFiredInfo(TimerInfo):
    """A timer fired."""


@dataclass(frozen=True)
class ReplayInfo:
    """The history of an instance is replayed to bring it back into memory."""

    instance_id: str
    workflow: str
    at: datetime
    entries: int


class ReplayStartedInfo(ReplayInfo):
    """A replay starts."""


class ReplayCompletedInfo(ReplayInfo):
    """A replay finished."""


@dataclass(frozen=True)
class CompensationInfo:
    """What an instance, or a `saga` block, did is being undone. `owed`: the operations to undo, in that order."""

    instance_id: str
    workflow: str
    at: datetime
    owed: tuple[str, ...]
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS, kw_only=True, repr=False)
    """What travels with the instance; see `StartRequest.headers`."""


class CompensationStartedInfo(CompensationInfo):
    """Undos begin to run."""


class CompensationCompletedInfo(CompensationInfo):
    """Everything was undone."""


@dataclass(frozen=True)
class CompensationFailedInfo(CompensationInfo):
    """Undos failed for good. The instance is blocked until it is resumed or cancelled."""

    not_undone: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScheduleInfo:
    """A tick of a schedule was started or skipped, or can't be started."""

    schedule: str
    workflow: str
    at: datetime


@dataclass(frozen=True)
class ScheduleFiredInfo(ScheduleInfo):
    """A tick was started."""

    instance_id: str
    scheduled_at: datetime
    """The tick."""


@dataclass(frozen=True)
class ScheduleSkippedInfo(ScheduleInfo):
    """Ticks were skipped, because they were missed or the instance before had not ended."""

    skipped: int
    """How many."""
    until: datetime
    """Ticks up to this one are taken care of."""


@dataclass(frozen=True)
class ScheduleFailedInfo(ScheduleInfo):
    """A tick is due, but this worker can't start it."""

    error: str


@dataclass(frozen=True)
class InboxRefusedInfo:
    """A start or an event that was left with `app.within` is refused. It stays in the inbox, and takes no effect.

    A start is refused if its id is taken by an instance with another workflow or input. Starts and events are refused
    if the database can't store one of their values. An event whose source and id are known is a duplicate, not refused.
    """

    number: int
    """Its number in the inbox: see `app.list_inbox` and `app.forget_refused`."""
    at: datetime
    reason: str
    instance_id: str | None = None
    """Of a start: the id that the instance would have had, and its workflow."""
    workflow: str | None = None
    event_type: str | None = None
    """Of an event: its type, its source and its id."""
    event_source: str | None = None
    event_id: str | None = None


class HooksBase:
    """Override the methods you need, sync or async. An exception in a hook is logged and has no other effect.

    >>> class Print(HooksBase):
    ...     def on_event_received(self, info: EventReceivedInfo) -> None:
    ...         print(info.instance_id, info.event_type)
    """

    def on_workflow_started(self, info: WorkflowStartedInfo) -> Awaitable[None] | None: ...
    def on_workflow_admitted(self, info: WorkflowAdmittedInfo) -> Awaitable[None] | None: ...
    def on_workflow_continued(self, info: WorkflowContinuedInfo) -> Awaitable[None] | None: ...
    def on_workflow_retried(self, info: WorkflowRetriedInfo) -> Awaitable[None] | None: ...
    def on_workflow_completed(self, info: WorkflowCompletedInfo) -> Awaitable[None] | None: ...
    def on_workflow_failed(self, info: WorkflowFailedInfo) -> Awaitable[None] | None: ...
    def on_workflow_cancelled(self, info: WorkflowCancelledInfo) -> Awaitable[None] | None: ...
    def on_workflow_blocked(self, info: WorkflowBlockedInfo) -> Awaitable[None] | None: ...
    def on_activity_started(self, info: ActivityStartedInfo) -> Awaitable[None] | None: ...
    def on_activity_completed(self, info: ActivityCompletedInfo) -> Awaitable[None] | None: ...
    def on_activity_failed(self, info: ActivityFailedInfo) -> Awaitable[None] | None: ...
    def on_activity_retrying(self, info: ActivityRetryingInfo) -> Awaitable[None] | None: ...
    def on_activity_lost(self, info: ActivityLostInfo) -> Awaitable[None] | None: ...
    def on_event_received(self, info: EventReceivedInfo) -> Awaitable[None] | None: ...
    def on_event_sent(self, info: EventSentInfo) -> Awaitable[None] | None: ...
    def on_wait_started(self, info: WaitStartedInfo) -> Awaitable[None] | None: ...
    def on_wait_completed(self, info: WaitCompletedInfo) -> Awaitable[None] | None: ...
    def on_wait_timed_out(self, info: WaitTimedOutInfo) -> Awaitable[None] | None: ...
    def on_timer_started(self, info: TimerStartedInfo) -> Awaitable[None] | None: ...
    def on_timer_fired(self, info: TimerFiredInfo) -> Awaitable[None] | None: ...
    def on_replay_started(self, info: ReplayStartedInfo) -> Awaitable[None] | None: ...
    def on_replay_completed(self, info: ReplayCompletedInfo) -> Awaitable[None] | None: ...
    def on_compensation_started(self, info: CompensationStartedInfo) -> Awaitable[None] | None: ...
    def on_compensation_completed(self, info: CompensationCompletedInfo) -> Awaitable[None] | None: ...
    def on_compensation_failed(self, info: CompensationFailedInfo) -> Awaitable[None] | None: ...
    def on_schedule_fired(self, info: ScheduleFiredInfo) -> Awaitable[None] | None: ...
    def on_schedule_skipped(self, info: ScheduleSkippedInfo) -> Awaitable[None] | None: ...
    def on_schedule_failed(self, info: ScheduleFailedInfo) -> Awaitable[None] | None: ...
    def on_inbox_refused(self, info: InboxRefusedInfo) -> Awaitable[None] | None: ...
