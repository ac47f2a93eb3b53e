"""Finds waits for an event, in the transaction that stores the event, so that none is missed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from romancy.core.filters import event_anchors, event_key
from romancy.core.model import Event
from romancy.storage.batch import Matched
from romancy.storage.opener import Opener
from romancy.storage.rows import MAX_SHAPES, UNINDEXED
from romancy.storage.sqlite.shapes import Shapes
from romancy.storage.sqlite.statements import SQL

_ALIKE = 5
"""The column of `waits_alike` that tells kinds of followers apart; empty for other waits."""


class Dispatcher:
    """Finds waits for events."""

    def __init__(self, connection: sqlite3.Connection, shapes: Shapes, opener: Opener) -> None:
        self._run, self._shapes, self._opener = connection.execute, shapes, opener
        self._found: dict[tuple[str, int, bytes, str | None], list[Matched]] = {}
        """Waits by the kind of event they take: thousands of waits can be identical, and so can events in a batch."""
        self.undisturbed: dict[tuple[str, str], tuple[str, str]] = {}
        """Owner ("" for none) and workflow of each of these waits, if no other event was on its way to its instance
        when it was found."""

    def waits_changed(self) -> None:
        """Clear the cache: waits were opened or closed, perhaps by another process."""
        self._found.clear()
        self.undisturbed.clear()

    def waits_for(self, event: Event, seq: int) -> list[Matched]:
        """Index the event under every shape of its type, and return the waits that can take it."""
        found = self._waits(event, 0, b"")
        shapes = self._shapes.shapes(event.type)
        if shapes:
            data = self._opener.matchable(event)
            if len(shapes) >= MAX_SHAPES:
                found = self._fitting(found + self._anchored(event, data), event, data)
            for fields, number in shapes.items():
                key = event_key(fields, event.subject, event.source, data)
                if key is not None:
                    key = self._opener.key(key)
                    self._run(SQL["insert_event_key"], (number, key, seq))
                    found += self._waits(event, number, key)
        return found

    def _anchored(self, event: Event, data: Any) -> list[Matched]:
        """Return waits without a shape of their own that share a value with the event."""
        anchors = event_anchors(event.subject, event.source, data)
        if anchors is None:
            rows = self._run(SQL["waits_of_shape"], (event.type, UNINDEXED, event.target))
            return [Matched(*row) for row in rows]
        return [match for anchor in anchors for match in self._waits(event, UNINDEXED, self._opener.key(anchor))]

    def _waits(self, event: Event, shape: int, key: bytes) -> list[Matched]:
        kind = event.type, shape, key, event.target
        found = self._found.get(kind)
        if found is None:
            rows = self._of_key(*kind[:3]) if event.target is None else self._of_target(*kind[:3], event.target)
            found = self._found[kind] = self._one_of_each(rows)
        return list(found)

    def _of_key(self, event_type: str, shape: int, key: bytes) -> Iterator[tuple[Any, ...]]:
        """Yield the waits for such an event, with one follower of each kind."""
        rows = self._run(SQL["waits_of_key"], (event_type, shape, key))
        for row in rows:
            if row[_ALIKE]:  # all further rows are followers
                rows.close()
                yield from self._followers(row, event_type, shape, key)
                return
            yield row

    def _of_target(self, event_type: str, shape: int, key: bytes, target: str) -> Iterator[tuple[Any, ...]]:
        yield from self._run(SQL["waits_of_key_and_target"], (event_type, shape, key, target))
        first = self._run(SQL["next_followers"], (event_type, shape, key, target, b"")).fetchone()
        yield from self._followers(first, event_type, shape, key, elsewhere=False)

    def _followers(
        self, row: tuple[Any, ...] | None, event_type: str, shape: int, key: bytes, *, elsewhere: bool = True
    ) -> Iterator[tuple[Any, ...]]:
        """Yield this follower, then the first one of every other kind."""
        place = event_type, shape, key
        while row is not None:
            yield row
            instance, alike = row[0], row[_ALIKE]
            row = self._run(SQL["next_followers"], (*place, instance, alike)).fetchone()
            if row is None and elsewhere:
                row = self._run(SQL["followers_elsewhere"], (*place, instance)).fetchone()

    def _one_of_each(self, rows: Iterator[tuple[Any, ...]]) -> list[Matched]:
        """Put waits in a fixed order. Identical waits of an instance that reach back to its beginning count once."""
        found: dict[tuple[str, str, bytes, str], Matched] = {}
        for instance, op, model, spec, reaches_back, _, owner, workflow in rows:
            kind = instance, model, spec, "" if reaches_back else op
            if kind not in found:
                found[kind] = Matched(instance, op, model, spec)
                if reaches_back and owner is not None:
                    self.undisturbed[instance, op] = owner, workflow
        return [found[kind] for kind in sorted(found)] if len(found) > 1 else list(found.values())

    def _fitting(self, found: list[Matched], event: Event, data: Any) -> list[Matched]:
        """Return the waits whose filter accepts the event, or that have none."""
        opener = self._opener
        return [
            m
            for m in found
            if not opener.has_filter(m.spec) or opener.filter_of(m.spec).accepts(event.subject, event.source, data)
        ]
