"""The input an instance was started with: how it is stored, and how the code gets it back."""

from __future__ import annotations

import json
from typing import Any

from romancy.core.declared_attributes import declared
from romancy.core.history import plain_data, received, unpack_event
from romancy.core.model import MAX_RESULT
from romancy.core.registry import WorkflowDefinition
from romancy.errors import InvalidInput

BOUND, UNBOUND, EVENT = 0, 1, 2
"""How an input is stored: arguments by name; arguments as given by a starter without the code; an event."""

Call = tuple[tuple[Any, ...], dict[str, Any]]


def write_input(
    definition: WorkflowDefinition | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[int, bytes]:
    """Return the kind and the bytes of the arguments of a start."""
    if definition is not None:
        kind, raw = BOUND, definition.signature.encode_call(args, kwargs)
    else:
        try:
            kind, raw = UNBOUND, json.dumps({"args": list(args), "kwargs": kwargs}, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"workflow {name!r} is not registered here, so its arguments must be plain JSON: {error}"
            ) from None
    if len(raw) > MAX_RESULT:
        raise InvalidInput(
            f"the input of workflow {name!r} is {len(raw):,} bytes, more than the {MAX_RESULT:,} allowed; "
            "store it elsewhere and pass a reference to it"
        )
    return kind, raw


def read_input(definition: WorkflowDefinition, kind: int, raw: bytes) -> Call:
    """Return the arguments for the workflow's function, after its context."""
    signature = definition.signature
    if kind == EVENT:
        event, model = unpack_event(raw), definition.event_model
        return (received(event, model.judge(event.data or b"null") if model else plain_data(event)),), {}
    if kind == UNBOUND:
        given = json.loads(raw)
        return signature.read_given(given["args"], given["kwargs"])
    return signature.decode(raw)


def declared_by(definition: WorkflowDefinition | None, kind: int, raw: bytes) -> dict[str, str] | None:
    """Return the attributes to store with a start; None if none are declared, or the first step stores them."""
    if definition is None or definition.attributes is None or kind != BOUND:
        return None
    return declared(definition.attributes, definition.signature, *read_input(definition, kind, raw))


def is_from_input(error: BaseException) -> bool:
    """Return whether an error came from reading the stored input, before the user's function was called."""
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code is read_input.__code__:
            return True
        traceback = traceback.tb_next
    return False
