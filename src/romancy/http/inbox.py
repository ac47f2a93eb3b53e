"""The control API for what is kept aside: the inbox, and old events that open instances may still take."""

from __future__ import annotations

from romancy.http import schemas
from romancy.http.pages import paged
from romancy.http.responses import HTTPError, Response, json_answer
from romancy.http.routes import Request, Route
from romancy.http.serialize import time_text
from romancy.records import HeldEvents, InboxRecord


async def list_inbox(request: Request) -> Response:
    """What is in the inbox, oldest first: not yet taken in or, with `refused`, refused for that reason."""
    return await paged(request.app.list_inbox, request.query.model_dump(), _item)


async def forget_refused(request: Request) -> Response:
    """Remove a start or an event that was refused from the inbox. 404 if nothing with this number was refused."""
    text = request.path["number"]
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
    unknown = "; it is unknown whether it was removed: try again"
    if number is None or not await request.backpressure.store(request.app.forget_refused(number), 0, unknown):
        raise HTTPError(404, f"nothing in the inbox with the number {text[:50]!r} was refused", kind="NotFound")
    return json_answer(200, {"number": number})


async def list_held_events(request: Request) -> Response:
    """Old events that are kept because open instances may still take them, by type, with the oldest ones first.

    Up to 1,000,000 events are counted, of all types together. Those that were sent to one instance are listed apart, by
    type and instance; the oldest 10,000 of them are counted.
    """
    found = await request.app.list_held_events(older_than=request.query.older_than)
    return json_answer(200, {"items": list(map(_held, found))})


def _item(record: InboxRecord) -> schemas.InboxEntry:
    return {
        "number": record.number,
        "kind": record.kind,
        "at": time_text(record.at),
        "instance_id": record.instance_id,
        "workflow": record.workflow,
        "type": record.type,
        "source": record.source,
        "id": record.id,
        "refused": record.refused,
    }


def _held(held: HeldEvents) -> schemas.HeldItem:
    return {
        "type": held.type,
        "count": held.count,
        "oldest_at": time_text(held.oldest_at),
        "workflow": held.workflow,
        "instance_id": held.instance_id,
        "is_addressed": held.is_addressed,
    }


ROUTES = (
    Route("GET", "/api/inbox", list_inbox, {200: schemas.InboxPage}, query=schemas.InboxQuery),
    Route("POST", "/api/inbox/{number}/forget", forget_refused, {200: schemas.Forgotten}, [404], scope="control"),
    Route("GET", "/api/held-events", list_held_events, {200: schemas.HeldEvents}, query=schemas.HeldQuery),
)
