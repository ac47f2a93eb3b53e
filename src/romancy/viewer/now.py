"""The front page: what needs a person, what fails, the workers, what falls due, and the newest instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from urllib.parse import urlencode

from romancy.desk import Count, DeskCounts, FailureGroup, MinuteRecord, OperatorsDesk, StrandedWorkflow
from romancy.http.responses import Response, json_answer
from romancy.http.routes import Request
from romancy.storage.sinks import SinkCounts
from romancy.viewer.catalog import Catalog
from romancy.viewer.charts import MINUTES, by_minute, points, throughput
from romancy.viewer.html import page
from romancy.viewer.pages import InstancesQuery, Nothing, Query, instances, listed, placed

Kind = Literal["failed", "blocked", "retrying", "overdue", "queued"]
KINDS: tuple[Kind, ...] = ("failed", "blocked", "retrying", "overdue", "queued")
_LINKS = {"retrying": "retrying", "overdue": "overdue"}
_GROUPS, _SOON, _AHEAD, _ROWS = 8, 6, 3600, 200


@dataclass(frozen=True)
class Tile:
    """One of the numbers at the top, and its last hour as a line."""

    kind: Kind
    count: Count
    link: str
    line: str
    """The points of the line."""


@dataclass(frozen=True)
class Need:
    """Something that a person has to look at, with the list behind it."""

    link: str
    what: str
    why: str


async def now(request: Request) -> Response:
    """What needs attention; with a filter, the list of instances, as links to this page have always shown it."""
    query: InstancesQuery = request.query
    if query.link() or query.cursor:
        return await instances(request)
    catalog, desk = Catalog(request.app), desk_of(request)
    counts, found = await desk.counts(), await desk.failures()
    workers = await desk.workers()
    stranded = await desk.stranded(workers)
    minutes = await desk.minutes(catalog.now - timedelta(minutes=MINUTES))
    due = await catalog.coming(_AHEAD, 400)
    return page(
        request,
        "now.html",
        tiles=_tiles(counts, minutes, catalog.now),
        groups=[(group, _group_link(group)) for group in found.groups[:_GROUPS]],
        found=found,
        needs=_needs(found.groups, counts, stranded, await request.runtime.engine.storage.sinks.all()),
        workers=workers,
        builds={worker.build for worker in workers if worker.is_alive},
        newest=max((worker for worker in workers if worker.is_alive), key=lambda w: w.started_at, default=None),
        stranded=stranded,
        chart=_throughput(minutes, catalog.now),
        due=placed(due, catalog.now, _AHEAD),
        soon=due[:_SOON],
        due_count=len(due),
        **await listed(catalog, query),
    )


def desk_of(request: Request) -> OperatorsDesk:
    return OperatorsDesk(request.runtime.engine.storage, request.runtime.clock)


def _tiles(counts: DeskCounts, minutes: Sequence[MinuteRecord], now: datetime) -> list[Tile]:
    tiles: list[Tile] = []
    last = int(now.timestamp()) // 60
    for kind in KINDS:
        count: Count = getattr(counts, kind)
        name = "failures" if kind == "failed" else kind
        known = {int(each.at.timestamp()) // 60: getattr(each, name) or 0 for each in minutes} | {last: count.n}
        link = _LINKS.get(kind) or _list(status=kind)
        tiles.append(Tile(kind, count, link, points(by_minute(known, last))))
    return tiles


def _throughput(minutes: Sequence[MinuteRecord], now: datetime) -> Any:
    last = int(now.timestamp()) // 60
    known = {int(each.at.timestamp()) // 60: each for each in minutes}
    completed = by_minute({minute: each.completed for minute, each in known.items()}, last)
    return throughput(now, completed, by_minute({minute: each.failed for minute, each in known.items()}, last))


def _group_link(group: FailureGroup) -> str:
    named = {"status": group.status, "workflow": group.workflow, "error_type": group.error_type}
    return urlencode({**named, "operation": group.operation or ""})


def _needs(
    groups: Sequence[FailureGroup],
    counts: DeskCounts,
    stranded: Sequence[StrandedWorkflow],
    sinks: Sequence[SinkCounts],
) -> list[Need]:
    """What nothing but a person can settle."""
    needs: list[Need] = []
    if counts.blocked.n:
        needs.append(Need(_list(status="blocked"), f"{counts.blocked.n:,} blocked", "until you fix their code"))
    for each in stranded:
        why = "in a workflow that no live worker has"
        needs.append(Need(_list(workflow=each.workflow), f"{each.instances:,} {each.workflow}", why))
    for sink in sinks:
        if sink.dead:
            needs.append(Need("sinks", f"{sink.dead:,} events", f"were given up by sink {sink.name}"))
        elif sink.parked:
            needs.append(Need("sinks", f"Sink {sink.name}", f"can't deliver {sink.parked:,} events"))
    for group in groups:
        if group.status == "failed":
            at = f" in {group.operation}" if group.operation else ""
            what = f"{group.count:,} {group.workflow}"
            needs.append(Need(f"group?{_group_link(group)}", what, f"failed with {group.error_type}{at}"))
    return needs


def _list(**filter: str) -> str:
    return f"instances?{urlencode(filter)}"


# --- one kind of failure ---------------------------------------------------------------------------------------------
class GroupQuery(Nothing):
    status: Literal["failed", "blocked"]
    workflow: str
    error_type: str
    operation: str = ""


async def group(request: Request) -> Response:
    """The instances that failed alike."""
    query: GroupQuery = request.query
    found, catalog = await _group(request), Catalog(request.app)
    rows = await catalog.rows(() if found is None else found.ids[:_ROWS])
    link = urlencode(query.model_dump())
    return page(request, "group.html", group=found, rows=rows, query=query, link=link, now=catalog.now)


async def group_ids(request: Request) -> Response:
    """Their ids, for a script that acts on them: no filter finds exactly these."""
    found = await _group(request)
    return json_answer(200, {"ids": [] if found is None else list(found.ids)})


async def _group(request: Request) -> FailureGroup | None:
    query: GroupQuery = request.query
    wanted = query.status, query.workflow, query.error_type, query.operation or None
    groups = (await desk_of(request).failures()).groups
    return next((g for g in groups if (g.status, g.workflow, g.error_type, g.operation) == wanted), None)


# --- the lists behind two of the numbers ------------------------------------------------------------------------------
async def retrying(request: Request) -> Response:
    """Activities that failed and are tried again, by the time of their next attempt."""
    query: Query = request.query
    found = await desk_of(request).retrying(limit=50, cursor=query.cursor)
    return page(request, "retrying.html", found=found, query=query, now=Catalog(request.app).now)


async def overdue(request: Request) -> Response:
    """What should have happened by now."""
    query: Query = request.query
    found = await desk_of(request).overdue(limit=50, cursor=query.cursor)
    return page(request, "overdue.html", found=found, query=query, now=Catalog(request.app).now)
