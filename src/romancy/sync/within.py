"""Verbs inside a transaction of the caller's own, for code that blocks. They run in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, TypeVarTuple, overload

from romancy import within
from romancy.api.context import WorkflowContext
from romancy.api.workflow import Workflow
from romancy.core.model import Attribute
from romancy.sync.verbs import Blocking, WorkflowHandle

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Ts = TypeVarTuple("Ts")


class PendingHandle(Generic[R_co]):
    """An instance that is started if and when a transaction commits. Before that there is nothing to wait for."""

    def __init__(self, owner: Blocking, pending: within.PendingHandle[R_co]) -> None:
        self._owner, self._pending = owner, pending

    def __repr__(self) -> str:
        return f"<PendingHandle {self.instance_id!r}>"

    @property
    def instance_id(self) -> str:
        """The id that the instance will have."""
        return self._pending.instance_id

    def handle(self) -> WorkflowHandle[R_co]:
        """Return the handle of the instance, for use after the commit."""
        return WorkflowHandle(self._owner, self._pending.handle())


class Within:
    """Returned by `app.within(connection)`: what you ask for happens if and when your transaction commits."""

    def __init__(self, owner: Blocking, desk: within.Desk, connection: object) -> None:
        self._owner, self._desk, self._guest = owner, desk, desk.receive(connection)
        if self._guest.is_async:
            raise TypeError("romancy.sync can't use an asynchronous connection; use romancy.App, or another driver")

    @overload
    def start_workflow(
        self,
        wf: Callable[[WorkflowContext, *Ts], Coroutine[Any, Any, R]],
        /,
        *args: *Ts,
        instance_id: str | None,
    ) -> PendingHandle[R]: ...
    @overload
    def start_workflow(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> PendingHandle[R]: ...
    @overload
    def start_workflow(
        self, wf: str, /, *args: Any, instance_id: str | None = None, **kwargs: Any
    ) -> PendingHandle[Any]: ...
    def start_workflow(self, wf: Any, /, *args: Any, instance_id: str | None = None, **kwargs: Any) -> Any:
        """Start an instance with the commit. If its id is taken by then, with another input, the start is refused.

        It receives the events that are accepted from now on.
        """
        row, pending = self._desk.start(wf, args, kwargs, instance_id)
        self._guest.leave(self._desk.runtime.inbox, row)
        return PendingHandle[Any](self._owner, pending)

    def send_event(
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
        self._guest.leave(self._desk.runtime.inbox, self._desk.event(type, source, data, subject, id, to, extensions))
