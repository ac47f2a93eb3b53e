"""Starts: from a workflow and its arguments to a new instance."""

from __future__ import annotations

from typing import Any, cast

from romancy.api.workflow import Workflow, definition_of, queue_options, start_options
from romancy.core.actor import current_actor
from romancy.core.ids import check_id, is_text, new_id
from romancy.core.inputs import declared_by, write_input
from romancy.core.places import place_of
from romancy.core.registry import WorkflowDefinition
from romancy.core.versions import bare_name, split_name, stored_name
from romancy.engine import Engine
from romancy.errors import InstanceExists, InvalidInput
from romancy.runtime import Runtime
from romancy.storage.batch import Start, StartAnswer


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
        if not (wf and is_text(wf) and "\0" not in wf):
            raise InvalidInput(f"the name of a workflow must be a non-empty string, got {wf!r}")
        definition = runtime.registry.latest(wf)
        name = definition.name if definition else stored_name(*split_name(wf))
        timeout = definition.timeout if definition else None
    else:
        raise TypeError(f"start_workflow takes a workflow or its name, not {wf!r}; is @workflow missing?")
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


def is_named(wf: Any, instance_id: str | None) -> bool:
    """Return whether the caller has chosen the id of an instance, so that it may exist."""
    return instance_id is not None or (isinstance(wf, Workflow) and start_options(cast("Any", wf))[0] is not None)


async def store(engine: Engine, start: Start, definition: WorkflowDefinition | None, *, may_exist: bool) -> StartAnswer:
    """Store a start, or find the same one. Raise `InstanceExists` if another one has its id."""
    if start.place is None or definition is None or definition.queue is None:
        answer = await engine.start_instance(start)
    else:
        answer = await engine.start_queued(start, definition.queue, may_exist=may_exist)
    if not answer.created and not answer.same:
        is_other = bare_name(answer.workflow) != bare_name(start.workflow)
        raise InstanceExists(
            f"instance {start.id!r} already exists with a different "
            f"{f'workflow ({answer.workflow})' if is_other else 'input'}",
            instance_id=start.id,
            advice="use another instance_id",
        )
    return answer
