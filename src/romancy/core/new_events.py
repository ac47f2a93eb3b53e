"""Events to be sent, as users write them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from dataclasses import replace as replaced
from datetime import datetime

from romancy.core import model
from romancy.core.events import check_dataschema, make_event
from romancy.core.history import plain_data
from romancy.core.model import Attribute, from_us, to_us
from romancy.errors import InvalidEvent


@dataclass(frozen=True)
class Event:
    """An event to be sent.

    >>> await app.send_events([Event("order.paid", "shop", {"order": "ORD-1"}), Event("order.shipped", "shop")])
    """

    type: str
    source: str
    data: object = None
    _: KW_ONLY
    subject: str | None = None
    id: str | None = None
    """The same `(source, id)` again is a duplicate. None: a new one each time it is sent."""
    to: str | None = None
    """The only instance that can receive it."""
    time: datetime | None = None
    dataschema: str | None = None
    extensions: Mapping[str, Attribute] | None = None


def from_stored(event: model.Event) -> Event:
    """Return an event that was made to be sent as users write it, for middleware."""
    return Event(
        event.type,
        event.source,
        plain_data(event),
        subject=event.subject,
        id=event.id,
        to=event.target,
        time=None if event.time is None else from_us(event.time),
        dataschema=event.dataschema,
        extensions=event.extensions,
    )


def to_stored(event: Event, id: str | None = None) -> model.Event:
    """Return an event as it is stored, with an id; raise `InvalidEvent` if it is not valid."""
    if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidEvent(f"an event must be an Event(type, source, data), not {event!r}")
    chosen = event.id if event.id is not None else id if id is not None else uuid.uuid4().hex
    made = make_event(
        event.type, event.source, event.data, subject=event.subject, id=chosen, to=event.to, ext=event.extensions
    )
    if event.time is None and event.dataschema is None:
        return made
    if event.dataschema is not None:
        check_dataschema(event.dataschema)
    try:
        moment = None if event.time is None else to_us(event.time)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidEvent(f"invalid time of the event: {error}") from None
    return replaced(made, time=moment, dataschema=event.dataschema)
