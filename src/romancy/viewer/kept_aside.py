"""The pages that show what is kept aside: the inbox, old events that open instances may take, and dead letters."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from romancy.http.responses import Response
from romancy.http.routes import Request
from romancy.inventory import MOST_HELD
from romancy.viewer.catalog import PAGE, Catalog
from romancy.viewer.html import page
from romancy.viewer.pages import Nothing


class HeldQuery(Nothing):
    older: float = Field(7, ge=0, le=10_000, allow_inf_nan=False)
    """Days."""


async def inbox(request: Request) -> Response:
    """What callers left in transactions of their own, oldest first, and what was refused of it."""
    found = await request.app.list_inbox(limit=PAGE, cursor=request.query.cursor)
    return page(request, "inbox.html", found=found, is_first=request.query.cursor is None, now=Catalog(request.app).now)


async def held(request: Request) -> Response:
    """Old events that are kept for open instances, by type."""
    query: HeldQuery = request.query
    found = await request.app.list_held_events(older_than=timedelta(days=query.older))
    is_cut = sum(held.count for held in found) >= MOST_HELD
    return page(request, "held.html", found=found, is_cut=is_cut, query=query, now=Catalog(request.app).now)


async def sinks(request: Request) -> Response:
    """The sinks, and the events that they gave up."""
    found = await request.app.list_dead_letters(limit=PAGE, cursor=request.query.cursor)
    known = await request.app.list_sinks()
    is_first, now = request.query.cursor is None, Catalog(request.app).now
    return page(request, "sinks.html", sinks=known, found=found, is_first=is_first, now=now)
