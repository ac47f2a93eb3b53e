"""Finds events for a wait, in the transaction that stores the wait, so that none is missed."""

from __future__ import annotations

import sqlite3

from romancy.core.model import Event
from romancy.storage.batch import Offer
from romancy.storage.opener import Opener
from romancy.storage.rows import content_type_of, to_event
from romancy.storage.sqlite.statements import SQL


class Looker:
    """Finds events for waits."""

    def __init__(self, connection: sqlite3.Connection, opener: Opener) -> None:
        self._run, self._opener = connection.execute, opener

    def look(self, instance: str, op: str | None, worker: str | None, now: int) -> list[Offer]:
        """Return the oldest event that each wait can take, if this worker owns the instance."""
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
                event = to_event(self._run(SQL["found_event"], (seq,)).fetchone())
                # The offer is lost if this process dies; the delivery tells the next owner.
                self._run(SQL["insert_delivery"], (instance, seq))
                offers.append(_offer(instance, wait, owner, event, (spec, model) if reaches_back else None))
        return offers

    def _oldest(
        self, instance: str, op: str, since: int, marks_count: int, model: str, spec: bytes, now: int
    ) -> int | None:
        oldest: int | None = None
        for event_type, shape, key, mark in self._run(SQL["keys_of_wait"], (model, instance, op)).fetchall():
            floor = max(since, mark or 0) if marks_count else since
            if shape > 0:
                rows = [self._run(SQL["look_filtered"], (shape, key, floor, instance, now, model)).fetchone()]
            elif self._opener.has_filter(spec):
                rows = [self._scan(event_type, floor, instance, model, spec, now)]
            else:
                rows = [
                    self._run(SQL["look_unfiltered"], (event_type, floor, now, instance, model)).fetchone(),
                    self._run(SQL["look_targeted"], (event_type, instance, floor, now, model)).fetchone(),
                ]
            for row in rows:
                if row is not None and (oldest is None or row[0] < oldest):
                    oldest = row[0]
        return oldest

    def _scan(
        self, event_type: str, floor: int, instance: str, model: str, spec: bytes, now: int
    ) -> tuple[int, ...] | None:
        narrow = self._opener.filter_of(spec)
        rows = self._run(SQL["look_scan"], (event_type, instance, floor, now, model))
        for seq, subject, source, data, attrs in rows:
            if narrow.accepts(subject, source, self._opener.matchable_data(data, content_type_of(attrs))):
                return (seq,)
        return None


def _offer(instance: str, op: str, owner: str, event: Event, group: tuple[bytes, str] | None) -> Offer:
    return Offer(instance, op, owner, event, group, None if group else place_after(event))


def place_after(event: Event) -> str:
    """Return the place after an event. Its time is for PostgreSQL, if the database is moved there."""
    return f"{event.seq}@{event.accepted_at}"


def number_of(place: str) -> int:
    """Return the number of the event that a place comes after."""
    return int(place.partition("@")[0])
