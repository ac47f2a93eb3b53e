"""The control API: reads instances, waits and events; starts, cancels, resumes and retries instances."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from typing_extensions import TypedDict

from romancy.api.workflow import Workflow
from romancy.bulk import BulkVerb, Part, add_up, cancelling, parts, resuming, retrying
from romancy.core.ids import new_id
from romancy.core.model import FINAL, STOPPED
from romancy.core.redaction import redacting
from romancy.core.registry import WorkflowDefinition
from romancy.core.signature import Signature
from romancy.cursors import read_cursor, write_cursor
from romancy.engine.around import incoming
from romancy.errors import InvalidInput
from romancy.http import schemas, serialize
from romancy.http.pages import paged
from romancy.http.responses import ClientGone, HTTPError, Response, json_answer, to_json
from romancy.http.routes import Request, Route
from romancy.records import (
    BulkResult,
    InstanceFilter,
    to_queue_record,
)
from romancy.searches import FILTERS, some, to_search


class ActItem(TypedDict):
    verb: str
    who: str
    at: schemas.Time


class InstanceWithWaits(schemas.InstanceItem):
    waits: list[schemas.WaitItem]
    acts: list[ActItem]


# --- reading --------------------------------------------------------------------------------------------------------
async def list_instances(request: Request) -> Response:
    """Instances, newest first."""
    query: schemas.InstancesQuery = request.query
    filters = query.model_dump(exclude_none=True)
    return await paged(request.app.list_instances, filters, serialize.instance_item)


async def list_waits(request: Request) -> Response:
    """Open waits, by instance."""
    query: schemas.WaitsQuery = request.query
    return await paged(request.app.list_waits, query.model_dump(), serialize.wait_item)


async def list_events(request: Request) -> Response:
    """The event log, newest first, with the instances that received each event."""
    query: schemas.EventsQuery = request.query
    return await paged(request.app.list_events, query.model_dump(), serialize.event_item)


async def list_queues(request: Request) -> Response:
    """Queues, by name: how many instances run, and how many wait."""
    limit, after = request.query.limit, read_cursor(request.query.cursor, str)
    catalog, known = request.runtime.engine.storage.catalog, request.runtime.registry.queues
    rows = await catalog.queues(known, after[0] if after else "", limit)
    items = [serialize.queue_item(to_queue_record(row)) for row in rows]
    return json_answer(200, {"items": items, "cursor": write_cursor((rows[-1][0],) if len(rows) == limit else None)})


async def get_instance(request: Request) -> Response:
    """One instance, with its open waits, and who did what to it."""
    instance = await request.app.get_instance(request.path["instance_id"])
    waits = list(map(serialize.wait_item, instance.waits))
    acts: list[ActItem] = [{"verb": a.verb, "who": a.who, "at": serialize.time_text(a.at)} for a in instance.acts]
    return json_answer(200, {**serialize.instance_item(instance), "waits": waits, "acts": acts})


async def get_history(request: Request) -> Response:
    """The history of an instance, in order; the first entry is its start."""
    id = request.path["instance_id"]
    entries = await request.app.get_history(id)
    return json_answer(200, {"instance_id": id, "entries": list(map(serialize.entry_item, entries))})


async def get_result(request: Request) -> Response:
    """The status of an instance, and its result once it has ended. With `timeout`, waits that long for the end.

    Answers early, with the current status, when the server is about to stop.
    """
    id, query = request.path["instance_id"], request.query
    with redacting(None):  # code gets this
        instance = await request.app.get_instance(id)
        if query.timeout and instance.status not in STOPPED:
            await _end_of(id, request, query.timeout)
            instance = await request.app.get_instance(id)
    if _is_sealed(instance.output) or (instance.error is not None and _is_sealed(instance.error["message"])):
        await request.runtime.engine.storage.catalog.exact.instance(id)  # says why it can't be opened
    standing = {"instance_id": id, "status": instance.status}
    return json_answer(200, {**standing, "output": instance.output, "error": instance.error})


def _is_sealed(value: object) -> bool:
    """Return whether this may be what is shown in place of a value."""
    return isinstance(value, str) and value.startswith("sealed (")


async def _end_of(id: str, request: Request, timeout: float) -> None:
    """Wait until the instance ends, the time is up, the server stops, or the client disconnects."""
    ending = asyncio.ensure_future(request.runtime.engine.ending(id))
    others = [asyncio.ensure_future(request.stopping.wait()), asyncio.ensure_future(request.gone())]
    try:
        with request.resting():
            done, _ = await asyncio.wait({ending, *others}, timeout=timeout, return_when="FIRST_COMPLETED")
        if ending in done:
            ending.result()  # the app may have been stopped
        elif others[1] in done:
            raise ClientGone
    finally:
        for task in (ending, *others):
            task.cancel()


async def list_workflows(request: Request) -> Response:
    """The workflows registered in this process."""
    return json_answer(200, {"items": [_workflow(known) for known in request.runtime.registry.definitions.values()]})


def _workflow(definition: WorkflowDefinition) -> schemas.WorkflowItem:
    return {
        "name": definition.name,
        "description": (inspect.getdoc(definition.fn) or "").partition("\n")[0],
        "parameters": list(definition.signature.names),
        "on_event": list(definition.on_event),
    }


# --- actions --------------------------------------------------------------------------------------------------------
async def start_workflow(request: Request) -> Response:
    """Start a workflow by name. If it is not registered here, the worker that has it checks the arguments."""
    app, name, body = request.app, request.path["name"], request.body
    args, kwargs = arguments(request.runtime.registry.latest(name), body)
    id = new_id(request.runtime.clock.now()) if body.instance_id is None else body.instance_id
    unknown = f"; it is unknown whether the workflow was started: try again with the instance_id {id!r}"
    trace = incoming.set(request.trace)
    try:
        starting = app.start_workflow(queued(request, name), *args, instance_id=id, **kwargs)
        handle = await request.backpressure.store(starting, request.size, unknown)
    except PermissionError as refusal:  # of middleware
        raise HTTPError(403, str(refusal) or "this start was refused", kind="Forbidden") from refusal
    finally:
        incoming.reset(trace)
    return json_answer(201 if handle.created else 200, {"instance_id": handle.instance_id})


def queued(request: Request, name: str) -> Any:
    """The workflow with the key and the priority of this start; its name if it has none of its own."""
    key, priority = request.body.key, request.body.priority
    if key is None and priority is None:
        return name
    definition = request.runtime.registry.latest(name)
    if definition is None or definition.queue is None:
        raise InvalidInput(f"no workflow {name!r} with a queue is registered here, so key and priority mean nothing")
    return Workflow[..., Any](definition).options(key=key, priority=priority)


def arguments(
    definition: WorkflowDefinition | None, body: schemas.StartBody | schemas.ScheduleBody
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Decode JSON arguments by the workflow's annotations; unchanged if the workflow is not known here."""
    if "instance_id" in body.kwargs:
        raise InvalidInput("instance_id is not an argument of a workflow; put it next to args and kwargs")
    if definition is None:
        return tuple(body.args), body.kwargs
    if definition.on_event:
        types = " or ".join(definition.on_event)
        raise InvalidInput(f"workflow {definition.name!r} is started by events; POST an event of type {types} to /")
    given = _given(definition, body)
    return definition.signature.decode_given(to_json(given))


def _given(definition: WorkflowDefinition, body: schemas.StartBody | schemas.ScheduleBody) -> dict[str, Any]:
    """The arguments by parameter name, without defaults, which are not JSON."""
    signature: Signature = definition.signature
    signature.bind(tuple(body.args), body.kwargs)  # raises a clear error if arguments are missing or too many
    _, *parameters = inspect.signature(definition.fn).parameters.values()
    return dict(inspect.Signature(parameters).bind(*body.args, **body.kwargs).arguments)


async def cancel(request: Request) -> Response:
    """Cancel an instance; its code can clean up first. 409 if it has already ended."""
    app, id = request.app, request.path["instance_id"]
    if (before := await app.get_instance(id)).status in FINAL:
        raise _conflict(id, before.status, "has already ended; there is nothing to cancel")
    unknown = "; it is unknown whether the instance was cancelled: try again"
    done = await request.backpressure.store(app.cancel_workflow(id, reason=request.body.reason), request.size, unknown)
    after = await app.get_instance(id)
    if not done or (after.status in FINAL and after.status != "cancelled"):
        raise _conflict(id, after.status, "ended before it could be cancelled")
    return json_answer(200, {"instance_id": id, "status": after.status})


async def resume(request: Request) -> Response:
    """Run a blocked instance again, after you fix its code. 409 if it is not blocked."""
    app, id = request.app, request.path["instance_id"]
    unknown = "; it is unknown whether the instance was resumed: try again"
    done = await request.backpressure.store(app.resume_workflow(id), 0, unknown)
    after = await app.get_instance(id)
    if not done:
        raise _conflict(id, after.status, "is not blocked; there is nothing to resume")
    return json_answer(200, {"instance_id": id, "status": after.status})


async def retry(request: Request) -> Response:
    """Let an instance that failed or was cancelled go on from what led to its end. 409 if that is not possible."""
    app, id = request.app, request.path["instance_id"]
    unknown = "; it is unknown whether the instance was retried: look at its status before you try again"
    await request.backpressure.store(app.retry_workflow(id, steps=request.body.steps), request.size, unknown)
    return json_answer(200, {"instance_id": id, "status": (await app.get_instance(id)).status})


async def fork(request: Request) -> Response:
    """Start a new instance that begins with the history of another one, up to the entry with the number `at`."""
    app, id, body = request.app, request.path["instance_id"], request.body
    copy = new_id(request.runtime.clock.now()) if body.new_id is None else body.new_id
    unknown = f"; it is unknown whether the instance was forked: see whether the instance {copy!r} exists"
    handle = await request.backpressure.store(app.fork_workflow(id, at=body.at, new_id=copy), request.size, unknown)
    return json_answer(201, {"instance_id": handle.instance_id})


async def count_instances(request: Request) -> Response:
    """How many instances match the filters."""
    query: schemas.CountQuery = request.query
    return json_answer(200, {"count": await request.app.count_instances(**_filters(query))})


async def cancel_many(request: Request) -> Response:
    """Cancel all instances that match the filters, newest first.

    Each request handles a part of them. Repeat it with the `cursor` of the answer until that is null, with the same
    filters, and with `limit` reduced by what has been changed.
    """
    return await _act(request, "cancel", cancelling(request.runtime.engine, request.body.reason))


async def resume_many(request: Request) -> Response:
    """Run all blocked instances that match the filters again, newest first.

    Each request handles a part of them, as for `/api/instances/cancel`.
    """
    return await _act(request, "resume", resuming(request.runtime.engine))


async def retry_many(request: Request) -> Response:
    """Retry all failed and cancelled instances that match the filters, newest first.

    Each request handles a part of them, as for `/api/instances/cancel`.
    """
    return await _act(request, "retry", retrying(request.runtime.engine))


async def _act(request: Request, name: str, verb: BulkVerb) -> Response:
    body: schemas.BulkBody = request.body
    search = to_search(some(_filters(body), f"to {name} many instances"))
    catalog, start = request.runtime.engine.storage.catalog, read_cursor(body.cursor, int, str)
    position = None if start is None else (start[0], start[1])
    act = _some_parts(parts(catalog, search, verb, body.limit, position, dry_run=body.dry_run))
    unknown = f"; it is unknown which instances it could {name}: try again"
    done = await request.backpressure.store(act, request.size, unknown)
    result = done.result
    counts = {"matched": result.matched, "changed": result.changed, "errors": dict(result.errors)}
    return json_answer(200, {**counts, "cursor": write_cursor(done.cursor)})


async def _some_parts(found: AsyncGenerator[Part]) -> Part:
    """Do as much as fits into one request."""
    last: Part | None = None
    results: list[BulkResult] = []
    async with aclosing(found):
        async for last in found:
            results.append(last.result)
            if len(results) == _PARTS:
                break
    return Part(add_up(results), last and last.cursor)


def _filters(query: schemas.CountQuery) -> InstanceFilter:
    given = {name: getattr(query, name) for name in FILTERS}
    return cast("InstanceFilter", given)


def _conflict(id: str, status: str, text: str) -> HTTPError:
    return HTTPError(409, f"instance {id!r} ({status}) {text}", kind="Conflict", more={"status": status})


_PARTS = 10
"""Parts of many instances that one request handles."""
_ID = "/api/instances/{instance_id}"
ROUTES = (
    Route("GET", "/api/instances", list_instances, {200: schemas.InstancePage}, query=schemas.InstancesQuery),
    Route("GET", _ID, get_instance, {200: InstanceWithWaits}, [404]),
    Route("GET", f"{_ID}/history", get_history, {200: schemas.History}, [404]),
    Route("GET", f"{_ID}/result", get_result, {200: schemas.Result}, [404], query=schemas.ResultQuery, patience=70),
    Route("POST", f"{_ID}/resume", resume, {200: schemas.Standing}, [404, 409], scope="control"),
    Route(
        "POST",
        f"{_ID}/retry",
        retry,
        {200: schemas.Standing},
        [404, 409],
        scope="control",
        body=schemas.RetryBody,
    ),
    Route("POST", f"{_ID}/fork", fork, {201: schemas.Started}, [404, 409], scope="control", body=schemas.ForkBody),
    Route("GET", "/api/instance-count", count_instances, {200: schemas.Count}, query=schemas.CountQuery),
    Route(
        "POST",
        "/api/instances/cancel",
        cancel_many,
        {200: schemas.BulkItem},
        scope="control",
        body=schemas.BulkCancelBody,
    ),
    Route(
        "POST", "/api/instances/resume", resume_many, {200: schemas.BulkItem}, scope="control", body=schemas.BulkBody
    ),
    Route("POST", "/api/instances/retry", retry_many, {200: schemas.BulkItem}, scope="control", body=schemas.BulkBody),
    Route("GET", "/api/waits", list_waits, {200: schemas.WaitPage}, query=schemas.WaitsQuery),
    Route("GET", "/api/events", list_events, {200: schemas.EventPage}, query=schemas.EventsQuery),
    Route("GET", "/api/queues", list_queues, {200: schemas.Queues}, query=schemas.QueuesQuery),
    Route("GET", "/api/workflows", list_workflows, {200: schemas.Workflows}),
    Route(
        "POST",
        "/api/workflows/{name}/start",
        start_workflow,
        {200: schemas.Started, 201: schemas.Started},
        [409],
        scope="control",
        body=schemas.StartBody,
    ),
    Route(
        "POST",
        "/cancel/{instance_id}",
        cancel,
        {200: schemas.Standing},
        [404, 409],
        scope="control",
        body=schemas.CancelBody,
    ),
)
