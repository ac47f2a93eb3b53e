"""`GET /api/instances/{id}/emitted`: what an instance emits, as server-sent events, or a page of it as JSON.

The id of an event is the number of the emission, so a browser that reconnects goes on where it was. A repeated activity
is an event `restart`, and a change of the status to or from "blocked" an event `status`. When the instance has ended,
an event `end` with its status follows, and the stream is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Literal

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from romancy.core.model import FINAL, Status
from romancy.emission_records import MOST as MOST_NUMBER
from romancy.emission_records import Emission, check_wanted
from romancy.emitted import Batches, follow_in_batches, stored
from romancy.engine.emission_readers import BLOCKED
from romancy.errors import AppNotRunning, CodecError, InstanceNotFound
from romancy.http import schemas
from romancy.http.responses import HTTPError, Response, json_answer, to_json
from romancy.http.routes import Request, Route
from romancy.http.serialize import time_text
from romancy.http.stream import HEADERS, is_welcome
from romancy.storage.errors import TransientError

MOST = 1_000
"""Maximum of readers in one process."""
_BEAT = 15.0
"""Seconds between signs of life on a quiet stream."""


class EmissionItem(TypedDict):
    n: int
    topic: str
    value: Any
    at: schemas.Time
    activity_id: str | None
    attempt: int
    kind: Literal["data", "restart"]


class EmissionPage(TypedDict):
    items: list[EmissionItem]
    next: int
    status: schemas.Status


class EmissionsQuery(BaseModel, extra="forbid"):
    after: int = Field(0, ge=0, le=MOST_NUMBER, description="Only emissions with greater numbers.")
    limit: int = Field(100, ge=1, le=1000, description="Maximum of emissions in a page of JSON.")


def emission_item(emission: Emission[Any]) -> EmissionItem:
    return {
        "n": emission.n,
        "topic": emission.topic,
        "value": emission.value,
        "at": time_text(emission.at),
        "activity_id": emission.activity_id,
        "attempt": emission.attempt,
        "kind": emission.kind,
    }


async def get_emitted(request: Request) -> Response:
    """What an instance emits on a topic, as server-sent events until it ends; or as JSON what is stored by now.

    With `Accept: application/json`, a page: `next` is the `after` of the next one. Otherwise a stream: `id` is the
    number of an emission, `data` the emission; `Last-Event-ID` has precedence over `after`. An activity that is
    repeated is an event `restart`. If the instance is blocked, or no longer is, an event `status` says so. After the
    end, an event `end` follows, with the status.
    """
    return await _emitted(request, request.path["topic"])


async def get_all_emitted(request: Request) -> Response:
    """What an instance emits on all topics, numbered together; see `/api/instances/{instance_id}/emitted/{topic}`."""
    return await _emitted(request, None)


async def _emitted(request: Request, topic: str | None) -> Response:
    id, engine = request.path["instance_id"], request.runtime.engine
    topic, after = check_wanted(topic, _after(request))
    instance = await request.app.get_instance(id)
    if _wants_json(request):
        items = await stored(engine, id, topic, after, request.query.limit)
        next = items[-1].n if items else after
        return json_answer(200, {"items": list(map(emission_item, items)), "next": next, "status": instance.status})
    if len(engine.emissions.readers) >= MOST:
        raise HTTPError(503, f"too many open streams ({MOST:,}); try again in a moment", kind="Overloaded")
    return Response(200, None, HEADERS, _parts(request, follow_in_batches(engine, id, topic, after)))


def _after(request: Request) -> int:
    given = request.head.get(b"last-event-id")
    if not given:
        return request.query.after
    if not (given.isdigit() and len(given) < 20 and int(given) <= MOST_NUMBER):
        raise HTTPError(400, "Last-Event-ID must be the number of an emission", kind="BadRequest")
    return int(given)


def _wants_json(request: Request) -> bool:
    accepted = request.head.get(b"accept") or b""
    return b"application/json" in accepted and b"text/event-stream" not in accepted


async def _parts(request: Request, batches: Batches) -> AsyncGenerator[bytes]:
    endings = [asyncio.ensure_future(request.gone()), asyncio.ensure_future(request.stopping.wait())]
    statuses = _statuses(request)
    async with aclosing(batches), aclosing(statuses):
        following = asyncio.ensure_future(anext(batches, None))
        changing = asyncio.ensure_future(anext(statuses))
        try:
            yield b"retry: 2000\n\n"
            while True:
                expected = {following, changing, *endings}
                done, _ = await asyncio.wait(expected, timeout=_BEAT, return_when="FIRST_COMPLETED")
                if not done:
                    if not await is_welcome(request):
                        return
                    yield b": beat\n\n"
                elif not done.isdisjoint(endings):
                    return
                elif following not in done:
                    yield b"event: status\ndata: " + to_json({"status": changing.result()}) + b"\n\n"
                    changing = asyncio.ensure_future(anext(statuses))
                else:
                    batch = following.result()
                    if batch is None:
                        yield await _end(request)
                        return
                    yield b"".join(map(_event, batch))
                    following = asyncio.ensure_future(anext(batches, None))
        except (AppNotRunning, InstanceNotFound):
            return  # the app stops, or the instance was removed: who reconnects is told
        finally:
            for task in (following, changing, *endings):
                task.cancel()
            await asyncio.wait({following, changing})


async def _statuses(request: Request) -> AsyncGenerator[Status]:
    """Yield the status of the instance when it is blocked, and when it no longer is. That is not an end."""
    id, was_blocked = request.path["instance_id"], False
    while True:
        try:
            if not was_blocked:
                await _stopped(request, id)
            status = (await request.app.get_instance(id)).status
        except TransientError:
            await asyncio.sleep(BLOCKED)
            continue
        if status in FINAL:
            await asyncio.Event().wait()  # `end` says so
        if (status == "blocked") is not was_blocked:
            was_blocked = not was_blocked
            yield status
        await asyncio.sleep(BLOCKED)


async def _stopped(request: Request, id: str) -> None:
    """Wait until the instance has ended or is blocked."""
    with suppress(CodecError):  # how it ended can't be read; that is not needed here
        await request.runtime.engine.ending(id)


def _event(emission: Emission[Any]) -> bytes:
    kind = b"" if emission.kind == "data" else b"event: restart\n"
    return b"%sid: %d\ndata: %s\n\n" % (kind, emission.n, to_json(emission_item(emission)))


async def _end(request: Request) -> bytes:
    instance = await request.app.get_instance(request.path["instance_id"])
    return b"event: end\ndata: " + to_json({"status": instance.status}) + b"\n\n"


_PATH = "/api/instances/{instance_id}/emitted"
ROUTES = (
    Route("GET", _PATH, get_all_emitted, {200: EmissionPage}, [404], query=EmissionsQuery, is_stream=True),
    Route("GET", f"{_PATH}/{{topic}}", get_emitted, {200: EmissionPage}, [404], query=EmissionsQuery, is_stream=True),
)
