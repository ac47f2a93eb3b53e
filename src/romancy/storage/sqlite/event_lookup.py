"""Finding events for waits, and waits for events. Runs inside the one writer's transaction, so nothing is missed."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterator
from typing import Any

from romancy.core.filters import Filter, event_anchors, event_key
from romancy.core.model import Event
from romancy.storage.batch import Matched, Offer
from romancy.storage.rows import content_type_of, matchable, matchable_data, to_event
from romancy.storage.sql import blocks

SQL = blocks("sqlite.sql")
MAX_SHAPES = 16
"""Sets of filtered fields per event type that get an index each; waits beyond it are filed under their anchors."""
ANCHORED = -1
"""The shape of such a wait."""
_logger = logging.getLogger("romancy")


class Looker:
    """The matching half of a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._run = connection.execute
        self._run_many = connection.executemany
        self._shapes: dict[str, dict[str, int]] = {}
        self._found: dict[tuple[str, int, bytes, str | None], list[Matched]] = {}
        """Waits by the kind of event they take: thousands may wait alike, and a batch bring as many events."""
        self._warned: set[str] = set()

    def begin(self) -> None:
        """A new transaction: another process may have added shapes."""
        self._shapes.clear()
        self.waits_changed()

    def waits_changed(self) -> None:
        """Waits were opened or closed: what was found is out of date."""
        self._found.clear()

    # --- shapes -----------------------------------------------------------------------------------------------------
    def shapes(self, event_type: str) -> dict[str, int]:
        """The shapes in use for a type: fields to number."""
        known = self._shapes.get(event_type)
        if known is None:
            rows = self._run(SQL["shapes"], (event_type,)).fetchall()
            known = self._shapes[event_type] = {fields: number for number, fields in rows}
        return known

    def shape(self, event_type: str, narrow: Filter, *, create: bool = False) -> int | None:
        """The number of a filter's shape; 0 for no filter; None where it has no index."""
        if not narrow.fields:
            return 0
        known = self.shapes(event_type)
        number = known.get(narrow.fields)
        if number is None and create:
            if len(known) >= MAX_SHAPES:
                if event_type not in self._warned:
                    self._warned.add(event_type)
                    _logger.warning(
                        "event type %r is filtered in over %d ways; further are slow", event_type, MAX_SHAPES
                    )
                return None
            number = known[narrow.fields] = self._learn(event_type, narrow.fields)
        return number

    def _learn(self, event_type: str, fields: str) -> int:
        """A shape nobody used before: index it, and every event of the type that is already there."""
        number = self._run(SQL["insert_shape"], (event_type, fields)).lastrowid
        assert number is not None
        keys: list[tuple[int, bytes, int]] = []
        for seq, subject, source, data, attrs in self._run(SQL["events_of_type"], (event_type,)):
            key = event_key(fields, subject, source, matchable_data(data, content_type_of(attrs)))
            if key is not None:
                keys.append((number, key, seq))
        self._run_many(SQL["insert_event_key"], keys)
        return number

    def place(self, event_type: str, narrow: Filter) -> tuple[int, bytes]:
        """The shape and key that a wait is filed under."""
        number = self.shape(event_type, narrow, create=True)
        if number is None:
            return ANCHORED, narrow.anchor(self.shapes(event_type).keys())
        return number, narrow.key

    # --- an event looks for waits -----------------------------------------------------------------------------------
    def waits_for(self, event: Event, seq: int) -> list[Matched]:
        """Index the event under every shape of its type; returns the waits that may take it."""
        found = self._waits(event, 0, b"")
        shapes = self.shapes(event.type)
        if shapes:
            data = matchable(event)
            if len(shapes) >= MAX_SHAPES:
                found = _fitting(found + self._anchored(event, data), event, data)
            for fields, number in shapes.items():
                key = event_key(fields, event.subject, event.source, data)
                if key is not None:
                    self._run(SQL["insert_event_key"], (number, key, seq))
                    found += self._waits(event, number, key)
        return found

    def _anchored(self, event: Event, data: Any) -> list[Matched]:
        """Waits without a shape of their own that have a value in common with the event."""
        anchors = event_anchors(event.subject, event.source, data)
        if anchors is None:
            rows = self._run(SQL["waits_of_shape"], (event.type, ANCHORED, event.target))
            return [Matched(*row) for row in rows]
        return [match for anchor in anchors for match in self._waits(event, ANCHORED, anchor)]

    def _waits(self, event: Event, shape: int, key: bytes) -> list[Matched]:
        kind = event.type, shape, key, event.target
        found = self._found.get(kind)
        if found is None:
            rows = self._of_key(*kind[:3]) if event.target is None else self._of_target(*kind[:3], event.target)
            found = self._found[kind] = _one_of_each(rows)
        return list(found)

    def _of_key(self, event_type: str, shape: int, key: bytes) -> Iterator[tuple[Any, ...]]:
        """Waits for such an event; of those that are alike one follower will do."""
        rows = self._run(SQL["waits_of_key"], (event_type, shape, key))
        for row in rows:
            if row[-1]:  # from here on they follow
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
        """This follower, then the first of every other kind."""
        place = event_type, shape, key
        while row is not None:
            yield row
            instance, alike = row[0], row[-1]
            row = self._run(SQL["next_followers"], (*place, instance, alike)).fetchone()
            if row is None and elsewhere:
                row = self._run(SQL["followers_elsewhere"], (*place, instance)).fetchone()

    # --- a wait looks for events ------------------------------------------------------------------------------------
    def look(self, instance: str, op: str | None, worker: str | None, now: int) -> list[Offer]:
        """The oldest event each wait may take, if the instance is this worker's."""
        if op is None:
            rows = self._run(SQL["waits_to_look"], (instance,)).fetchall()
        else:
            rows = self._run(SQL["wait_to_look"], (instance, op)).fetchall()
        offers: list[Offer] = []
        for wait, since, marks_count, model, spec, owner, reaches_back in rows:
            if owner != worker or owner is None:
                continue
            seq = self._oldest(instance, wait, since, marks_count, model, spec, now)
            if seq is not None:
                event = to_event(self._run(SQL["event"], (seq,)).fetchone())
                # The offer itself may die with this process; the hint tells whoever comes after.
                self._run(SQL["insert_delivery"], (instance, seq))
                offers.append(Offer(instance, wait, owner, event, (spec, model) if reaches_back else None))
        return offers

    def _oldest(
        self, instance: str, op: str, since: int, marks_count: int, model: str, spec: bytes, now: int
    ) -> int | None:
        oldest: int | None = None
        for event_type, shape, key, mark in self._run(SQL["keys_of_wait"], (model, instance, op)).fetchall():
            floor = max(since, mark or 0) if marks_count else since
            free = (now, instance, instance, model)
            if shape > 0:
                rows = [self._run(SQL["look_filtered"], (shape, key, floor, instance, *free)).fetchone()]
            elif b'"filter"' in spec:
                rows = [self._scan(event_type, floor, instance, model, spec, now)]
            else:
                rows = [
                    self._run(SQL["look_unfiltered"], (event_type, floor, *free)).fetchone(),
                    self._run(SQL["look_targeted"], (event_type, instance, floor, *free)).fetchone(),
                ]
            for row in rows:
                if row is not None and (oldest is None or row[0] < oldest):
                    oldest = row[0]
        return oldest

    def _scan(
        self, event_type: str, floor: int, instance: str, model: str, spec: bytes, now: int
    ) -> tuple[int, ...] | None:
        narrow = _filter(spec)
        values: tuple[Any, ...] = (event_type, instance, floor, now, instance, instance, model)
        for seq, subject, source, data, attrs in self._run(SQL["look_scan"], values):
            if narrow.accepts(subject, source, matchable_data(data, content_type_of(attrs))):
                return (seq,)
        return None


def _one_of_each(rows: Iterator[tuple[Any, ...]]) -> list[Matched]:
    """Waits of one instance that are alike and reach back to its beginning count as one. In a fixed order."""
    found: dict[tuple[str, str, bytes, str], Matched] = {}
    for instance, op, model, spec, reaches_back, _ in rows:
        kind = instance, model, spec, "" if reaches_back else op
        if kind not in found:
            found[kind] = Matched(instance, op, model, spec)
    return [found[kind] for kind in sorted(found)] if len(found) > 1 else list(found.values())


def _fitting(found: list[Matched], event: Event, data: Any) -> list[Matched]:
    """Those whose filter accepts the event, or that have none."""
    return [m for m in found if b'"filter"' not in m.spec or _filter(m.spec).accepts(event.subject, event.source, data)]


def _filter(spec: bytes) -> Filter:
    return Filter.from_json(json.loads(spec)["filter"])
