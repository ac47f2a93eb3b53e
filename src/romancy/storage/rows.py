"""Converts between rows and the typed records of the protocol."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any

from romancy.core.history import Entry
from romancy.core.model import Event
from romancy.core.versions import bare_name
from romancy.storage.attempts import Attempt, Suspicion
from romancy.storage.batch import STATUS_NAMES, UNKNOWN, WaitRow
from romancy.storage.instances import InstanceRow

_logger = logging.getLogger("romancy")


def packed_attrs(event: Event) -> bytes | None:
    """Return the attributes that have no column of their own."""
    attrs = {
        "datacontenttype": event.datacontenttype,
        "dataschema": event.dataschema,
        "extensions": dict(event.extensions) if event.extensions else None,
    }
    kept = {k: v for k, v in attrs.items() if v is not None}
    plain = kept == {"datacontenttype": "application/json"}
    return _PLAIN_ATTRS if plain else json.dumps(kept).encode() if kept else None


def event_values(event: Event, token: bytes) -> tuple[Any, ...]:
    return (
        event.source,
        event.id,
        event.type,
        event.subject,
        event.time,
        event.target,
        packed_attrs(event),
        event.data,
        token,
        event.accepted_at,
        event.expires_at,
        event.origin,
    )


_PLAIN_ATTRS = b'{"datacontenttype": "application/json"}'


def to_event(row: tuple[Any, ...], origin: str | None = None) -> Event:
    seq, source, id, type, subject, time, target, attrs, data, accepted_at, expires_at = row
    more: dict[str, Any] = json.loads(attrs) if attrs else {}
    return Event(
        id=id,
        source=source,
        type=type,
        data=data,
        subject=subject,
        time=time,
        target=target,
        accepted_at=accepted_at,
        expires_at=expires_at,
        seq=seq,
        origin=origin,
        **more,
    )


def as_stored(event: Event, seq: int) -> Event:
    """Return an event as it would be read after it was stored under this number."""
    return Event(
        event.id,
        event.source,
        event.type,
        event.data,
        event.subject,
        event.time,
        event.datacontenttype,
        event.dataschema,
        dict(event.extensions) if event.extensions else None,
        event.target,
        event.accepted_at,
        event.expires_at,
        seq,
    )


def content_type_of(attrs: bytes | None) -> str | None:
    return json.loads(attrs).get("datacontenttype") if attrs else None


def to_instance(row: tuple[Any, ...]) -> InstanceRow:
    return InstanceRow(row[0], row[1], STATUS_NAMES.get(row[2], UNKNOWN), *row[3:])


def entry_values(entry: Entry) -> tuple[Any, ...]:
    return entry.n, entry.kind, entry.op, entry.at, entry.input, entry.payload, entry.event


def to_attempt(row: tuple[Any, ...]) -> Attempt:
    op, n, first_at, next_due, error, progress, crashes, started, culprit, since, *known, is_alone = row
    suspicion = None if since is None else Suspicion(since, *known, is_alone=bool(is_alone))
    return Attempt(
        op, n, first_at, next_due, error, progress, crashes, bool(started), suspicion, culprit if suspicion else ""
    )


def attempt_values(attempt: Attempt) -> tuple[Any, ...]:
    """Return its columns, except those of a suspicion."""
    a = attempt
    return a.op, a.n, a.first_at, a.next_due, a.error, a.progress, a.crashes, a.started


def suspect_values(attempt: Attempt, known: Suspicion) -> tuple[Any, ...]:
    """Return all its columns."""
    s = known
    more = s.since, s.tried, s.tried_alone, s.alone, s.run, s.is_alone, attempt.culprit
    return *attempt_values(attempt), *more


def likeness(wait: WaitRow) -> bytes:
    """Return a hash that a follower shares with the similar waits of its instance; empty for other waits."""
    if not wait.follows:
        return b""
    return hashlib.blake2b(len(wait.spec).to_bytes(4, "big") + wait.spec + wait.model.encode(), digest_size=16).digest()


MAX_SHAPES = 16
"""How many sets of filtered fields per event type are indexed; further waits are filed under their anchors."""
UNINDEXED = -1
"""The shape of such a wait."""


def warn_of_shapes(event_type: str) -> None:
    _logger.warning("event type %r has over %d sets of filtered fields; further ones are slow", event_type, MAX_SHAPES)


STARTED_BY = "(start)"
"""Used in place of a wait id if an event was received by the instance that it started."""


def triggered_id(workflow: str, source: str, event_id: str) -> str:
    """Return the id of the instance that an event starts: the same for the same event, so it starts only once."""
    name = bare_name(workflow)  # two versions may be announced during a deployment: it starts one of them
    parts = "".join(f"{len(part)}:{part}" for part in (name, source, event_id))
    return f"{name}-{hashlib.blake2b(parts.encode(), digest_size=12).hexdigest()}"


def shown(text: str | None) -> str | None:
    """Return text for people: NUL, which PostgreSQL does not accept, becomes a visible symbol."""
    return text.replace("\0", "␀") if text is not None else None
