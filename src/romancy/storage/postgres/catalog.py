"""The catalog of a PostgreSQL database: each read one or two short statements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

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
from romancy.storage.postgres.connection import Connections
from romancy.storage.records import StoredWait
from romancy.storage.rows import to_event, to_instance


class PostgresCatalog:
    """What people look at in a PostgreSQL database."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def counts(self, cap: int) -> dict[Status, int]:
        rows = await self._connections.ask("count_statuses", codes=list(STATUS_CODES.values()), cap=cap)
        found: dict[int, int] = {row["code"]: row["n"] for row in rows}
        return {name: found[code] for name, code in STATUS_CODES.items()}

    async def search(self, search: Search, limit: int, cursor: Position | None, scan: int) -> Found:
        each = [await self._search(search, status, limit, cursor, scan) for status in search.status or (None,)]
        return merged(each, limit)

    async def _search(
        self, search: Search, status: Status | None, limit: int, cursor: Position | None, scan: int
    ) -> Found:
        where, given = _range(search, status, cursor)
        reached: Position | None = None
        if not search.is_indexed:
            statement = self._connections.statements.get("search_bound", where=_all(where))
            bound = await self._connections.read(statement, {**given, "skip": scan - 1})
            reached = (bound[0]["created_at"], bound[0]["id"]) if bound else None
        if reached is not None:
            where.append("(created_at, id) >= (:reached_at::bigint, :reached_id::text)")
            given["reached_at"], given["reached_id"] = reached
        if search.workflow is not None:
            where.append("workflow = :workflow::text")
            given["workflow"] = search.workflow
        if search.text:
            columns = ("convert_to(id, 'UTF8')", "input", "coalesce(error, '')")
            where.append(f"({' OR '.join(f'position(:text::bytea IN {column}) > 0' for column in columns)})")
            given["text"] = search.text.encode("utf-8", "surrogatepass")
        statement = self._connections.statements.get("search", where=_all(where))
        rows = [_summary(row) for row in await self._connections.read(statement, {**given, "limit": limit})]
        return Found(rows, reached if len(rows) < limit else None)

    async def summaries(self, ids: Collection[str]) -> list[Summary]:
        return [_summary(row) for row in await self._connections.ask("summaries", ids=_texts(ids))]

    async def waits_of(self, ids: Collection[str], each: int) -> list[StoredWait]:
        return [StoredWait(*row) for row in await self._connections.ask("few_waits", ids=_texts(ids), each=each)]

    async def whole(self, instance: str) -> Whole | None:
        rows = await self._connections.ask("whole", ids=_texts([instance]))
        return Whole(to_instance(tuple(rows[0])[:-3]), *tuple(rows[0])[-3:]) if rows else None

    async def entries(self, instance: str, after: int, limit: int) -> list[ShownEntry]:
        rows = await self._connections.ask("shown_entries", instance=instance, after=after, limit=limit)
        return [ShownEntry(Entry(*tuple(row)[:-2]), *tuple(row)[-2:]) for row in rows]

    async def wait_types(self, after: str, limit: int, cap: int) -> list[tuple[str, int]]:
        rows = await self._connections.ask("wait_types", after=after.replace("\0", ""), limit=limit, cap=cap)
        return [(row["type"], row["n"]) for row in rows]

    async def waits_for(
        self, type: str, limit: int, after: WaitPosition | None
    ) -> list[tuple[WaitPosition, StoredWait]]:
        if "\0" in type:
            return []
        place = dict(zip(("shape", "key", "follows", "instance", "alike", "op"), place_after(after), strict=True))
        rows = await self._connections.ask("waits_for_type", type=type, limit=limit, **place)
        return [
            ((row[0], bytes(row[1]).hex(), bytes(row[2]).hex(), row[3], row[5]), StoredWait(*tuple(row)[3:]))
            for row in rows
        ]

    async def coming(self, after: int, before: int, limit: int) -> list[StoredWait]:
        rows = await self._connections.ask("coming", after=after, before=before, limit=limit)
        return [StoredWait(*row) for row in rows]

    async def events(
        self, *, type: str | None, instance: str | None, unmatched: bool, limit: int, before: int | None, scan: int
    ) -> tuple[list[ShownEvent], int | None]:
        given: dict[str, Any] = {"before": 2**63 - 1 if before is None else before}
        where = ["e.seq < :before::bigint"]
        reached: int | None = None
        if instance is not None:
            where.append("e.seq IN (SELECT event FROM romancy.consumed WHERE instance = :instance::text)")
            given["instance"] = instance.replace("\0", "")
        elif unmatched or type is not None:
            bound = await self._connections.ask("events_bound", **given, skip=scan - 1)
            reached = bound[0]["seq"] if bound else None
            where.append("e.seq >= :reached::bigint")
            given["reached"] = -1 if reached is None else reached
        if type is not None:
            where.append("e.type = :type::text")
            given["type"] = type.replace("\0", "")
        if unmatched:
            where.append("NOT EXISTS (SELECT 1 FROM romancy.consumed x WHERE x.event = e.seq)")
        statement = self._connections.statements.get("shown_events", where=_all(where), order="ORDER BY e.seq DESC")
        found = await self._shown(await self._connections.read(statement, {**given, "limit": limit}))
        return found, reached if len(found) < limit else None

    async def event(self, source: str, id: str) -> ShownEvent | None:
        where = "WHERE e.source = :source::text AND e.id = :id::text"
        statement = self._connections.statements.get("shown_events", where=where, order="")
        given = {"source": source.replace("\0", ""), "id": id.replace("\0", ""), "limit": 1}
        found = await self._shown(await self._connections.read(statement, given))
        return found[0] if found else None

    async def _shown(self, rows: list[Any]) -> list[ShownEvent]:
        found: dict[int, ShownEvent] = {}
        for row in rows:
            *stored, size, differed_at = row
            found[row["seq"]] = ShownEvent(to_event(tuple(stored)), size, [], differed_at)
        for seq, taker, op in await self._connections.ask("receivers", seqs=list(found)) if found else ():
            found[seq].receivers.append((taker, op))
        return list(found.values())

    async def triggers(self, types: Collection[str]) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {type: [] for type in types}
        for row in await self._connections.ask("triggers_of_types", types=_texts(types)):
            found[row["type"]].append(row["workflow"])
        return found

    async def rates(self, since: int, cap: int) -> Rates:
        [row] = await self._connections.ask("rates", since=since, cap=cap)
        return Rates(*row)


def _summary(row: Any) -> Summary:
    id, workflow, status, *rest = tuple(row)
    return Summary(id, workflow, STATUS_NAMES.get(status, "blocked"), *rest)


def _texts(texts: Collection[str]) -> list[str]:
    """Those a PostgreSQL text can hold; no other is stored."""
    return [text for text in texts if "\0" not in text]


def _all(conditions: list[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}"


def _range(search: Search, status: Status | None, cursor: Position | None) -> tuple[list[str], dict[str, Any]]:
    """What the index narrows by."""
    where, given = ["true"], dict[str, Any]()
    if status is not None:
        where.append("status = :status::smallint")
        given["status"] = STATUS_CODES[status]
    if search.started_after is not None:
        where.append("created_at > :after::bigint")
        given["after"] = search.started_after
    if search.started_before is not None:
        where.append("created_at <= :before::bigint")
        given["before"] = search.started_before
    if search.above is not None:
        where.append("(created_at, id) > (:above_at::bigint, :above_id::text)")
        given["above_at"], given["above_id"] = search.above
    if cursor is not None:
        where.append("(created_at, id) < (:cursor_at::bigint, :cursor_id::text)")
        given["cursor_at"], given["cursor_id"] = cursor
    return where, given
