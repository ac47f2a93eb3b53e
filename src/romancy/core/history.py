"""The history of an instance: what has happened to it, entry by entry, in the order it was fed."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, cast

from pydantic_core import to_json

from romancy.core.model import Event, ReceivedEvent, from_us
from romancy.core.redaction import HIDDEN, is_redacting, redacted, redacted_at, redacting

_CHARSET = re.compile(r"""charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
_HUGE = re.compile(rb"\d[eE]\+?\d{3}|\d{300}")
_LONG = 4000
"""Digits. Python refuses to parse integers that are much longer."""
MARKED_ATTEMPTS = 20
"""Maximum failed attempts of one activity that are kept in the history."""
IN_TRANSACTION = 0
"""`Entry.event` of a completed activity whose own writes were committed with the entry. No event has this number."""


class Kind(IntEnum):
    """The kind of an entry. The numbers are stored: never reuse one."""

    ACTIVITY_COMPLETED = 1
    ACTIVITY_FAILED = 2
    TIMER_FIRED = 3
    EVENT_RECEIVED = 4
    WAIT_TIMED_OUT = 5
    CANCEL_REQUESTED = 6
    EVENT_SENT = 7
    """Not fed: a mark that the code sent this event after the preceding entry."""
    ATTEMPT_FAILED = 8
    """Not fed: a mark that an attempt of this activity failed and will be retried. `pack_attempt` makes its `input`.

    Only the first `MARKED_ATTEMPTS` leave a mark: retries can go on forever, and the history must not grow with them.
    """
    CHILD_COMPLETED = 9
    CHILD_FAILED = 10
    PATCHED = 11
    """Not fed: a mark that the code took the new way of a change, named by `op`, after the preceding entry."""
    RESUMED = 12
    """The instance was resumed after undos had failed."""
    RETRIED = 13
    """Not fed: a mark that the instance was retried after it had ended. `pack_dropped` makes its `input`.

    The entries that it names no longer count. The payload is the error that the instance had ended with.
    """
    CHILD_CANCELLED = 14
    CHILD_REFUSED = 15
    """The child could not be started: its id belongs to another instance."""
    EMITTED = 16
    """Not fed: a mark that the code emitted a value after the preceding entry. `input` has the digest of the value."""


class Payload(Enum):
    """What the payload of an entry holds."""

    NOTHING = "nothing"
    VALUE = "a value"
    FAILURE = "a failure"
    EVENT = "an event"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an entry says: in a word for people, and in its payload."""

    outcome: str
    payload: Payload = Payload.NOTHING


OTHER_MEANINGS: Mapping[int, Meaning] = {
    Kind.CANCEL_REQUESTED: Meaning("cancel requested", Payload.TEXT),
    Kind.EVENT_SENT: Meaning("sent"),
    Kind.ATTEMPT_FAILED: Meaning("tried", Payload.FAILURE),
    Kind.PATCHED: Meaning("patched"),
    Kind.RETRIED: Meaning("retried", Payload.FAILURE),
    Kind.EMITTED: Meaning("emitted"),
}
"""What the entries say that answer no operation. For the others see `core/operations`."""


@dataclass(slots=True)
class Entry:
    """One entry. `input` is what the code asked for (arguments, or types and filter); replay compares it."""

    n: int
    kind: int
    op: str
    at: int
    input: bytes | None = None
    payload: bytes | None = None
    event: int | None = None


def is_in_transaction(entry: Entry) -> bool:
    """Return whether an activity completed in one transaction with what it wrote to the database."""
    return entry.kind == Kind.ACTIVITY_COMPLETED and entry.event == IN_TRANSACTION


def pack_event(event: Event, place: str | None = None, *, was_copy: bool = False) -> bytes:
    """Pack an event into one payload: a line of attributes, then its data unchanged.

    `place`: where the storage found it, if another wait is to go on from there. `was_copy`: it had been given back.
    """
    head: dict[str, Any] = {
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "time": event.time if event.time is not None else event.accepted_at,
        "datacontenttype": event.datacontenttype,
        "dataschema": event.dataschema,
        "extensions": dict(event.extensions or {}),
        "place": place,
        "was_copy": was_copy or None,
    }
    line = to_json({k: v for k, v in head.items() if v is not None and v != {}})
    return line if event.data is None else line + b"\n" + event.data


def unpack_event(payload: bytes) -> Event:
    """Unpack a payload of `pack_event`. The time is always set."""
    line, newline, data = payload.partition(b"\n")
    head: dict[str, Any] = json.loads(line)
    head.pop("place", None)
    head.pop("was_copy", None)
    return Event(data=data if newline else None, **head)


def was_copy(payload: bytes) -> bool:
    """Return whether the event in a payload of `pack_event` had been given back before it was taken."""
    return json.loads(payload.partition(b"\n")[0]).get("was_copy", False)


def place_of(payload: bytes) -> str | None:
    """Return the place in a payload of `pack_event`."""
    return json.loads(payload.partition(b"\n")[0]).get("place")


def pack_attempt(attempt: int, began: int | None, next_due: int) -> bytes:
    """Pack the mark of a failed attempt: its number, when it was to begin if known, and when the next one is due."""
    known = {} if began is None else {"began": began}
    return json.dumps({"attempt": attempt, **known, "next": next_due}).encode()


def pack_dropped(numbers: Iterable[int], origin: str | None = None) -> bytes:
    """Pack the mark of a retry: the numbers of the entries that no longer count. `origin`: of a fork, its source."""
    known = {} if origin is None else {"origin": origin}
    return json.dumps({"dropped": sorted(numbers), **known}).encode()


def pack_replaced(op: str) -> bytes:
    """Pack the mark that another child was started in place of one that could not go on after a retry."""
    return json.dumps({"dropped": [], "replaced": op}).encode()


def replaced_by(retried: Entry) -> str | None:
    """Return the operation in a mark of `pack_replaced`. Such a mark is no retry of its own."""
    return json.loads(retried.input or b"{}").get("replaced")


def dropped_by(retried: Entry) -> Sequence[int]:
    """Return the numbers in the mark of a retry."""
    return json.loads(retried.input or b"{}").get("dropped", ())


def is_json(content_type: str | None) -> bool:
    """Return whether data of this content type is JSON. Without a content type, it can be anything."""
    if content_type is None:
        return False
    kind = content_type.partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json"))


def plain_data(event: Event) -> Any:
    """Return the data of an event without a model: JSON as Python values, text as str, anything else as bytes."""
    if event.data is None:
        return None
    if is_json(event.datacontenttype):
        return _from_json(event.data)
    if event.datacontenttype is None:
        try:
            return _from_json(event.data)
        except ValueError:
            return event.data
    if event.datacontenttype.strip().lower().startswith("text/"):
        named = _CHARSET.search(event.datacontenttype)
        try:
            return event.data.decode(named[1] if named else "utf-8", "replace")
        except LookupError:  # an unknown charset
            return event.data
    return event.data


def _from_json(raw: bytes) -> Any:
    try:
        return json.loads(raw, parse_float=_float) if _HUGE.search(raw) else json.loads(raw)
    except ValueError:  # perhaps only an integer that is too long for Python
        return json.loads(raw, parse_int=_integer, parse_float=_float)


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) < _LONG else Decimal(text)


def _float(text: str) -> float | Decimal:
    """Keep a number exact that would be infinite as a float."""
    number = float(text)
    return Decimal(text) if math.isinf(number) else number


def received(event: Event, data: Any) -> ReceivedEvent[Any]:
    """Return an event as workflow code and hooks see it."""
    return ReceivedEvent(
        data=data,
        type=event.type,
        source=event.source,
        id=event.id,
        time=from_us(event.time if event.time is not None else event.accepted_at),
        subject=event.subject,
        datacontenttype=event.datacontenttype,
        dataschema=event.dataschema,
        extensions=dict(event.extensions or {}),
    )


def showable(payload: bytes | None) -> Any:
    """Return a payload in readable form: as JSON if it is JSON, else as base64."""
    if payload is None:
        return None
    try:
        return redacted(json.loads(payload))
    except (ValueError, RecursionError):
        return HIDDEN if is_redacting() else {"base64": base64.b64encode(payload).decode()}


def shown_identity(entry: Entry) -> Any:
    """Return the input of an entry in readable form. What Romancy itself says there is not redacted."""
    if entry.kind not in _OWN_INPUT or not is_redacting():
        return showable(entry.input)
    with redacting(None):
        shown: Any = showable(entry.input)
    if isinstance(shown, dict) and (where := cast("dict[str, Any]", shown).get("filter", {}).get("where")):
        shown["filter"]["where"] = [[path, redacted_at(path, value)] for path, value in where]
    return cast("Any", shown)


Marks = dict[tuple[int, str], Entry]
"""The marks of one activation, by kind and op."""
_OWN_INPUT = frozenset({Kind.ATTEMPT_FAILED, Kind.RETRIED, Kind.EVENT_RECEIVED, Kind.WAIT_TIMED_OUT})
"""Entries whose input was made by Romancy."""
SEEN_MARKS = frozenset({Kind.EVENT_SENT, Kind.PATCHED, Kind.EMITTED})
"""Marks that the code makes, and makes again when it is replayed."""


def with_marks(entries: Iterable[Entry]) -> Iterator[tuple[Entry | None, Marks]]:
    """Yield each fed entry with the marks the code made after it, in order. The first pair (the start) has no entry.

    Failed attempts are left out: the code never sees them.
    """
    fed: Entry | None = None
    marks: Marks = {}
    for entry in entries:
        if entry.kind in SEEN_MARKS:
            marks[entry.kind, entry.op] = entry
        elif entry.kind != Kind.ATTEMPT_FAILED:
            yield fed, marks
            fed, marks = entry, {}
    yield fed, marks
