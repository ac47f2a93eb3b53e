"""`GET /api/inbox`: what callers left in transactions of their own, and what was refused of it."""

from __future__ import annotations

from typing import Any

from romancy.core.model import from_us
from romancy.http import schemas
from romancy.http.pages import paged
from romancy.http.responses import Response
from romancy.http.routes import Request, Route
from romancy.http.serialize import time_text
from romancy.records import Page, read_cursor, write_cursor
from romancy.service import runtime_of
from romancy.storage.inbox_items import InboxRow


async def list_inbox(request: Request) -> Response:
    """What is in the inbox, oldest first: not yet taken in or, with `refused`, refused for that reason."""
    catalog = runtime_of(request.app).engine.storage.catalog

    async def read(limit: int, cursor: str | None) -> Page[InboxRow]:
        (after,) = read_cursor(cursor, int) or (0,)
        rows = await catalog.inbox(after, limit + 1)
        more = (rows[limit - 1].number,) if len(rows) > limit else None
        return Page(rows[:limit], write_cursor(more))

    return await paged(read, request.query.model_dump(), _item)


def _item(row: InboxRow) -> dict[str, Any]:
    return {
        "number": row.number,
        "kind": row.name,
        "at": time_text(from_us(row.at)),
        "instance_id": row.instance,
        "workflow": row.workflow,
        "type": row.type,
        "source": row.source,
        "id": row.event,
        "refused": row.refused,
    }


ROUTE = Route("GET", "/api/inbox", list_inbox, {200: schemas.InboxPage}, query=schemas.InboxQuery)
