"""A handle on one instance: ask how it stands, wait for its result, cancel it."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from romancy.core.codec import Codec
from romancy.core.ids import check_lookup
from romancy.core.model import Duration, Status, duration_us
from romancy.engine import Engine
from romancy.errors import WorkflowBlocked, WorkflowCancelled, WorkflowFailed
from romancy.records import Instance

R_co = TypeVar("R_co", covariant=True)
_PLAIN = Codec(Any, "the result")


class _Service(Protocol):
    """What a handle asks of the service that made it."""

    @property
    def engine(self) -> Engine: ...
    async def get_instance(self, instance_id: str) -> Instance: ...
    async def cancel_workflow(self, instance_id: str, *, reason: str | None = None) -> bool: ...


class WorkflowHandle(Generic[R_co]):
    """What `app.start_workflow` returns. `created` is false if the instance was there already."""

    def __init__(self, app: _Service, instance_id: str, result: Codec | None = None, created: bool = False) -> None:
        self.instance_id = instance_id
        self.created = created
        self._app = app
        self._codec = result or _PLAIN

    def __repr__(self) -> str:
        return f"<WorkflowHandle {self.instance_id!r}>"

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end: the workflow's return value, or `WorkflowFailed`, `WorkflowCancelled`, `WorkflowBlocked`.

        `TimeoutError` after `timeout`; the instance goes on.
        """
        engine = self._app.engine
        check_lookup(self.instance_id)
        seconds = None if timeout is None else duration_us(timeout, "timeout") / 1e6
        try:
            ending = await engine.ending(self.instance_id, seconds)
        except TimeoutError:
            raise TimeoutError(
                f"instance {self.instance_id!r} has not ended within {seconds:g} s; it goes on"
            ) from None
        if ending.status == "completed":
            return self._codec.decode(ending.output or b"null")
        failure = ending.error
        message, kind = (failure.message, failure.error_type) if failure else ("", "")
        if ending.status == "cancelled":
            reason = None if message == "cancelled" else message
            raise WorkflowCancelled(instance_id=self.instance_id, reason=reason)
        if ending.status == "blocked":
            raise WorkflowBlocked(instance_id=self.instance_id, reason=message)
        raise WorkflowFailed(
            message,
            instance_id=self.instance_id,
            error_type=kind,
            traceback=failure.traceback if failure else "",
        )

    async def status(self) -> Status:
        """How it stands now."""
        return (await self._app.get_instance(self.instance_id)).status

    async def cancel(self, reason: str | None = None) -> bool:
        """Ask it to stop; its code sees `asyncio.CancelledError` and may clean up. False: it had ended already."""
        return await self._app.cancel_workflow(self.instance_id, reason=reason)
