"""Events that are given back: a retried instance can take them once more.

They were taken in time, so neither their own expiry nor the timeout of a wait counts any more. One that expires is
stored again as a copy for this instance, which does not. So is one that was removed since: the storage finds out
whether it was. The instance sees the event that it took before, with its own id.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from romancy.core.model import Event

COPY_OF = "romancyeventid"
"""The extension attribute that names the event of which an event is a copy."""


OWN_ID = "given-back-"
"""How the id of a copy begins, if it has one of its own."""


def expires(event: Event) -> bool:
    """Return whether an event from a history expires. Its time may have come since, or come soon."""
    return "expirytime" in (event.extensions or {})


def copy_for(instance: str, event: Event, at: int) -> Event:
    """Return the event to store for an instance that took this one: the same id if it does not expire."""
    extensions = {**(event.extensions or {}), COPY_OF: event.id}
    copy = replace(event, target=instance, accepted_at=at, expires_at=None, extensions=extensions)
    return own_copy(copy) if expires(event) else copy


def own_copy(copy: Event) -> Event:
    """Return a copy under an id of its own, because other instances may get copies of the same event."""
    known_as = "\0".join((copy.source, original_id(copy), copy.target or ""))
    id = f"{OWN_ID}{hashlib.blake2b(known_as.encode(), digest_size=16).hexdigest()}"
    return replace(copy, id=id)


def original_id(copy: Event) -> str:
    """Return the id of the event of which this is a copy."""
    return str((copy.extensions or {}).get(COPY_OF, copy.id))


def original_of(event: Event) -> Event | None:
    """Return the event of which this is a copy; None if it is not one."""
    extensions = dict(event.extensions or {})
    id = extensions.pop(COPY_OF, None)
    return None if id is None else replace(event, id=str(id), extensions=extensions)
