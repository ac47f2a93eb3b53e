"""The control API for sinks, and for the events that they gave up."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from romancy.http import schemas
from romancy.http.pages import paged
from romancy.http.responses import HTTPError, Response, json_answer
from romancy.http.routes import Request, Route
from romancy.http.serialize import event_item, time_text
from romancy.records import Page
from romancy.sink_records import DeadLetter, SinkRecord


class SinkItem(TypedDict):
    name: str
    types: list[str]
    worker_id: str | None
    parked: int
    dead: int
    last_error: str | None


class Sinks(TypedDict):
    items: list[SinkItem]


class DeadLetterItem(TypedDict):
    sink: str
    event: schemas.EventItem
    attempts: int
    error: str
    since: schemas.Time


class DeadLetters(TypedDict):
    items: list[DeadLetterItem]
    cursor: str | None


class Retried(TypedDict):
    retried: int


class DeadLettersQuery(schemas.Paged):
    cursor: Annotated[str, schemas.cursor_of(str, int)] | None = schemas.CURSOR
    sink: str | None = Field(None, description="Only events that this sink gave up.")


class RetryBody(schemas.Closed):
    limit: int | None = Field(None, ge=1, description="At most so many, oldest first.")


async def list_sinks(request: Request) -> Response:
    """The sinks that any process has declared, by name. Counts go up to 10,000."""
    return json_answer(200, {"items": [_sink(record) for record in await request.app.list_sinks()]})


async def list_dead_letters(request: Request) -> Response:
    """The events that sinks gave up, by sink, oldest first."""
    query: DeadLettersQuery = request.query

    async def read(*, limit: int, cursor: str | None) -> Page[DeadLetter]:
        return await request.app.list_dead_letters(query.sink, limit=limit, cursor=cursor)

    return await paged(read, query.model_dump(exclude={"sink"}), _letter)


async def retry_dead_letters(request: Request) -> Response:
    """Let a sink deliver the events again that it gave up."""
    name, body = request.path["name"], request.body
    if name not in {record.name for record in await request.app.list_sinks()}:
        raise HTTPError(404, f"there is no sink named {name[:100]!r}", kind="NotFound")
    unknown = "; it is unknown whether they will be delivered again: try again"
    retry = request.app.retry_dead_letters(name, limit=body.limit)
    return json_answer(200, {"retried": await request.backpressure.store(retry, 0, unknown)})


def _sink(record: SinkRecord) -> SinkItem:
    return {
        "name": record.name,
        "types": list(record.types),
        "worker_id": record.worker_id,
        "parked": record.parked,
        "dead": record.dead,
        "last_error": record.last_error,
    }


def _letter(letter: DeadLetter) -> DeadLetterItem:
    return {
        "sink": letter.sink,
        "event": event_item(letter.event),
        "attempts": letter.attempts,
        "error": letter.error,
        "since": time_text(letter.since),
    }


ROUTES = (
    Route("GET", "/api/sinks", list_sinks, {200: Sinks}),
    Route("GET", "/api/dead-letters", list_dead_letters, {200: DeadLetters}, query=DeadLettersQuery),
    Route(
        "POST",
        "/api/sinks/{name}/retry",
        retry_dead_letters,
        {200: Retried},
        [404],
        scope="control",
        body=RetryBody,
    ),
)
