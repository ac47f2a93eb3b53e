"""The pages that show things. Those with forms are in action_pages.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, Field

from romancy.core.attributes import encode_where, read_pair
from romancy.core.model import Status, from_us, to_us
from romancy.cursors import read_cursor
from romancy.errors import InstanceNotFound, InvalidInput
from romancy.http.responses import HTTPError, Response, error_answer, json_answer
from romancy.http.routes import Request
from romancy.records import (
    Wait,
)
from romancy.storage.batch import STATUS_CODES
from romancy.storage.catalog import WHOLE, EventSearch, Search
from romancy.viewer.catalog import CAP, SCAN, Catalog
from romancy.viewer.html import page
from romancy.viewer.session import to_login

T = TypeVar("T")
_WITHIN = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
Within = Literal["", "15m", "1h", "24h", "7d", "30d"]
_SPANS = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}
_GROUPS, _EACH, _TIMERS = 30, 5, 400


class Nothing(BaseModel, extra="ignore"):
    """Query parameters of a page. Unknown ones are ignored, and the page says so."""


class Query(Nothing):
    cursor: str | None = None


class InstancesQuery(Query):
    status: list[Status] = []
    workflow: str = ""
    text: str = ""
    error_type: str = ""
    parent: str = ""
    queue: str = ""
    key: str = ""
    attribute: list[str] = []
    within: Within = ""
    after: str = ""
    before: str = ""
    top: str | None = None

    def link(self, **changes: Any) -> str:
        """The query string of this page, with changes."""
        kept = self.model_dump(exclude={"cursor", "top"}) | {"attribute": self.attributes} | changes
        return urlencode({name: value for name, value in kept.items() if value}, doseq=True)

    @property
    def attributes(self) -> list[str]:
        """The attributes as they were typed, without the empty field of the form."""
        return list(filter(None, self.attribute))


class RowsQuery(Query):
    id: list[str] = Field([], max_length=100)


class WaitingQuery(Query):
    after: str = ""
    span: Literal["hour", "day", "week"] = "hour"


class WaitsQuery(Query):
    type: str


class EventsQuery(Query):
    type: str = ""
    source: str = ""
    subject: str = ""
    text: str = ""
    instance: str = ""
    within: Within = ""
    after: str = ""
    before: str = ""
    show: Literal["all", "unmatched"] = "all"

    def link(self, **changes: Any) -> str:
        """The query string of this page, with changes."""
        kept = self.model_dump(exclude={"cursor", "show"}) | {"show": "" if self.show == "all" else self.show} | changes
        return urlencode({name: value for name, value in kept.items() if value})

    @property
    def is_filtered(self) -> bool:
        return bool(self.model_dump(exclude={"cursor", "show"}, exclude_defaults=True))


class EventQuery(Query):
    source: str
    id: str


# --- instances ------------------------------------------------------------------------------------------------------
async def instances(request: Request) -> Response:
    """Instances, newest first."""
    return page(request, "instances.html", **await listed(Catalog(request.app), request.query))


async def listed(catalog: Catalog, query: InstancesQuery) -> dict[str, Any]:
    """What the list of instances shows."""
    search = _search(query, catalog.now)
    rows = await catalog.instances(search, query.cursor)
    about: dict[str, Any] = {"counts": await catalog.counts(), "cap": CAP, "now": catalog.now, "scan": SCAN}
    about["inbox"] = await catalog.inbox_counts()
    names = {*catalog.workflows, *(row.workflow for row in rows.items), *filter(None, [query.workflow])}
    about["filter_json"] = json.dumps(_filter(query, search, catalog.now))
    return {"rows": rows, "query": query, "workflows": sorted(names), "statuses": STATUS_CODES, **about}


def _filter(query: InstancesQuery, search: Search, now: datetime) -> dict[str, Any]:
    """The filter as the control API takes it. What starts after the page was made is never acted on."""
    names = ("status", "workflow", "text", "error_type", "parent", "queue", "key")
    given = {name: value for name in names if (value := getattr(query, name))}
    if query.attributes:
        given["where"] = dict(map(read_pair, query.attributes))
    until = now if search.started_before is None else min(now, from_us(search.started_before))
    after = {} if search.started_after is None else {"started_after": from_us(search.started_after).isoformat()}
    return {**given, **after, "started_before": until.isoformat()}


async def rows(request: Request) -> Response:
    """The current state of some rows of that page."""
    catalog = Catalog(request.app)
    found = await catalog.rows(request.query.id)
    return page(request, "rows.html", rows=found, now=catalog.now)


async def newer(request: Request) -> Response:
    """How many new rows there are above those of a page."""
    query: InstancesQuery = request.query
    catalog = Catalog(request.app)

    async def count() -> int:
        top = read_cursor(query.top, int, str) if query.top else None
        return await catalog.newer(_search(query, catalog.now, top and (top[0], top[1])))

    return json_answer(200, {"newer": await count()})


def _search(query: InstancesQuery, now: datetime, above: tuple[int, str] | None = None) -> Search:
    after, before = _times(query, now)
    return Search(
        status=query.status,
        workflow=query.workflow or None,
        text=query.text or None,
        started_after=after,
        started_before=before,
        above=above,
        error_type=query.error_type or None,
        parent=query.parent or None,
        queue=query.queue or None,
        key=query.key or None,
        where=encode_where(dict(map(read_pair, query.attributes))),
    )


def _times(query: InstancesQuery | EventsQuery, now: datetime) -> tuple[int | None, int | None]:
    """The bounds of a filter by time: the last hour or so, or from and to."""
    after = now - _WITHIN[query.within] if query.within else _moment(query.after, "after")
    before = _moment(query.before, "before")
    return None if after is None else to_us(after), None if before is None else to_us(before)


def _moment(text: str, name: str) -> datetime | None:
    """Parse the date and time of a form; it is UTC unless it has a zone."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{name!r} must be a date and time such as 2026-01-31T09:30, not {text[:50]!r}") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


# --- waits ----------------------------------------------------------------------------------------------------------
async def waiting(request: Request) -> Response:
    """The open waits, and what is due next."""
    query: WaitingQuery = request.query
    catalog = Catalog(request.app)
    groups = await catalog.groups(query.after, _GROUPS + 1, _EACH)
    due = await catalog.coming(_SPANS[query.span], _TIMERS)
    about: dict[str, Any] = {"counts": await catalog.counts(), "cap": CAP, "now": catalog.now}
    more = groups[_GROUPS - 1].type if len(groups) > _GROUPS else None
    return page(
        request,
        "waiting.html",
        groups=groups[:_GROUPS],
        more=more,
        query=query,
        due=placed(due, catalog.now, _SPANS[query.span]),
        timers=[wait for wait in due if wait.kind != "event"][:20],
        is_cut=len(due) == _TIMERS,
        span_seconds=_SPANS[query.span],
        **about,
    )


def placed(due: Sequence[Wait], now: datetime, whole: float) -> list[tuple[float, int, Wait]]:
    """Positions on the line in percent, with a count where several fall on the same position."""
    places: dict[int, tuple[float, int, Wait]] = {}
    for wait in due:
        assert wait.due_at is not None
        x = min(100.0, max(0.0, 100 * (wait.due_at - now).total_seconds() / whole))
        known = places.get(round(x))
        places[round(x)] = (round(x, 2), 1, wait) if known is None else (known[0], known[1] + 1, known[2])
    return list(places.values())


async def waits(request: Request) -> Response:
    """All waits for one type of event."""
    catalog = Catalog(request.app)
    found, more = await catalog.waits_for(request.query.type, request.query.cursor)
    return page(request, "waits.html", waits=found, cursor=more, type=request.query.type, now=catalog.now)


# --- events ---------------------------------------------------------------------------------------------------------
async def events(request: Request) -> Response:
    """The event log, newest first."""
    query: EventsQuery = request.query
    catalog = Catalog(request.app)
    after, before = _times(query, catalog.now)
    search = EventSearch(
        type=query.type or None,
        source=query.source or None,
        subject=query.subject or None,
        text=query.text or None,
        accepted_after=after,
        accepted_before=before,
        unmatched=query.show == "unmatched",
    )
    found = await catalog.events(search, query.instance or None, query.cursor)
    return page(request, "events.html", events=found, query=query, now=catalog.now, scan=SCAN)


async def event(request: Request) -> Response:
    """One event, with the instances that took it."""
    catalog = Catalog(request.app)
    line = await catalog.event(request.query.source, request.query.id)
    if line is None:
        text = f"no event has source {request.query.source!r} and id {request.query.id!r}; it may have been deleted"
        raise HTTPError(404, text, kind="NotFound")
    return page(request, "event.html", line=line, whole=WHOLE, now=catalog.now)


# --- errors ---------------------------------------------------------------------------------------------------------
async def nothing(request: Request) -> Response:
    """Any other address below /viewer/."""
    raise HTTPError(404, "this page does not exist", kind="NotFound")


def failed(request: Request, error: Exception) -> Response:
    """An error as a page; without a session, the login form."""
    if isinstance(error, HTTPError) and error.status == 401:
        return to_login(request)
    answer = error_answer(error, f"{request.scope['method']} {request.scope['path']}")
    is_expected = answer.status < 500 or answer.status == 503
    if isinstance(error, InstanceNotFound):
        text = f"no instance has the id {error.instance_id!r}; it may have been deleted, or be in another database"
        return page(request, "error.html", 404, code=404, message=text)
    text = str(error) if is_expected else "an unexpected error occurred; see the log of the server"
    return page(request, "error.html", answer.status, code=answer.status, message=text[:2000])
