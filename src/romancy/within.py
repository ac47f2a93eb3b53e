"""Verbs inside a transaction of the caller's own: `app.within(connection)`.

They leave rows in the inbox, which a worker moves on after the commit (`engine/mover.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, TypeVarTuple, overload

from romancy.api.context import WorkflowContext
from romancy.api.workflow import Workflow
from romancy.core import model
from romancy.core.events import make_event
from romancy.core.model import Attribute
from romancy.core.new_events import Event, to_stored
from romancy.core.registry import WorkflowDefinition
from romancy.handle import WorkflowHandle
from romancy.runtime import Runtime
from romancy.starts import around_start, check_handle, to_request
from romancy.storage.batch import Start
from romancy.storage.guests import Guest, guest_for
from romancy.storage.inbox_items import event_row, start_row

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Ts = TypeVarTuple("Ts")
Prepared = tuple[Start, "WorkflowDefinition | None"]


class PendingHandle(Generic[R_co]):
    """An instance that is started if and when a transaction commits. Before that there is nothing to wait for."""

    def __init__(self, handle: WorkflowHandle[R_co]) -> None:
        self._handle = handle

    def __repr__(self) -> str:
        return f"<PendingHandle {self.instance_id!r}>"

    @property
    def instance_id(self) -> str:
        """The id that the instance will have."""
        return self._handle.instance_id

    def handle(self) -> WorkflowHandle[R_co]:
        """Return the handle of the instance, for use after the commit."""
        return self._handle


@dataclass(frozen=True)
class Desk:
    """Makes the rows of the inbox from what callers ask for. Does no I/O, so that it can be used in any thread."""

    service: Any
    runtime: Runtime
    wake: bool
    prepare: Callable[[Any, tuple[Any, ...], dict[str, Any], str | None], Prepared]

    def receive(self, connection: object) -> Guest:
        """Return a caller's connection, checked."""
        return guest_for(connection, self.runtime.inbox)

    def event(
        self,
        type: str,
        source: str,
        data: object,
        subject: str | None,
        id: str | None,
        to: str | None,
        extensions: Mapping[str, Attribute] | None,
    ) -> dict[str, Any]:
        """Return the row of an event, checked: an error of the database would abort the caller's transaction."""
        id = id if id is not None else uuid.uuid4().hex
        event = make_event(type, source, data, subject=subject, id=id, to=to, ext=extensions)
        return self.row_of_event(event)

    def row_of_event(self, event: model.Event) -> dict[str, Any]:
        """Return the row of an event that is made."""
        return self._placed(event_row(event, self.runtime.clock.now()))

    def start(
        self, wf: Any, args: tuple[Any, ...], kwargs: dict[str, Any], instance_id: str | None
    ) -> tuple[dict[str, Any], PendingHandle[Any]]:
        """Return the row of a start, checked, and its handle."""
        return self.row_of(*self.prepare(wf, args, kwargs, instance_id))

    def row_of(self, start: Start, definition: WorkflowDefinition | None) -> tuple[dict[str, Any], PendingHandle[Any]]:
        """Return the row of a start that is prepared, and its handle."""
        result = definition.signature.result if definition else None
        handle: WorkflowHandle[Any] = WorkflowHandle(self.service, self.runtime, start.id, result, created=True)
        return self._placed(start_row(start)), PendingHandle(handle)

    def _placed(self, row: dict[str, Any]) -> dict[str, Any]:
        inbox = self.runtime.inbox
        row = row if inbox.seal is None else inbox.seal(row)
        row |= inbox.place
        if not self.wake:
            row["channel"] = None
        return row


class Within:
    """Returned by `app.within(connection)`: what you ask for happens if and when your transaction commits."""

    def __init__(self, desk: Desk, connection: object) -> None:
        self._desk, self._guest = desk, desk.receive(connection)

    @overload
    async def start_workflow(
        self,
        wf: Callable[[WorkflowContext, *Ts], Coroutine[Any, Any, R]],
        /,
        *args: *Ts,
        instance_id: str | None,
    ) -> PendingHandle[R]: ...
    @overload
    async def start_workflow(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> PendingHandle[R]: ...
    @overload
    async def start_workflow(
        self, wf: str, /, *args: Any, instance_id: str | None = None, **kwargs: Any
    ) -> PendingHandle[Any]: ...
    async def start_workflow(self, wf: Any, /, *args: Any, instance_id: str | None = None, **kwargs: Any) -> Any:
        """Start an instance with the commit. If its id is taken by then, with another input, the start is refused.

        It receives the events that are accepted from now on.
        """
        around = self._desk.runtime.around
        start, definition = self._desk.prepare(wf, args, kwargs, instance_id)

        async def begin() -> PendingHandle[Any]:
            row, pending = self._desk.row_of(start, definition)
            await self._leave(row)
            return pending

        if not around.has_starts:
            return await begin()
        request = to_request(start, definition, args, kwargs)
        return check_handle(await around_start(around, start, request, begin))

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
    ) -> None:
        """Send an event with the commit. Events sent in this way are accepted in the order of their transactions."""
        id = id if id is not None else uuid.uuid4().hex
        row, around = self._desk.event(type, source, data, subject, id, to, extensions), self._desk.runtime.around
        if not around.has_sends:
            return await self._leave(row)

        async def send(event: Event) -> None:
            await self._leave(self._desk.row_of_event(to_stored(event)))

        await around.send(Event(type, source, data, subject=subject, id=id, to=to, extensions=extensions), send)

    async def _leave(self, row: dict[str, Any]) -> None:
        left = self._guest.leave(self._desk.runtime.inbox, row)
        if left is not None:
            await left
