"""A handle for one instance: query its status, wait for its result, cancel it. Also the verbs for schedules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from romancy.api.workflow import Workflow, definition_of, queue_options, start_options
from romancy.core.actor import current_actor
from romancy.core.codec import Codec
from romancy.core.ids import check_lookup
from romancy.core.model import Duration, Status, duration_us
from romancy.core.published import read_view
from romancy.core.schedules import Schedule, to_schedule
from romancy.emission_records import Emission
from romancy.emitted import follow
from romancy.engine.timetable import make_order
from romancy.errors import InstanceNotFound
from romancy.records import Instance, ScheduleRecord, to_schedule_record
from romancy.runtime import Runtime

P = ParamSpec("P")
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
        return read_view(await self._runtime.engine.found(self._read_view), model, self.instance_id)

    async def _read_view(self) -> bytes | None:
        found = await self._runtime.engine.storage.catalog.exact.view(self.instance_id)
        if found is None:
            raise InstanceNotFound(instance_id=self.instance_id)
        return found[0]

    @overload
    def emitted(self, topic: str | None = None, /, *, model: type[T], after: int = 0) -> AsyncIterator[Emission[T]]: ...
    @overload
    def emitted(self, topic: str | None = None, /, *, after: int = 0) -> AsyncIterator[Emission[Any]]: ...
    def emitted(self, topic: str | None = None, /, *, model: Any = Any, after: int = 0) -> AsyncIterator[Emission[Any]]:
        """Return what the instance has emitted on a topic, or on all, and then emits, until it has ended.

        >>> async for emission in handle.emitted("tokens", model=str, after=seen):
        ...     print(emission.n, emission.value)

        Values come in order, without gaps: `after=` the last number goes on where you were, in any process. If an
        activity is repeated, an emission of `kind="restart"` says to drop what that `activity_id` has emitted.
        """
        return follow(self._runtime.engine, self.instance_id, topic, model, after)

    async def cancel(self, reason: str | None = None) -> bool:
        """Request cancellation; the code sees `asyncio.CancelledError` and can clean up. False if already ended."""
        return await self._service.cancel_workflow(self.instance_id, reason=reason)

    async def retry(self) -> WorkflowHandle[R_co]:
        """Let the instance go on after it failed or was cancelled, as `app.retry_workflow` does. Return a handle."""
        await self._service.retry_workflow(self.instance_id)
        return WorkflowHandle(self._service, self._runtime, self.instance_id, self._codec)


class ScheduleVerbs:
    """The verbs for schedules: part of the service."""

    _runtime: Runtime

    async def set_schedule(
        self, name: str, schedule: str | Schedule, wf: Workflow[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Start a workflow again and again, with these arguments. The same name again changes the schedule.

        >>> await app.set_schedule("report-eu", Schedule("0 9 * * *", timezone="Europe/Berlin"), report, "eu")

        The change takes effect for ticks that are not due yet. A paused schedule stays paused. Raise `ValueError` if
        the schedule is declared in code, with `@workflow(schedule=...)`.
        """
        engine, registry = self._runtime.writer, self._runtime.registry
        if not isinstance(wf, Workflow):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"set_schedule takes a workflow, not {wf!r}; is @workflow missing?")
        given = cast("Workflow[..., Any]", wf)
        definition, (chosen_id, timeout) = definition_of(given), start_options(given)
        if chosen_id is not None:
            raise ValueError(
                f"the instances of schedule {name!r} get ids of their own; leave options(instance_id=) out"
            )
        registry.check(definition)
        if self._runtime.works:
            registry.require(given.name)
        call = args, cast("dict[str, Any]", kwargs)
        times, options = to_schedule(schedule), queue_options(given)
        await engine.timetable.put(make_order(name, times, definition, wf.name, call, timeout, options))

    async def pause_schedule(self, name: str) -> None:
        """Pause a schedule: until it is resumed, it starts nothing. Raise `ScheduleNotFound` if it does not exist."""
        await self._runtime.writer.timetable.pause(name, paused=True)

    async def resume_schedule(self, name: str) -> None:
        """Let a paused schedule go on with its next tick. Ticks that passed meanwhile are dropped."""
        await self._runtime.writer.timetable.pause(name, paused=False)

    async def trigger_schedule(self, name: str) -> WorkflowHandle[Any]:
        """Start an instance of a schedule now, even if it is paused or one is running. Its ticks stay as they are."""
        engine = self._runtime.writer
        id, workflow = await engine.timetable.trigger(name, who=current_actor())
        engine.kick()
        definition = self._runtime.registry.get(workflow)
        result = definition.signature.result if definition else None
        return WorkflowHandle(cast("_Service", self), self._runtime, id, result, created=True)

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule. Its instances go on. Raise `ValueError` if it is declared in code: it would come back."""
        await self._runtime.writer.timetable.delete(name)

    async def list_schedules(self) -> list[ScheduleRecord]:
        """Return all schedules, by name."""
        engine = self._runtime.engine
        if engine.is_undeclared:
            await engine.timetable.declare()
        return [to_schedule_record(row) for row in await engine.storage.schedules.all()]
