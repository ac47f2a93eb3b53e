"""Starts: from a workflow and its arguments to a new instance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import MappingProxyType
from typing import Any, TypeVar, cast

from romancy.api.workflow import Workflow, definition_of, queue_options, start_options
from romancy.core.actor import current_actor
from romancy.core.codec import Codec
from romancy.core.ids import check_id, check_name, new_id
from romancy.core.inputs import declared_by, write_input
from romancy.core.model import ReceivedEvent
from romancy.core.places import place_of
from romancy.core.registry import WorkflowDefinition
from romancy.core.versions import bare_name, split_name, stored_name
from romancy.engine import Engine
from romancy.engine.around import Around, checked, incoming
from romancy.errors import InstanceExists, InvalidInput
from romancy.middleware import StartRequest
from romancy.runtime import Runtime
from romancy.storage.batch import Start

T = TypeVar("T")


def prepare(
    runtime: Runtime, wf: Any, args: tuple[Any, ...], kwargs: dict[str, Any], instance_id: str | None
) -> tuple[Start, WorkflowDefinition | None]:
    """Return a start, checked, and the definition of its workflow, if it is registered here."""
    own: tuple[str | None, int | None] = (None, None)
    if isinstance(wf, Workflow):
        given = cast("Workflow[..., Any]", wf)
        definition, (chosen_id, timeout) = definition_of(given), start_options(given)
        name, instance_id = given.name, chosen_id if instance_id is None else instance_id
        runtime.registry.check(definition)
        if runtime.works:  # without a worker it would not run here anyway
            runtime.registry.require(name)
        if definition.queue is not None:
            own = queue_options(given)
    elif isinstance(wf, str):
        definition = runtime.registry.latest(check_name(wf))
        name = definition.name if definition else stored_name(*split_name(wf))
        timeout = definition.timeout if definition else None
    else:
        raise TypeError(f"start_workflow takes a workflow or its name, not {wf!r}; is @workflow missing?")
    if definition is not None and definition.on_event:
        _check_event(definition, args, kwargs)
    now = runtime.clock.now()
    id = new_id(now) if instance_id is None else check_id(instance_id)
    kind, raw = write_input(definition, name, args, kwargs)
    start = Start(id, name, raw, kind, now, None if timeout is None else now + timeout, who=current_actor())
    if definition is not None and definition.attributes is not None:
        start.attributes = declared_by(definition, kind, raw)
    if definition is not None and definition.queue is not None:
        start.place = place_of(definition, kind, raw, *own)
        start.created_at = runtime.registry.arrivals.next(now)
    return start, definition


def _check_event(definition: WorkflowDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if len(args) + len(kwargs) != 1 or not isinstance(next(iter([*args, *kwargs.values()])), ReceivedEvent):
        types = " or ".join(definition.on_event)
        raise InvalidInput(
            f"workflow {definition.name!r} is started by events; send one of type {types} with app.send_event(...)"
        )


def to_request(start: Start, definition: WorkflowDefinition | None, args: Any, kwargs: dict[str, Any]) -> StartRequest:
    """Return a start as middleware sees it, with the trace of the request that it comes from."""
    if definition is not None:
        given = definition.signature.bind(args, kwargs)
    else:
        given = {**{str(n): value for n, value in enumerate(args)}, **kwargs}
    return StartRequest(start.workflow, start.id, MappingProxyType(given), dict(incoming.get()))


async def around_start(around: Around, start: Start, request: StartRequest, inner: Callable[[], Awaitable[T]]) -> T:
    """Run middleware around a start, and store the headers with it that are set when it calls `inner`."""

    async def begin() -> T:
        start.headers = checked(request.headers) or None
        return await inner()

    return await around.start(request, begin)


def check_handle(returned: Any) -> Any:
    """Return the handle that middleware returns; raise `TypeError` if it is none, because the caller needs one."""
    if not hasattr(returned, "instance_id"):
        raise TypeError(f"around_start must return what call_next() returned, or another handle, not {returned!r}")
    return returned


def is_named(wf: Any, instance_id: str | None) -> bool:
    """Return whether the caller has chosen the id of an instance, so that it may exist."""
    return instance_id is not None or (isinstance(wf, Workflow) and start_options(cast("Any", wf))[0] is not None)


async def store(
    engine: Engine, start: Start, definition: WorkflowDefinition | None, may_exist: bool
) -> tuple[Codec | None, bool]:
    """Store a start, or find the same one. Return the type of its result, and whether it is new.

    Raise `InstanceExists` if another one has its id.
    """
    if start.place is None or definition is None or definition.queue is None:
        answer = await engine.start_instance(start)
    else:
        answer = await engine.start_queued(start, definition.queue, may_exist=may_exist)
    if not answer.created and not answer.same:
        is_other = bare_name(answer.workflow) != bare_name(start.workflow)
        other = f"with a different {f'workflow ({answer.workflow})' if is_other else 'input'}"
        if answer.unread is not None:
            other = f"and its input can't be compared: {answer.unread}"
        raise InstanceExists(
            f"instance {start.id!r} already exists {other}",
            instance_id=start.id,
            advice=f"use another instance_id, or app.handle({start.id!r}) for the one that exists",
        )
    if not answer.created:  # perhaps an earlier version, with another result
        definition = engine.registry.get(answer.workflow) or definition
    return definition.signature.result if definition else None, answer.created
