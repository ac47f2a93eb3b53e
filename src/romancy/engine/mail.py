"""What instances tell each other: the starts of children, requests to cancel them, and their ends."""

from __future__ import annotations

from collections.abc import Mapping

from romancy.core.history import Kind
from romancy.core.inputs import declared_by
from romancy.core.instance import Instance
from romancy.core.model import FOREVER_US
from romancy.core.operations import ChildCall
from romancy.core.outcome import Outcome
from romancy.engine.resident import CancelAsked, ChildEnded, ChildSpent, Hastened, Input
from romancy.storage.batch import (
    CANCEL,
    CHILD_CANCELLED,
    CHILD_COMPLETED,
    CHILD_FAILED,
    CHILD_SPENT,
    ENDED,
    GIVEN_UP,
    HASTEN,
    Ending,
    Start,
)

ENDINGS: Mapping[int, Kind] = {
    CHILD_COMPLETED: Kind.CHILD_COMPLETED,
    CHILD_FAILED: Kind.CHILD_FAILED,
    CHILD_CANCELLED: Kind.CHILD_CANCELLED,
}
"""What becomes of a request that a child left: an entry of this kind."""


def to_input(request: int, kind: int, payload: bytes, op: str | None) -> Input | None:
    """Return the input for a request; None if there is nothing to feed."""
    if kind in (CANCEL, GIVEN_UP):
        return CancelAsked(request, payload.decode("utf-8", "replace"), by_parent=kind == GIVEN_UP)
    if kind in ENDINGS:
        return ChildEnded(request, op or "", ENDINGS[kind], payload)
    if kind == CHILD_SPENT:
        return ChildSpent(request, op or "")
    if kind == HASTEN:
        return Hastened(request)
    return None


def ending_of(parent: tuple[str, str], outcome: Outcome) -> Ending:
    """Return what a child that ends leaves for its parent."""
    id, op = parent
    error = b"{}" if outcome.error is None else outcome.error.encode()
    payload = outcome.output or b"null" if outcome.status == "completed" else error
    return Ending(id, op, ENDED[outcome.status], payload)


def child_start(parent: Instance, call: ChildCall, now: int) -> Start:
    """Return the start of a child that its parent asked for. It has the headers of its parent."""
    deadline = None if call.timeout is None else min(now + call.timeout, FOREVER_US)
    about = call.child, call.workflow, call.arguments, call.input_kind, now, deadline
    attributes = declared_by(call.definition, call.input_kind, call.arguments)
    start = Start(*about, parent=parent.id, parent_op=call.id, is_free=call.is_free or None, attributes=attributes)
    start.place, start.headers = call.place, parent.run.headers
    return start
