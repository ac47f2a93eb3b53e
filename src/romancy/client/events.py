"""Events to send. An event gets its id here, once, so it stays the same event however often it is sent."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from romancy.core.events import make_event
from romancy.core.model import Attribute, Event, to_us
from romancy.errors import InvalidEvent


def new_event(
    type: str,
    source: str,
    data: object = None,
    *,
    subject: str | None = None,
    id: str | None = None,
    to: str | None = None,
    extensions: Mapping[str, Attribute] | None = None,
    time: datetime | None = None,
    dataschema: str | None = None,
) -> Event:
    """Create and check an event; raises `InvalidEvent` with what is wrong."""
    event = make_event(
        type, source, data, subject=subject, id=id if id is not None else uuid.uuid4().hex, to=to, ext=extensions
    )
    if time is None and dataschema is None:
        return event
    try:
        moment = None if time is None else to_us(time)
    except ValueError as error:
        raise InvalidEvent(f"invalid time of the event: {error}") from None
    return replace(event, time=moment, dataschema=dataschema)
