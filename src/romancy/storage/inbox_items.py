"""What is left in the inbox: a start or an event as a row, and back."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any, Literal, cast

from romancy.core.model import Event
from romancy.core.queues import Place
from romancy.core.versions import bare_name
from romancy.storage.batch import Start, StartAnswer
from romancy.storage.rows import packed_attrs, to_event

EVENT, START = 1, 2
"""Kinds of rows."""
COLUMNS = (
    "kind at source event type subject time target attrs data expires_at instance workflow input_kind deadline options"
).split()
_OWN_COLUMN = {"id", "workflow", "input", "input_kind", "created_at", "deadline", "since", "mine"}
_OPTIONS = [field for field in fields(Start) if field.name not in _OWN_COLUMN]
"""The fields of a start that are kept together, as JSON, unless they have their default."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The content of a row that a newer library has left: only such a one can move it."""

    problem: str
    size: int


@dataclass(frozen=True, slots=True)
class InboxItem:
    """Something to be moved on: a start or an event."""

    number: int
    content: Start | Event | Unreadable

    @property
    def size(self) -> int:
        """The length of its data."""
        content = self.content
        if isinstance(content, Unreadable):
            return content.size
        return len(content.input if isinstance(content, Start) else content.data or b"")


@dataclass(frozen=True, slots=True)
class InboxRow:
    """Something in the inbox, as lists show it. `refused`: why it stays there."""

    number: int
    kind: int
    at: int
    source: str | None
    event: str | None
    type: str | None
    instance: str | None
    workflow: str | None
    refused: str | None

    @property
    def name(self) -> Literal["start", "event", "unknown"]:
        """The kind in words."""
        return "start" if self.kind == START else "event" if self.kind == EVENT else "unknown"


def event_row(event: Event, at: int) -> dict[str, Any]:
    """Return the columns of an event."""
    return dict.fromkeys(COLUMNS) | {
        "kind": EVENT,
        "at": at,
        "source": event.source,
        "event": event.id,
        "type": event.type,
        "subject": event.subject,
        "time": at if event.time is None else event.time,
        "target": event.target,
        "attrs": packed_attrs(event),
        "data": event.data,
        "expires_at": event.expires_at,
    }


def start_row(start: Start) -> dict[str, Any]:
    """Return the columns of a start."""
    options = {f.name: value for f in _OPTIONS if (value := getattr(start, f.name)) != f.default}
    return dict.fromkeys(COLUMNS) | {
        "kind": START,
        "at": start.created_at,
        "data": start.input,
        "instance": start.id,
        "workflow": start.workflow,
        "input_kind": start.input_kind,
        "deadline": start.deadline,
        "options": json.dumps(options) if options else None,
    }


def to_item(row: tuple[Any, ...]) -> InboxItem:
    """Return what a row of the statement `inbox` holds."""
    number, kind, at, *event, instance, workflow, input_kind, deadline, options, seen = row
    data, further = event[7], cast("dict[str, Any]", json.loads(options) if options else {})
    if problem := _problem(kind, further):
        return InboxItem(number, Unreadable(problem, len(data or b"")))
    if kind == START:
        if place := further.pop("place", None):
            further["place"] = Place(*place)
        start = Start(instance, workflow, data, input_kind, at, deadline, since=seen, **further)
        return InboxItem(number, start)
    *values, expires_at = event
    return InboxItem(number, to_event((0, *values, 0, expires_at)))


def _problem(kind: int, options: Collection[str]) -> str | None:
    """Return why a row can't be moved by this version of the library, if it can't."""
    if kind not in (EVENT, START):
        return f"it is of kind {kind}"
    unknown = sorted(set(options) - {field.name for field in _OPTIONS})
    return f"it has the option {', '.join(unknown)}" if unknown else None


def refusal(start: Start, known: StartAnswer) -> str:
    """Return why a start is refused: its id is taken."""
    is_other = bare_name(known.workflow) != bare_name(start.workflow)
    return f"already exists with a different {f'workflow ({known.workflow})' if is_other else 'input'}"
