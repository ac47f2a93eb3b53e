"""Where the instance of a start waits: from the queue of its workflow, its arguments and the options of the start."""

from __future__ import annotations

import logging

from romancy.core.declared_attributes import value_at
from romancy.core.inputs import read_input
from romancy.core.queues import NO_KEY, Place, check_key
from romancy.core.registry import WorkflowDefinition
from romancy.errors import InvalidInput

_logger = logging.getLogger("romancy")


def place_of(
    definition: WorkflowDefinition | None, kind: int, raw: bytes, key: str | None = None, priority: int | None = None
) -> Place | None:
    """Return where a start waits; None if its workflow has no queue, or is not known here."""
    if definition is None or definition.queue is None:
        return None
    chosen = _key(definition, kind, raw) if key is None else key
    return Place(definition.queue.name, chosen, definition.priority if priority is None else priority)


def place_of_stored(definition: WorkflowDefinition, id: str, kind: int, raw: bytes) -> Place | None:
    """Return where an instance waits that was started without a place: by an event, or where its code is not known.

    None: its input can't be read. Its code is run, and fails.
    """
    try:
        read_input(definition, kind, raw)
    except Exception:  # the run reports it, as it does for workflows without a queue
        return None
    try:
        return place_of(definition, kind, raw)
    except InvalidInput as error:
        _logger.warning("instance %r waits without a key: %s", id, error)
        return place_of(definition, kind, raw, NO_KEY)


def _key(definition: WorkflowDefinition, kind: int, raw: bytes) -> str:
    path = definition.queue_key
    if path is None:
        return NO_KEY
    args, kwargs = read_input(definition, kind, raw)
    shown = ".".join(path)
    try:
        value = value_at(definition.signature.bind(args, kwargs), path)
    except Exception as error:  # a property can raise anything
        problem = f"leads nowhere ({type(error).__name__}: {error})"
        raise InvalidInput(
            f"workflow {definition.name!r}: its key {shown!r} {problem}; pass options(key=...)"
        ) from None
    if value is None:
        return NO_KEY
    if not isinstance(value, str | int):
        raise InvalidInput(
            f"workflow {definition.name!r}: its key {shown!r} must be a string or an integer, got {value!r}; "
            "pass options(key=...)"
        )
    return check_key(value)
