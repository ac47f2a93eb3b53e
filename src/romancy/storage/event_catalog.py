"""The event log for people: lists, newest first, with the instances that took each event.

A filter without a suitable index reads a limited number of events and reports how far it got.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from romancy.core.model import Event
from romancy.storage.rows import to_event
from romancy.storage.sql import Run

OWN = "romancy."
"""How the types of the library's own events begin."""
_LAST = 2**63 - 1
"""A number after those of all events."""


@dataclass(slots=True)
class ShownEvent:
    """An event, with the full size of its data, which may have been cut, and the instances that took it."""

    event: Event
    size: int
    receivers: list[tuple[str, str]]
    differed_at: int | None = None
    """When a different event with the same source and id was first dropped."""


@dataclass(slots=True, frozen=True)
class EventSearch:
    """The criteria of a search for events. `text` is looked for in type, source, subject, id and data, in any case."""

    type: str | None = None
    source: str | None = None
    subject: str | None = None
    text: str | None = None
    accepted_after: int | None = None
    accepted_before: int | None = None
    unmatched: bool = False
    """Only events that no instance took, without those of the library itself."""

    @property
    def reads_all(self) -> bool:
        """Whether every event fits, so that no more are read than are shown."""
        return self == EventSearch(accepted_before=self.accepted_before)

    @property
    def given(self) -> dict[str, Any]:
        text = self.text.encode("utf-8", "surrogatepass").lower() if self.text else None
        named = {"type": self.type, "source": self.source, "subject": self.subject, "unmatched": self.unmatched}
        return {**named, "own": OWN, "text": text, "since": self.accepted_after, "until": self.accepted_before}


class EventCatalog:
    """Reads of the event log."""

    def __init__(self, ask: Run) -> None:
        self._ask = self.ask = ask

    async def events(
        self,
        *,
        type: str | None = None,
        instance: str | None = None,
        unmatched: bool = False,
        limit: int = 50,
        before: int | None = None,
    ) -> list[ShownEvent]:
        """Return events older than `before`, newest first, with all their data and the instances that took them.

        `unmatched`: only events that no instance took, without those of the library itself unless `type` names them.
        """
        name = "events_of_instance" if instance is not None else "events" if type is None else "events_of_type"
        given = {"type": type, "instance": instance, "unmatched": unmatched, "own": OWN, "limit": limit}
        return await self._events(await self._ask(name, before=_LAST if before is None else before, **given))

    async def shown_events(
        self, search: EventSearch, instance: str | None, limit: int, before: int | None, scan: int
    ) -> tuple[list[ShownEvent], int | None]:
        """Return events, newest first, and how far it got if it read `scan` events without reaching the end.

        `instance`: only events that it took.
        """
        given: dict[str, Any] = {**search.given, "before": await self._begin(search, before)}
        reached = None
        if instance is None and not search.reads_all:
            bound = await self._ask("events_bound", before=given["before"], skip=scan - 1)
            reached = next((seq for (seq,) in bound), None)
        given |= {"limit": limit, **({"instance": instance} if instance is not None else {"reached": reached or -1})}
        name = "shown_events" if instance is None else "shown_events_of_instance"
        found = await self._events(await self._ask(name, **given))
        return found, reached if len(found) < limit else None

    async def _begin(self, search: EventSearch, before: int | None) -> int:
        """Return the number before which to read: a time in the past is found by its index."""
        if before is not None or search.accepted_before is None:
            return _LAST if before is None else before
        found = await self._ask("last_event_until", until=search.accepted_before)
        return next((seq + 1 for (seq,) in found), 0)

    async def event(self, source: str, id: str) -> ShownEvent | None:
        """Return one event with the instances that took it."""
        return next(iter(await self._events(await self._ask("shown_event", source=source, id=id))), None)

    async def _events(self, rows: Sequence[Any]) -> list[ShownEvent]:
        found = {row[0]: ShownEvent(to_event(row[:-3], row[-1]), row[-3], [], row[-2]) for row in rows}
        for seq, taker, op in await self._ask("receivers", seqs=list(found)) if found else ():
            found[seq].receivers.append((taker, op))
        return list(found.values())

    async def existing(self, source: str, ids: Collection[str]) -> set[str]:
        """Return those of the given ids that events of a source have."""
        return {id for (id,) in await self._ask("known_events", source=source, listed=list(ids))}

    async def sent_to(self, instance: str, type: str, limit: int) -> list[Event]:
        """Return events of a type that are addressed to an instance, newest first."""
        return [to_event(tuple(r)) for r in await self._ask("addressed_to", instance=instance, type=type, limit=limit)]
