"""Shapes: the sets of fields that waits filter by. Also caches which events start which workflows.

An event gets a key for every shape of its type when it is dispatched, after its commit. A new shape is stored first and
then the log of its type is indexed for it. So the one that becomes visible second finds the other, and once the log has
been indexed no event lacks its key: the shape is *ready*. A wait is stored only under a ready shape, because its look
finds events by their keys alone.

This process remembers two things. All shapes of a type, ready or not, decide which keys events get: this may be out of
date, and `dispatch` compares it with the tables in its own statement. Ready shapes are those that waits rely on: a
shape is remembered as ready only after the database has said so, and then it stays ready. A worker that needs a shape
that is not ready indexes the log itself: the worker that created the shape may still be indexing, or may have died.
Indexing twice does no harm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from romancy.core.filters import Filter, event_key
from romancy.core.patterns import patterns_of
from romancy.core.versions import highest_versions
from romancy.storage.batch import WaitRow
from romancy.storage.opener import Opener
from romancy.storage.postgres.connection import Connections
from romancy.storage.rows import MAX_SHAPES, UNINDEXED, content_type_of, warn_of_shapes

_CHUNK = 1000


class Shapes:
    """Shapes and triggers by event type."""

    def __init__(self, connections: Connections, opener: Opener) -> None:
        self._connections, self._opener = connections, opener
        self._known: dict[str, dict[str, int]] = {}
        """All shapes. These and the triggers may be out of date; `dispatch` reports it."""
        self._triggers: dict[str, list[tuple[str, int | None]]] = {}
        self._ready: dict[tuple[str, str], int] = {}
        """By type and fields, the shapes that waits can rely on; added only after they are ready in the database."""
        self._warned: set[str] = set()

    def forget(self) -> None:
        self._known.clear()
        self._triggers.clear()
        self._ready.clear()

    def number(self, event_type: str, narrow: Filter) -> int:
        """Return the number of a filter's shape; 0 for no filter, -1 if it has no index that is ready."""
        if not narrow.fields:
            return 0
        return self._ready.get((event_type, narrow.fields), UNINDEXED)

    # --- learning ---------------------------------------------------------------------------------------------------
    async def learn(self, waits: Iterable[WaitRow], now: int) -> None:
        """Before waits are stored, make sure that their shapes are stored, and that every event has its key."""
        wanted = {(type, wait.filter.fields) for wait in waits if wait.filter.fields for type in wait.types}
        missing = wanted - self._ready.keys()
        if missing:
            await self._refresh_shapes({type for type, _ in missing})
        for event_type, fields in sorted(missing - self._ready.keys()):
            await self._learn(event_type, fields, now)

    async def _learn(self, event_type: str, fields: str, now: int) -> None:
        known = self._known[event_type]
        if fields not in known:
            if len(known) >= MAX_SHAPES:
                if event_type not in self._warned:
                    self._warned.add(event_type)
                    warn_of_shapes(event_type)
                return
            await self._connections.do("insert_shape", type=event_type, fields=fields)
            await self._refresh_shapes({event_type})
        if (event_type, fields) not in self._ready:
            await self._make_ready(event_type, fields, self._known[event_type][fields], now)

    async def finish(self, now: int) -> None:
        """Finish shapes of waits that an earlier version stored too early: otherwise they might never become ready."""
        for event_type, number, fields in await self._connections.ask("unready_in_use"):
            await self._make_ready(event_type, fields, number, now)

    async def _make_ready(self, event_type: str, fields: str, number: int, now: int) -> None:
        await self._index_log(event_type, fields, number)
        await self._connections.do("shape_is_ready", id=number, at=now)
        self._ready[event_type, fields] = number

    async def _refresh_shapes(self, types: Collection[str]) -> None:
        rows = await self._connections.ask("shapes_of_types", types=list(types))
        for event_type in types:
            self._known[event_type] = {fields: id for type, id, fields, _ in rows if type == event_type}
        self._ready |= {(type, fields): id for type, id, fields, ready in rows if ready}

    async def _index_log(self, event_type: str, fields: str, number: int) -> None:
        """Add a key for every stored event of the type; later events get theirs when they are dispatched."""
        for query in ("untargeted_of_type", "targeted_of_type"):
            after: dict[str, Any] = {"target": "", "xid": 0, "seq": 0}
            while rows := await self._connections.ask(query, type=event_type, limit=_CHUNK, **after):
                keys = [self._key_of(fields, row) for row in rows]
                found = [(key, row["xid"], row["seq"]) for key, row in zip(keys, rows, strict=True) if key is not None]
                columns = [list(column) for column in zip(*found, strict=True)] or [[], [], []]
                given = dict(zip(("keys", "xids", "seqs"), columns, strict=True))
                await self._connections.ask("insert_event_keys", shape=number, **given)
                if len(rows) < _CHUNK:
                    break
                after = {name: rows[-1][name] for name in after}

    def _key_of(self, fields: str, row: Any) -> bytes | None:
        data = self._opener.matchable_data(row["data"], content_type_of(row["attrs"]))
        key = event_key(fields, row["subject"], row["source"], data)
        return None if key is None else self._opener.key(key)

    # --- dispatching ------------------------------------------------------------------------------------------------
    async def refresh(self, types: Collection[str]) -> None:
        """Read shapes and triggers of these event types again; their patterns count as types."""
        rows = await self._connections.ask("known", types=list(types))
        for event_type in types:
            mine = [row for row in rows if row["type"] == event_type]
            self._known[event_type] = {row["fields"]: row["id"] for row in mine if row["id"] is not None}
            self._triggers[event_type] = [(row["workflow"], row["timeout"]) for row in mine if row["id"] is None]

    def shapes(self, event_type: str) -> dict[str, int]:
        return self._known.get(event_type, {})

    def starting(self, event_type: str) -> Sequence[tuple[str, int | None]]:
        """Return (workflow, timeout) of each workflow that an event of this type starts."""
        return highest_versions([found for pattern in patterns_of(event_type) for found in self.triggers(pattern)])

    def triggers(self, event_type: str) -> list[tuple[str, int | None]]:
        """Return (workflow, timeout) of each stored trigger of this type or pattern."""
        return self._triggers.get(event_type, [])

    def assumed(self, types: Collection[str]) -> dict[str, Any]:
        """Return the cached state that `dispatch` compares with the tables."""
        triggers = sorted((type, *trigger) for type in types for trigger in self.triggers(type))
        return {
            "types": list(types),
            "shapes": sorted(number for type in types for number in self.shapes(type).values()),
            "triggers": [f"{t} {workflow} {-1 if timeout is None else timeout}" for t, workflow, timeout in triggers],
        }
