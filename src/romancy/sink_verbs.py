"""Verbs for sinks, and for events that they gave up. Part of the service."""

from __future__ import annotations

from romancy.bulk import check_most
from romancy.core.model import show
from romancy.cursors import check_limit, read_cursor, write_cursor
from romancy.errors import InvalidInput
from romancy.records import Page
from romancy.runtime import Runtime
from romancy.sink_records import DeadLetter, SinkRecord, to_dead_letter, to_sink_record
from romancy.sinks.declaration import is_name

_ALL = 2**31 - 1


class SinkVerbs:
    """The verbs for sinks: part of the service."""

    _runtime: Runtime

    async def list_sinks(self) -> list[SinkRecord]:
        """Return the sinks that any process has declared, by name."""
        return [to_sink_record(row) for row in await self._runtime.engine.storage.sinks.all()]

    async def list_dead_letters(
        self, sink: str | None = None, /, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetter]:
        """Return the events that a sink, or any, gave up, by sink, oldest first.

        They are kept as long as failed instances.
        """
        if sink is not None:
            _check(sink)
        place = read_cursor(cursor, str, int) or (sink or "", 0)
        sinks = self._runtime.engine.storage.sinks
        rows = await sinks.dead_letters(sink, check_limit(limit) + 1, (place[0], place[1]))
        more = (rows[limit - 1].sink, rows[limit - 1].event.event.seq) if len(rows) > limit else None
        return Page([to_dead_letter(row) for row in rows[:limit]], write_cursor(more))

    async def retry_dead_letters(self, sink: str, /, *, limit: int | None = None) -> int:
        """Let a sink deliver the events again that it gave up, oldest first. Return how many there are.

        They come after events that were delivered meanwhile. Raise `InvalidInput` if there is no such sink.
        """
        engine = self._runtime.writer
        _check(sink)
        most = check_most(limit)
        count = await engine.storage.sinks.retry(sink, _ALL if most is None else most, engine.clock.now())
        if not count and await engine.storage.sinks.get(sink) is None:
            raise _unknown(sink)
        engine.relay()
        return count


def _check(sink: str) -> None:
    """Raise an error for a name that no sink can have."""
    if not isinstance(sink, str) or not is_name(sink):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _unknown(sink)


def _unknown(sink: str) -> InvalidInput:
    return InvalidInput(f"there is no sink named {show(sink)}; list_sinks() shows all sinks")
