"""Verbs that send events. Part of the service."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from romancy.core.events import make_event
from romancy.core.model import Attribute
from romancy.core.new_events import Event, to_stored
from romancy.engine.delivery import Accepted
from romancy.errors import InvalidEvent
from romancy.records import Receipt
from romancy.runtime import Runtime


class SendingVerbs:
    """The verbs that send events: part of the service."""

    _runtime: Runtime

    async def send_event(
        self,
        type: str,
        source: str,
        data: object = None,
        *,
        subject: str | None = None,
        id: str | None = None,
        to: str | None = None,
        extensions: Mapping[str, Attribute] | None = None,
    ) -> Receipt:
        """Send an event and return when it is stored durably. The same `(source, id)` again is a duplicate."""
        engine = self._runtime.writer  # first: this raises inside a workflow, and when not running
        id = id if id is not None else uuid.uuid4().hex
        event = make_event(type, source, data, subject=subject, id=id, to=to, ext=extensions)
        if not engine.around.has_sends:
            return to_receipt(await engine.accept(event))

        async def send(event: Event) -> Receipt:
            return to_receipt(await engine.accept(to_stored(event)))

        given = Event(type, source, data, subject=subject, id=id, to=to, extensions=extensions)
        return await engine.around.send(given, send)

    async def send_events(self, events: Sequence[Event], /) -> list[Receipt]:
        """Send several events in one transaction: all of them are stored, or none.

        >>> await app.send_events([Event("order.paid", "shop", {"order": n}, id=f"paid-{n}") for n in orders])
        """
        engine = self._runtime.writer
        if isinstance(events, Event):
            raise InvalidEvent("send_events takes a list of events: [Event(...)]")
        stored = [to_stored(event) for event in events]
        if not stored:
            return []
        if not engine.around.has_sends:
            return list(map(to_receipt, await engine.accept_all(stored)))

        async def send(events: list[Event]) -> list[Receipt]:
            return list(map(to_receipt, await engine.accept_all([to_stored(event) for event in events])))

        named = [replace(event, id=made.id) for event, made in zip(events, stored, strict=True)]
        return await engine.around.send_all(named, send)


def to_receipt(accepted: Accepted) -> Receipt:
    """Return the receipt for the sender of an event."""
    answer = accepted.answer
    counts = accepted.delivered, len(answer.started), accepted.mismatched
    return Receipt("accepted", answer.duplicate, *counts, differs=answer.differs)
