"""Pages of lists: how many items they have, and the cursors that say where they end."""

from __future__ import annotations

import json
from typing import Any, cast

from romancy.errors import InvalidInput


def check_limit(limit: int) -> int:
    if not isinstance(limit, int) or not 1 <= limit <= 1000:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"limit must be a whole number between 1 and 1000, got {limit!r}")
    return limit


def write_cursor(position: tuple[Any, ...] | None) -> str | None:
    return None if position is None else json.dumps(position).encode().hex()


def read_wait_cursor(cursor: str | None) -> tuple[Any, Any] | None:
    """Return the position of a wait of one instance: one for a child has another kind of position."""
    try:
        found = read_cursor(cursor, str, str)
    except InvalidInput:
        found = read_cursor(cursor, int, str)
    return None if found is None else (found[0], found[1])


def read_cursor(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """Return the position where a page ended: one value for each of `kinds`."""
    if cursor is None:
        return None
    try:
        position: Any = json.loads(bytes.fromhex(cursor))
        if isinstance(position, list) and list(map(type, cast("list[Any]", position))) == list(kinds):
            return tuple(cast("list[Any]", position))
    except (ValueError, TypeError, RecursionError):
        pass  # reported below, like a cursor of another shape
    raise InvalidInput(f"{cursor[:200]!r} is not a cursor; pass the cursor of the previous page")
