"""Verbs for what is kept aside: the inbox, and old events that open instances may still take. Part of the service."""

from __future__ import annotations

from datetime import timedelta

from romancy.core.model import Duration, duration_us
from romancy.cursors import check_limit, read_cursor, write_cursor
from romancy.records import (
    HeldEvents,
    InboxRecord,
    Page,
    to_held_events,
    to_inbox_record,
)
from romancy.runtime import Runtime

MOST_HELD = 1_000_000
"""Up to this many events are counted, of all types together."""
OLD = timedelta(days=7)
"""From this age on, events are listed that are kept for open instances."""


class InventoryVerbs:
    """The verbs for the inbox and for old events: part of the service."""

    _runtime: Runtime

    async def list_inbox(self, *, limit: int = 50, cursor: str | None = None) -> Page[InboxRecord]:
        """Return what was left with `app.within`, oldest first: what workers have not taken in yet, or refused."""
        (after,) = read_cursor(cursor, int) or (0,)
        rows = await self._runtime.engine.storage.catalog.inbox(after, check_limit(limit) + 1)
        more = (rows[limit - 1].number,) if len(rows) > limit else None
        return Page([to_inbox_record(row) for row in rows[:limit]], write_cursor(more))

    async def forget_refused(self, number: int) -> bool:
        """Remove a refused start or event from the inbox. Return False if nothing with this number was refused."""
        return await self._runtime.writer.storage.forget_arrival(number)

    async def list_held_events(self, *, older_than: Duration = OLD) -> list[HeldEvents]:
        """Return the events of at least this age that are kept because open instances may take them, by type.

        Up to 1,000,000 events are counted, of all types together; the types with the oldest events come first. Events
        that were sent to one instance are listed apart, by type and instance; the oldest 10,000 of them are counted.
        """
        engine = self._runtime.engine
        before = engine.clock.now() - duration_us(older_than, "older_than")
        return [to_held_events(held) for held in await engine.storage.held(before, MOST_HELD)]
