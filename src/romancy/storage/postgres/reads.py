"""Loads instances into memory, many at a time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from romancy.core.history import Entry
from romancy.storage.batch import Attempt
from romancy.storage.postgres.connection import Connections
from romancy.storage.records import Snapshot, StoredRequest
from romancy.storage.rows import to_attempt, to_instance

_LOADS = 200
"""The number of instances read at a time."""
_MANY = 2_000
"""More rows than this are converted in a thread, not on the event loop, because it takes a while."""


class Loads:
    """Loads instances: while some are being read, further requests gather and share the next statement."""

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
        future.exception()  # mark it as retrieved: the caller may be gone


def _snapshots(rows: list[Any]) -> dict[str, Snapshot]:
    parts: dict[str, dict[str, list[Any]]] = {}
    for row in rows:
        parts.setdefault(row["instance"], {}).setdefault(row["part"], []).append(row)
    return {id: _snapshot(id, of) for id, of in parts.items() if "instance" in of}


def _snapshot(id: str, of: dict[str, list[Any]]) -> Snapshot:
    [row] = of["instance"]
    workflow, owner, description, schedule, *parent, queue, key = row["names"]
    status, version, input_kind, *times, limited_from, scheduled_at, priority = row["numbers"]
    kept = row["input"], input_kind, row["payload"], row["error"], row["due"]
    later = schedule, scheduled_at, queue, key, priority
    return Snapshot(
        to_instance((id, workflow, status, owner, version, *kept, description, *times, *parent, limited_from, *later)),
        [Entry(*row[2:9]) for row in of.get("entry", ())],
        {row["op"]: row["due"] for row in of.get("wait", ())},
        sorted(map(_attempt, of.get("attempt", ())), key=lambda attempt: attempt.op),
        [StoredRequest(row["n"], row["kind"], row["payload"], row["op"]) for row in of.get("request", ())],
        [row["event"] for row in of.get("delivery", ())],
    )


def _attempt(row: Any) -> Attempt:
    [culprit], [crashes, started, *suspicion] = row["names"], row["numbers"]
    kept = row["op"], row["n"], row["at"], row["due"], row["error"], row["payload"]
    return to_attempt((*kept, crashes, started, culprit, *suspicion))


def findable(value: Any) -> Any:
    """Replace NUL in strings: PostgreSQL can't store it, so the result must match nothing."""
    if isinstance(value, list):
        return [findable(each) for each in cast("list[Any]", value)]
    return value.replace("\0", "\1") if isinstance(value, str) else value
