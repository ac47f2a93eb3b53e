"""A handle for one instance: query its status, wait for its result, cancel it."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar, overload

from romancy.core.codec import Codec
from romancy.core.ids import check_lookup
from romancy.core.model import Duration, Status, duration_us
from romancy.core.published import read_view
from romancy.errors import InstanceNotFound
from romancy.records import Instance
from romancy.runtime import Runtime

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
_PLAIN = Codec(Any, "the result")


class _Service(Protocol):
    """The part of the service that a handle uses."""

    async def get_instance(self, instance_id: str) -> Instance: ...
    async def cancel_workflow(self, instance_id: str, *, reason: str | None = None) -> bool: ...
    async def retry_workflow(self, instance_id: str, /) -> object: ...


class WorkflowHandle(Generic[R_co]):
    """Returned by `app.start_workflow`. `created` is false if the instance already existed."""

    def __init__(
        self,
        service: _Service,
        runtime: Runtime,
        instance_id: str,
        result: Codec | None = None,
        created: bool = False,
    ) -> None:
        self.instance_id = instance_id
        self.created = created
        self._service, self._runtime = service, runtime
        self._codec = result or _PLAIN

    def __repr__(self) -> str:
        return f"<WorkflowHandle {self.instance_id!r}>"

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the workflow to end and return its result.

        Raise `WorkflowFailed`, `WorkflowCancelled` or `WorkflowBlocked` if there is none, and `TimeoutError` after
        `timeout`; the instance then keeps running.
        """
        engine = self._runtime.engine
        check_lookup(self.instance_id)
        seconds = None if timeout is None else duration_us(timeout, "timeout") / 1e6
        try:
            outcome = await engine.ending(self.instance_id, seconds)
        except TimeoutError:
            raise TimeoutError(
                f"instance {self.instance_id!r} did not end within {seconds:g} s; it keeps running"
            ) from None
        return outcome.result(self.instance_id, self._codec)

    async def status(self) -> Status:
        """Return the current status."""
        return (await self._service.get_instance(self.instance_id)).status

    @overload
    async def view(self, model: type[T], /) -> T: ...
    @overload
    async def view(self, /) -> Any: ...
    async def view(self, model: Any = Any, /) -> Any:
        """Return what the workflow last gave to `ctx.set_view`; None if it has not set a view.

        >>> await handle.view(Progress)
        Progress(done=3, total=10)

        Without a model, the view is plain JSON.
        """
        check_lookup(self.instance_id)
        found = await self._runtime.engine.storage.catalog.view(self.instance_id)
        if found is None:
            raise InstanceNotFound(instance_id=self.instance_id)
        return read_view(found[0], model, self.instance_id)

    async def cancel(self, reason: str | None = None) -> bool:
        """Request cancellation; the code sees `asyncio.CancelledError` and can clean up. False if already ended."""
        return await self._service.cancel_workflow(self.instance_id, reason=reason)

    async def retry(self) -> WorkflowHandle[R_co]:
        """Let the instance go on after it failed or was cancelled, as `app.retry_workflow` does. Return a handle."""
        await self._service.retry_workflow(self.instance_id)
        return WorkflowHandle(self._service, self._runtime, self.instance_id, self._codec)
