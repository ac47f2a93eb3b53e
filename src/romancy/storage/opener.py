"""What a backend itself looks at inside values: the data of events and the filters of waits, and the keys of both.

If values are sealed, `sealed/vault.py` has an opener that opens them first, and hashes keys with a secret: the hash of
a card number or an e-mail address could be guessed.
"""

from __future__ import annotations

import json
from typing import Any

from romancy.core.filters import Filter
from romancy.core.history import is_json, pack_event
from romancy.core.model import Event
from romancy.core.same_event import is_same_event
from romancy.core.strict_json import parse_json
from romancy.errors import CodecError, InvalidEvent

SEALED = 1_000
"""Added to the oldest library that can use a database once values in it are sealed, and to the version of a library
that has the codec. So a process without it can't write any more: nobody else could find its events and waits by their
keys."""
OLDEST = SEALED + 13
"""The oldest library that can write sealed values."""


def can_read(min_reader: int, library: int, level: int) -> bool:
    """Return whether a library of this version can use a database. `level`: whether it has the codec."""
    sealed, oldest = divmod(min_reader, SEALED)
    return oldest <= library and (not sealed or level > 0)


class Opener:
    """Values that are not sealed."""

    level = 0
    """Added to the version of the library: see `SEALED`."""

    def open(self, raw: bytes) -> bytes:
        """Return a value that may be sealed."""
        return raw

    def key(self, digest: bytes) -> bytes:
        """Return the key under which an event or a wait is filed."""
        return digest

    def matchable(self, event: Event) -> Any:
        """Return an event's data as filters see it, parsed only if necessary."""
        return self.matchable_data(event.data, event.datacontenttype) if event.parsed is None else event.parsed

    def matchable_data(self, data: bytes | None, content_type: str | None) -> Any:
        """Return data as filters see it; data that is not JSON has no fields."""
        if data is None or not (content_type is None or is_json(content_type)):
            return None
        try:
            return parse_json(self.open(data))
        except InvalidEvent:
            return None

    def has_filter(self, spec: bytes) -> bool:
        """Return whether a wait has a filter."""
        return b'"filter"' in self.open(spec)

    def filter_of(self, spec: bytes) -> Filter:
        """Return the filter of a wait that has one."""
        return Filter.from_json(json.loads(self.open(spec))["filter"])

    def is_other(self, event: Event, type: str, subject: str | None, target: str | None, attrs: Any, data: Any) -> bool:
        """Return whether an event differs from the one that is stored under its source and id.

        If one of them can't be opened here, this is unknown, and it counts as the same.
        """
        content_type = json.loads(attrs).get("datacontenttype") if attrs else None
        stored = Event(event.id, event.source, type, data, subject, datacontenttype=content_type, target=target)
        try:
            return not is_same_event(self.opened(event), self.opened(stored))
        except CodecError:
            return False

    def opened(self, event: Event) -> Event:
        """Return an event with its data as it was sent."""
        return event

    def packed(self, event: Event) -> bytes:
        """Return a stored event as the input of the workflows that it starts."""
        return pack_event(event)


class Bystander(Opener):
    """Values that are not looked at, whether they are sealed or not: for tools that do not run anything."""

    level = SEALED


PLAIN = Opener()
