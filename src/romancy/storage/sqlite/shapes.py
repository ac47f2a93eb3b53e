"""Shapes: the sets of fields that waits filter by. As soon as a shape exists, every event has its key for it."""

from __future__ import annotations

import sqlite3

from romancy.core.filters import Filter, event_key
from romancy.storage.opener import Opener
from romancy.storage.rows import MAX_SHAPES, UNINDEXED, content_type_of, warn_of_shapes
from romancy.storage.sqlite.statements import SQL


class Shapes:
    """Shapes by event type, as seen in one transaction."""

    def __init__(self, connection: sqlite3.Connection, opener: Opener) -> None:
        self._run, self._run_many, self._opener = connection.execute, connection.executemany, opener
        self._shapes: dict[str, dict[str, int]] = {}
        self._warned: set[str] = set()

    def begin(self) -> None:
        """Clear the cache for a new transaction: another process may have added shapes."""
        self._shapes.clear()

    def shapes(self, event_type: str) -> dict[str, int]:
        """Return the shapes in use for a type: fields to number."""
        known = self._shapes.get(event_type)
        if known is None:
            rows = self._run(SQL["shapes"], (event_type,)).fetchall()
            known = self._shapes[event_type] = {fields: number for number, fields in rows}
        return known

    def shape(self, event_type: str, narrow: Filter, *, create: bool = False) -> int | None:
        """Return the number of a filter's shape; 0 for no filter, None if it has no index."""
        if not narrow.fields:
            return 0
        known = self.shapes(event_type)
        number = known.get(narrow.fields)
        if number is None and create:
            if len(known) >= MAX_SHAPES:
                if event_type not in self._warned:
                    self._warned.add(event_type)
                    warn_of_shapes(event_type)
                return None
            number = known[narrow.fields] = self._learn(event_type, narrow.fields)
        return number

    def _learn(self, event_type: str, fields: str) -> int:
        """Store a new shape, and index every stored event of the type for it."""
        number = self._run(SQL["insert_shape"], (event_type, fields)).lastrowid
        assert number is not None
        keys: list[tuple[int, bytes, int]] = []
        for seq, subject, source, data, attrs in self._run(SQL["log_of_type"], (event_type,)):
            key = event_key(fields, subject, source, self._opener.matchable_data(data, content_type_of(attrs)))
            if key is not None:
                keys.append((number, self._opener.key(key), seq))
        self._run_many(SQL["insert_event_key"], keys)
        return number

    def place(self, event_type: str, narrow: Filter) -> tuple[int, bytes]:
        """Return the shape and key that a wait is filed under."""
        number = self.shape(event_type, narrow, create=True)
        if number is None:
            return UNINDEXED, self._opener.key(narrow.anchor(self.shapes(event_type).keys()))
        return number, self._opener.key(narrow.key)
