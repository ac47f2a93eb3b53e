"""The catalog of a SQLite file: short reads on the reader's thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from romancy.core.history import Entry
from romancy.core.model import Status
from romancy.storage.batch import STATUS_CODES, STATUS_NAMES
from romancy.storage.catalog import (
    Found,
    Position,
    Rates,
    Search,
    ShownEntry,
    ShownEvent,
    Summary,
    WaitPosition,
    Whole,
    merged,
    place_after,
)
from romancy.storage.records import StoredWait
from romancy.storage.rows import to_event, to_instance
from romancy.storage.sqlite.event_lookup import SQL

T = TypeVar("T")
_SUMMARY = SQL["summary"].partition(" WHERE ")[0]
_EVENT = SQL["shown_event"].partition(" WHERE ")[0]


class Reader(Protocol):
    """Runs a job with a connection that reads."""

    async def __call__(self, job: Callable[[sqlite3.Connection], T], /) -> T: ...


class SQLiteCatalog:
    """What people look at in a SQLite file."""

    def __init__(self, read: Reader) -> None:
        self._read = read

    async def counts(self, cap: int) -> dict[Status, int]:
        def count(c: sqlite3.Connection) -> dict[Status, int]:
            return {name: _one(c, "count_status", code, cap) for name, code in STATUS_CODES.items()}

        return await self._read(count)

    async def search(self, search: Search, limit: int, cursor: Position | None, scan: int) -> Found:
        return await self._read(lambda c: _search(c, search, limit, cursor, scan))

    async def summaries(self, ids: Collection[str]) -> list[Summary]:
        def read(c: sqlite3.Connection) -> list[Summary]:
            rows = (c.execute(SQL["summary"], (id,)).fetchone() for id in ids)
            return [_summary(row) for row in rows if row is not None]

        return await self._read(read)

    async def waits_of(self, ids: Collection[str], each: int) -> list[StoredWait]:
        def read(c: sqlite3.Connection) -> list[StoredWait]:
            names = ("few_waits", "few_retries")
            return [StoredWait(*row) for id in ids for name in names for row in c.execute(SQL[name], (id, each))]

        return await self._read(read)

    async def whole(self, instance: str) -> Whole | None:
        row = await self._read(lambda c: c.execute(SQL["whole"], (instance,)).fetchone())
        return None if row is None else Whole(to_instance(row[:-3]), *row[-3:])

    async def entries(self, instance: str, after: int, limit: int) -> list[ShownEntry]:
        rows = await self._read(lambda c: c.execute(SQL["shown_entries"], (instance, after, limit)).fetchall())
        return [ShownEntry(Entry(*row[:-2]), *row[-2:]) for row in rows]

    async def wait_types(self, after: str, limit: int, cap: int) -> list[tuple[str, int]]:
        def read(c: sqlite3.Connection) -> list[tuple[str, int]]:
            found: list[tuple[str, int]] = []
            type: str | None = after
            while len(found) < limit and (type := _one(c, "next_wait_type", type)) is not None:
                found.append((type, _one(c, "count_waits", type, cap)))
            return found

        return await self._read(read)

    async def waits_for(
        self, type: str, limit: int, after: WaitPosition | None
    ) -> list[tuple[WaitPosition, StoredWait]]:
        start = place_after(after)
        rows = await self._read(lambda c: c.execute(SQL["waits_for_type"], (type, *start, limit)).fetchall())
        return [((row[0], row[1].hex(), row[2].hex(), row[3], row[5]), StoredWait(*row[3:])) for row in rows]

    async def coming(self, after: int, before: int, limit: int) -> list[StoredWait]:
        def read(c: sqlite3.Connection) -> list[StoredWait]:
            names = ("coming_waits", "coming_retries")
            rows = [row for name in names for row in c.execute(SQL[name], (after, before, limit))]
            return sorted((StoredWait(*row) for row in rows), key=lambda wait: wait.due or 0)[:limit]

        return await self._read(read)

    async def events(
        self, *, type: str | None, instance: str | None, unmatched: bool, limit: int, before: int | None, scan: int
    ) -> tuple[list[ShownEvent], int | None]:
        return await self._read(lambda c: _events(c, type, instance, unmatched, limit, before, scan))

    async def event(self, source: str, id: str) -> ShownEvent | None:
        def read(c: sqlite3.Connection) -> ShownEvent | None:
            row = c.execute(SQL["shown_event"], (source, id)).fetchone()
            return None if row is None else _event(c, row)

        return await self._read(read)

    async def triggers(self, types: Collection[str]) -> Mapping[str, Sequence[str]]:
        def read(c: sqlite3.Connection) -> dict[str, list[str]]:
            return {type: [row[0] for row in c.execute(SQL["triggers_of_type"], (type,))] for type in types}

        return await self._read(read)

    async def rates(self, since: int, cap: int) -> Rates:
        names = ("count_started", "count_finished", "count_accepted")
        return await self._read(lambda c: Rates(*(_one(c, name, since, cap) for name in names)))


def _one(c: sqlite3.Connection, name: str, *values: Any) -> Any:
    return c.execute(SQL[name], values).fetchone()[0]


def _summary(row: tuple[Any, ...]) -> Summary:
    return Summary(row[0], row[1], STATUS_NAMES.get(row[2], "blocked"), *row[3:])


# --- searching ------------------------------------------------------------------------------------------------------
def _search(c: sqlite3.Connection, search: Search, limit: int, cursor: Position | None, scan: int) -> Found:
    each = [_search_one(c, search, status, limit, cursor, scan) for status in search.status or (None,)]
    return merged(each, limit)


def _search_one(
    c: sqlite3.Connection, search: Search, status: Status | None, limit: int, cursor: Position | None, scan: int
) -> Found:
    index = "instances_created" if status is None else "instances_status"
    order = "ORDER BY created_at DESC, id DESC LIMIT"
    reached: Position | None = None
    if not search.is_indexed:
        where, values = _range(search, status, cursor)
        query = f"SELECT created_at, id FROM instances INDEXED BY {index} WHERE {where} {order} 1 OFFSET ?"
        reached = c.execute(query, (*values, scan - 1)).fetchone()
    where, values = _range(search, status, cursor, reached)
    if search.workflow is not None:
        where += " AND workflow = ?"
        values.append(search.workflow)
    if search.text:
        where += " AND (instr(id, ?) OR instr(CAST(input AS TEXT), ?) OR instr(CAST(error AS TEXT), ?))"
        values += [search.text] * 3
    query = f"{_SUMMARY} INDEXED BY {index} WHERE {where} {order} ?"
    rows = [_summary(row) for row in c.execute(query, (*values, limit))]
    return Found(rows, reached if len(rows) < limit else None)


def _range(
    search: Search, status: Status | None, cursor: Position | None, reached: Position | None = None
) -> tuple[str, list[Any]]:
    """What the index narrows by: one bound on either side, the nearest. SQLite would take any, and go on to the end.

    The exact conditions are held back from the index by a plus sign.
    """
    lows = [p[0] for p in (search.above, reached) if p is not None] + [search.started_after or -(2**63)]
    highs = [2**63 - 1 if bound is None else bound for bound in (search.started_before, cursor and cursor[0])]
    parts: list[tuple[str, tuple[Any, ...]]] = [("created_at >= ? AND created_at <= ?", (max(lows), min(highs)))]
    if status is not None:
        parts.append(("status = ?", (STATUS_CODES[status],)))
    if search.started_after is not None:
        parts.append(("+created_at > ?", (search.started_after,)))
    for sign, position in ((">", search.above), (">=", reached), ("<", cursor)):
        if position is not None:
            parts.append((f"(+created_at, id) {sign} (?, ?)", position))
    return " AND ".join(text for text, _ in parts), [value for _, values in parts for value in values]


# --- events ---------------------------------------------------------------------------------------------------------
def _events(
    c: sqlite3.Connection,
    type: str | None,
    instance: str | None,
    unmatched: bool,
    limit: int,
    before: int | None,
    scan: int,
) -> tuple[list[ShownEvent], int | None]:
    where, values = ["seq < ?"], list[Any]([2**63 - 1 if before is None else before])
    reached: int | None = None
    if instance is not None:
        where.append("seq IN (SELECT event FROM consumed WHERE instance = ?)")
        values.append(instance)
    elif unmatched or type is not None:
        bound = c.execute(
            "SELECT seq FROM events WHERE seq < ? ORDER BY seq DESC LIMIT 1 OFFSET ?", (*values, scan - 1)
        )
        reached = next((seq for (seq,) in bound), None)
        where.append("seq >= ?")
        values.append(-1 if reached is None else reached)
    if type is not None:
        where.append("+type = ?")  # by seq, within the bound: the index on type is in another order
        values.append(type)
    if unmatched:
        where.append("NOT EXISTS (SELECT 1 FROM consumed x WHERE x.event = e.seq)")
    rows = c.execute(f"{_EVENT} WHERE {' AND '.join(where)} ORDER BY seq DESC LIMIT ?", (*values, limit)).fetchall()
    return [_event(c, row) for row in rows], reached if len(rows) < limit else None


def _event(c: sqlite3.Connection, row: tuple[Any, ...]) -> ShownEvent:
    *stored, size, differed_at = row
    return ShownEvent(to_event(tuple(stored)), size, c.execute(SQL["receivers"], (row[0],)).fetchall(), differed_at)
