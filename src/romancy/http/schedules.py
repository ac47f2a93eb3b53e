"""The control API for schedules."""

from __future__ import annotations

from typing import Any

from romancy.core.actor import current_actor
from romancy.core.ids import is_text
from romancy.core.schedules import Schedule
from romancy.core.versions import split_name, stored_name
from romancy.engine.timetable import make_order
from romancy.errors import InvalidInput, ScheduleNotFound
from romancy.http import schemas
from romancy.http.control import arguments, queued
from romancy.http.responses import Response, json_answer
from romancy.http.routes import Request, Route
from romancy.http.serialize import schedule_item


async def list_schedules(request: Request) -> Response:
    """All schedules, by name."""
    return json_answer(200, {"items": [schedule_item(record) for record in await request.app.list_schedules()]})


async def set_schedule(request: Request) -> Response:
    """Start a workflow again and again. If the schedule exists, it is changed; if it is paused, it stays so."""
    name, body = request.path["name"], request.body
    if not is_text(body.workflow):
        raise InvalidInput(f"the name of a workflow must be valid text, got {body.workflow!r}")
    definition = request.runtime.registry.latest(body.workflow)
    workflow = definition.name if definition else stored_name(*split_name(body.workflow))
    try:
        queued(request, body.workflow)  # checks its key and priority
        call, timeout = arguments(definition, body), definition and definition.timeout
        options = body.key, body.priority
        order = make_order(name, _schedule(body), definition, workflow, call, timeout, options)
        await _store(request, request.runtime.engine.timetable.put(order), "set")
    except ValueError as error:
        raise error if isinstance(error, InvalidInput) else InvalidInput(str(error)) from error
    return await _current(request, name)


def _schedule(body: schemas.ScheduleBody) -> Schedule:
    others = {"cron", "workflow", "args", "kwargs", "key", "priority"}
    given: dict[str, Any] = body.model_dump(exclude=others, exclude_none=True)
    return Schedule(body.cron, **given) if body.cron is not None else Schedule(**given)


async def pause_schedule(request: Request) -> Response:
    """Pause a schedule: until it is resumed, it starts nothing."""
    await _store(request, request.app.pause_schedule(request.path["name"]), "paused")
    return await _current(request, request.path["name"])


async def resume_schedule(request: Request) -> Response:
    """Let a paused schedule go on with its next tick. Ticks that passed meanwhile are dropped."""
    await _store(request, request.app.resume_schedule(request.path["name"]), "resumed")
    return await _current(request, request.path["name"])


async def trigger_schedule(request: Request) -> Response:
    """Start an instance of a schedule now, even if it is paused or one is running."""
    engine, name = request.runtime.engine, request.path["name"]
    id, _ = await _store(
        request, engine.timetable.trigger(name, request.body.instance_id, current_actor()), "triggered"
    )
    engine.kick()
    return json_answer(201, {"instance_id": id})


async def delete_schedule(request: Request) -> Response:
    """Delete a schedule. Its instances go on. One that is declared in code is refused."""
    await _store(request, request.app.delete_schedule(request.path["name"]), "deleted")
    return json_answer(200, {"name": request.path["name"]})


async def _store(request: Request, write: Any, done: str) -> Any:
    unknown = f"; it is unknown whether the schedule was {done}: look before you try again"
    return await request.backpressure.store(write, request.size, unknown)


async def _current(request: Request, name: str) -> Response:
    for record in await request.app.list_schedules():
        if record.name == name:
            return json_answer(200, schedule_item(record))
    raise ScheduleNotFound(name=name)


_NAME = "/api/schedules/{name}"
_ITEM = {200: schemas.ScheduleItem}
ROUTES = (
    Route("GET", "/api/schedules", list_schedules, {200: schemas.Schedules}),
    Route("POST", f"{_NAME}/set", set_schedule, _ITEM, scope="control", body=schemas.ScheduleBody),
    Route("POST", f"{_NAME}/delete", delete_schedule, {200: schemas.Named}, [404], scope="control"),
    Route("POST", f"{_NAME}/pause", pause_schedule, _ITEM, [404], scope="control"),
    Route("POST", f"{_NAME}/resume", resume_schedule, _ITEM, [404], scope="control"),
    Route(
        "POST",
        f"{_NAME}/trigger",
        trigger_schedule,
        {201: schemas.Started},
        [404],
        scope="control",
        body=schemas.TriggerBody,
    ),
)
