"""Pages of a list, also limited in bytes: one page must neither fill the memory nor block the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from romancy.http.responses import JSON_TYPE, Response, to_json
from romancy.records import Page

T = TypeVar("T")
ENOUGH = 4 * 1024 * 1024
"""Bytes after which a page ends, even if the limit allows more items; the next page continues there."""
_FIRST = 10
"""Items in the first read. Each further read is twice as large."""


async def paged(
    read: Callable[..., Awaitable[Page[T]]], filters: Mapping[str, Any], show: Callable[[T], Mapping[str, Any]]
) -> Response:
    """A page of up to `limit` items, as JSON."""
    limit, cursor = int(filters["limit"]), filters.get("cursor")
    items: list[bytes] = []
    size, step = 0, _FIRST
    while True:
        page = await read(**{**filters, "limit": min(step, limit - len(items)), "cursor": cursor})
        shown = [to_json(show(item)) for item in page.items]
        items += shown
        size += sum(map(len, shown))
        step, cursor = step * 2, page.cursor
        if cursor is None or len(items) >= limit or size >= ENOUGH:
            break
    body = b'{"items":[' + b",".join(items) + b'],"cursor":' + to_json(cursor) + b"}"
    return Response(200, body, [JSON_TYPE])
