"""The verbs that `App` and `Client` share: everything an app can do, locally or over the network.

Code that works with either of them (the blocking classes, the command line) uses these, and need not know which it has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from romancy.api.workflow import Workflow
from romancy.core.model import Attribute, Duration, Scalar, Status
from romancy.core.schedules import Schedule
from romancy.desk import WorkerRecord
from romancy.emission_records import Emission
from romancy.inventory import OLD
from romancy.question_verbs import QuestionRecord
from romancy.records import (
    BulkResult,
    Event,
    EventRecord,
    HeldEvents,
    HistoryEntry,
    InboxRecord,
    Instance,
    InstanceFilter,
    Page,
    QueueRecord,
    Receipt,
    ScheduleRecord,
    Wait,
)
from romancy.reruns import Steps
from romancy.sink_records import DeadLetter, SinkRecord

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
P = ParamSpec("P")


class Handle(Protocol[R_co]):
    """One instance: get its status, wait for its result, cancel it."""

    instance_id: str
    created: bool

    async def result(self, timeout: Duration | None = None) -> R_co: ...
    async def status(self) -> Status: ...
    async def cancel(self, reason: str | None = None) -> bool: ...
    @overload
    async def view(self, model: type[T], /) -> T: ...
    @overload
    async def view(self, /) -> Any: ...
    async def retry(self) -> Handle[R_co]: ...
    @overload
    def emitted(self, topic: str | None = None, /, *, model: type[T], after: int = 0) -> AsyncIterator[Emission[T]]: ...
    @overload
    def emitted(self, topic: str | None = None, /, *, after: int = 0) -> AsyncIterator[Emission[Any]]: ...


class Verbs(Protocol):
    """Start, send, cancel, resume, retry and read."""

    def start_workflow(self, wf: Any, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Handle[Any]]: ...
    @overload
    def handle(self, instance_id: str, wf: Workflow[..., Any], /) -> Handle[Any]: ...
    @overload
    def handle(self, instance_id: str, /) -> Handle[Any]: ...

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
    ) -> Receipt: ...

    async def send_events(self, events: Sequence[Event], /) -> list[Receipt]: ...

    async def cancel_workflow(self, instance_id: str, *, reason: str | None = None) -> bool: ...
    async def resume_workflow(self, instance_id: str) -> bool: ...
    async def retry_now(self, instance_id: str) -> bool: ...
    @overload
    def retry_workflow(
        self, instance_id: str, wf: Workflow[..., Any], /, *, steps: Steps = None
    ) -> Coroutine[Any, Any, Handle[Any]]: ...
    @overload
    def retry_workflow(self, instance_id: str, /, *, steps: Steps = None) -> Coroutine[Any, Any, Handle[Any]]: ...
    def fork_workflow(
        self, instance_id: str, /, *, at: int = 0, new_id: str | None = None
    ) -> Coroutine[Any, Any, Handle[Any]]: ...
    async def cancel_workflows(
        self, *, reason: str | None = None, limit: int | None = None, **which: Unpack[InstanceFilter]
    ) -> BulkResult: ...
    async def resume_workflows(self, *, limit: int | None = None, **which: Unpack[InstanceFilter]) -> BulkResult: ...
    async def retry_workflows(self, *, limit: int | None = None, **which: Unpack[InstanceFilter]) -> BulkResult: ...
    async def get_instance(self, instance_id: str) -> Instance: ...
    async def get_history(self, instance_id: str) -> list[HistoryEntry]: ...

    async def list_instances(
        self,
        *,
        status: Status | Collection[Status] = (),
        workflow: str | None = None,
        where: Mapping[str, Scalar] | None = None,
        text: str | None = None,
        error_type: str | None = None,
        parent: str | None = None,
        queue: str | None = None,
        key: str | None = None,
        started_after: datetime | None = None,
        started_before: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Instance]: ...

    async def count_instances(self, **which: Unpack[InstanceFilter]) -> int: ...

    async def list_workers(self) -> list[WorkerRecord]: ...

    async def list_queues(self) -> list[QueueRecord]: ...

    async def list_waits(
        self, *, instance_id: str | None = None, type: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Wait]: ...

    async def list_events(
        self,
        *,
        type: str | None = None,
        instance_id: str | None = None,
        unmatched: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[EventRecord]: ...

    async def set_schedule(
        self, name: str, schedule: str | Schedule, wf: Workflow[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> None: ...
    async def pause_schedule(self, name: str) -> None: ...
    async def resume_schedule(self, name: str) -> None: ...
    def trigger_schedule(self, name: str) -> Coroutine[Any, Any, Handle[Any]]: ...
    async def delete_schedule(self, name: str) -> None: ...
    async def list_schedules(self) -> list[ScheduleRecord]: ...

    async def list_inbox(self, *, limit: int = 50, cursor: str | None = None) -> Page[InboxRecord]: ...
    async def forget_refused(self, number: int) -> bool: ...
    async def list_held_events(self, *, older_than: Duration = OLD) -> list[HeldEvents]: ...

    async def list_questions(self, *, limit: int = 50, cursor: str | None = None) -> Page[QuestionRecord]: ...
    async def answer_question(
        self, instance_id: str, person: str, data: object, *, ask_id: str | None = None, by: str | None = None
    ) -> None: ...

    async def list_sinks(self) -> list[SinkRecord]: ...
    async def list_dead_letters(
        self, sink: str | None = None, /, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetter]: ...
    async def retry_dead_letters(self, sink: str, /, *, limit: int | None = None) -> int: ...
