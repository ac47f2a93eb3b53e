"""Reads: the same answers, orders and cursors as every backend gives."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from romancy.core.history import Entry
from romancy.core.model import Status
from romancy.storage.batch import STATUS_CODES
from romancy.storage.postgres.connection import Connections
from romancy.storage.records import Due, InstanceRow, Mail, Snapshot, StoredEvent, StoredWait
from romancy.storage.rows import to_attempt, to_entry, to_event, to_instance

_LOADS = 200
"""Instances read at a time."""
_MANY = 2_000
"""Rows of theirs that are not made into entries on the event loop's own thread: that takes a while."""


class Loads:
    """Instances to be brought to memory: while some are read, the next gather, and all of those are one statement."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._wanted: dict[str, asyncio.Future[Snapshot | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def load(self, instance: str) -> Snapshot | None:
        future = self._wanted.get(instance)
        if future is None:
            future = self._wanted[instance] = asyncio.get_running_loop().create_future()
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._read(), name="romancy-loads")
        return await asyncio.shield(future)

    async def _read(self) -> None:
        while self._wanted:
            batch = {id: self._wanted.pop(id) for id in list(self._wanted)[:_LOADS]}
            try:
                rows = await self._connections.ask("load", ids=list(batch))
                loop = asyncio.get_running_loop()
                found = _snapshots(rows) if len(rows) <= _MANY else await loop.run_in_executor(None, _snapshots, rows)
            except Exception as error:
                for future in batch.values():
                    _fail(future, error)
                continue
            for id, future in batch.items():
                if not future.done():
                    future.set_result(found.get(id))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for future in self._wanted.values():
            future.cancel()


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # whoever asked may be gone; then it is nobody's error


def _snapshots(rows: list[Any]) -> dict[str, Snapshot]:
    """Parts 0, 6 and 7 of an instance are its row; the others what belongs to it."""
    parts: dict[str, dict[int, list[Any]]] = {}
    for row in rows:
        parts.setdefault(row["instance"], {}).setdefault(row["part"], []).append(row)
    return {id: _snapshot(id, of) for id, of in parts.items() if 0 in of}


_NO_SUSPECT = (None,) * 7


def _snapshot(id: str, of: dict[int, list[Any]]) -> Snapshot:
    [main], [more] = of[0], of[6]
    description = of[7][0]["text"] if 7 in of else None
    values = (
        *(id, main["text"], main["e"], more["text"], main["a"], main["x"], more["b"], main["y"], more["x"]),
        *(more["a"], description, main["b"], main["c"], main["d"]),
    )
    suspects = {r["text"]: (r["x"].decode(), r["a"], r["b"], r["c"], r["e"], r["d"], r["f"]) for r in of.get(8, ())}
    attempts = [
        (r["text"], r["a"], r["b"], r["c"], r["x"], r["y"], r["e"], r["f"], *suspects.get(r["text"], _NO_SUSPECT))
        for r in of.get(3, ())
    ]
    return Snapshot(
        to_instance(values),
        [to_entry((r["a"], r["b"], r["text"], r["c"], r["x"], r["y"], r["d"])) for r in of.get(1, ())],
        {r["text"]: r["a"] for r in of.get(2, ())},
        sorted(map(to_attempt, attempts), key=lambda attempt: attempt.op),
        [(r["a"], r["b"], r["x"]) for r in of.get(4, ())],
        [r["a"] for r in of.get(5, ())],
    )


class Reading:
    """The reading half of the storage."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def mail(self, worker: str, limit: int) -> Mail:
        rows = await self._connections.ask("mail", worker=worker, limit=limit)
        deliveries = [(instance, event) for instance, event, kind, _ in rows if kind is None]
        requests = [(id, instance, kind, payload) for instance, id, kind, payload in rows if kind is not None]
        return Mail(deliveries, requests)

    async def due(self, worker: str, before: int, limit: int) -> list[Due]:
        """Waits and retries, the earliest first."""
        given = {"worker": worker, "before": before, "limit": limit}
        rows = await self._connections.ask("due_waits", **given) + await self._connections.ask("due_retries", **given)
        return sorted((Due(*row) for row in rows), key=lambda due: due.due)[:limit]

    async def instance(self, instance: str) -> InstanceRow | None:
        if "\0" in instance:
            return None  # no id has it
        rows = await self._connections.ask("instance", id=instance)
        return to_instance(tuple(rows[0])) if rows else None

    async def finished(self, instances: Collection[str]) -> list[InstanceRow]:
        ids = [id for id in instances if "\0" not in id]
        return [to_instance(tuple(row)) for row in await self._connections.ask("finished_instances", ids=ids)]

    async def history(self, instance: str) -> list[Entry]:
        rows = await self._connections.ask("history", instance=instance.replace("\0", ""))
        return [to_entry(tuple(row)) for row in rows]

    async def instances(
        self,
        status: Collection[Status],
        workflow: str | None,
        text: str | None,
        started_after: int | None,
        limit: int,
        cursor: tuple[Any, ...] | None,
    ) -> list[InstanceRow]:
        """Newest first; `cursor` is (created_at, id) of the last one shown. Each status has its place in the index."""
        found: list[InstanceRow] = []
        for each in dict.fromkeys(status) or (None,):
            found += await self._instances(each, workflow, text, started_after, limit, cursor)
        return sorted(found, key=lambda row: (row.created_at, row.id.encode()), reverse=True)[:limit]

    async def _instances(
        self,
        status: Status | None,
        workflow: str | None,
        text: str | None,
        started_after: int | None,
        limit: int,
        cursor: tuple[Any, ...] | None,
    ) -> list[InstanceRow]:
        where: list[str] = []
        given: dict[str, Any] = {"limit": limit}
        if status is not None:
            where.append("status = :status::smallint")
            given["status"] = STATUS_CODES[status]
        if workflow is not None:
            where.append("workflow = :workflow::text")
            given["workflow"] = workflow
        if text:
            columns = ("convert_to(id, 'UTF8')", "input", "coalesce(error, '')")
            where.append(f"({' OR '.join(f'position(:text::bytea IN {column}) > 0' for column in columns)})")
            given["text"] = text.encode("utf-8", "surrogatepass")
        if started_after is not None:
            where.append("created_at > :after::bigint")
            given["after"] = started_after
        if cursor is not None:
            where.append("(created_at, id) < (:cursor_at::bigint, :cursor_id::text)")
            given["cursor_at"], given["cursor_id"] = cursor
        statement = self._connections.statements.get("instances", where=_where(where))
        return [to_instance(tuple(row)) for row in await self._connections.read(statement, given)]

    async def waits(
        self, instance: str | None, type: str | None, limit: int, cursor: tuple[Any, ...] | None
    ) -> list[StoredWait]:
        """By (instance, op); `cursor` is that of the last one shown."""
        waits: list[str] = []
        attempts = ["a.next_due IS NOT NULL"]
        given: dict[str, Any] = {"limit": limit}
        if instance is not None:
            waits.append("w.instance = :instance::text")
            attempts.append("a.instance = :instance")
            given["instance"] = instance
        if type is not None:
            waits.append(
                "EXISTS (SELECT 1 FROM romancy.wait_keys k "
                "WHERE k.instance = w.instance AND k.op = w.op AND k.type = :type::text)"
            )
            attempts.append("false")
            given["type"] = type
        if cursor is not None:
            waits.append("(w.instance, w.op) > (:cursor_instance::text, :cursor_op::text)")
            attempts.append("(a.instance, a.op) > (:cursor_instance, :cursor_op)")
            given["cursor_instance"], given["cursor_op"] = cursor
        statement = self._connections.statements.get("waits", waits=_where(waits), attempts=_where(attempts))
        return [StoredWait(*row) for row in await self._connections.read(statement, given)]

    async def events(
        self, type: str | None, instance: str | None, unmatched: bool, limit: int, before: int | None
    ) -> list[StoredEvent]:
        """Newest first, each with the instances that took it."""
        where: list[str] = []
        given: dict[str, Any] = {"limit": limit}
        if type is not None:
            where.append("e.type = :type::text")
            given["type"] = type
        if instance is not None:
            where.append("e.seq IN (SELECT event FROM romancy.consumed WHERE instance = :instance::text)")
            given["instance"] = instance
        if unmatched:
            where.append("NOT EXISTS (SELECT 1 FROM romancy.consumed x WHERE x.event = e.seq)")
        if before is not None:
            where.append("e.seq < :before::bigint")
            given["before"] = before
        statement = self._connections.statements.get("listed_events", where=_where(where))
        rows = [tuple(row) for row in await self._connections.read(statement, given)]
        found = {row[0]: StoredEvent(to_event(row[:-1]), [], row[-1]) for row in rows}
        for seq, taker, op in await self._connections.ask("receivers", seqs=list(found)) if found else ():
            found[seq].receivers.append((taker, op))
        return list(found.values())


def _where(conditions: list[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""
