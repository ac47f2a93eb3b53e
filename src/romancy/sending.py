"""Verbs that send events. Part of the service."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

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
        event = make_event(
            type, source, data, subject=subject, id=id if id is not None else uuid.uuid4().hex, to=to, ext=extensions
        )
        return to_receipt(await engine.accept(event))

    async def send_events(self, events: Sequence[Event], /) -> list[Receipt]:
        """Send several events in one transaction: all of them are stored, or none.

        >>> await app.send_events([Event("order.paid", "shop", {"order": n}, id=f"paid-{n}") for n in orders])
        """
        engine = self._runtime.writer
        if isinstance(events, Event):
            raise InvalidEvent("send_events takes a list of events: [Event(...)]")
        stored = [to_stored(event) for event in events]
        return [to_receipt(accepted) for accepted in await engine.accept_all(stored)] if stored else []


def to_receipt(accepted: Accepted) -> Receipt:
    """Return the receipt for the sender of an event."""
    answer = accepted.answer
    counts = accepted.delivered, len(answer.started), accepted.mismatched
    return Receipt("accepted", answer.duplicate, *counts, differs=answer.differs)
