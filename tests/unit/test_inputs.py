"""Arguments of a start: bound by a starter that has the workflow, else kept as given and bound by the worker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from romancy import WorkflowContext, workflow
from romancy.core.inputs import BOUND, UNBOUND, read_input, write_input
from romancy.errors import InvalidInput


@workflow
async def order(ctx: WorkflowContext, order_id: str, amount: int = 1) -> None: ...


@workflow
async def many(ctx: WorkflowContext, first: int, *rest: int, note: str = "", **more: float) -> None: ...


def given(wf: Any, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the code gets of a start by a process that does not have it."""
    kind, raw = write_input(None, wf.name, args, kwargs)
    assert kind == UNBOUND
    return read_input(wf._definition, kind, raw)


def test_arguments_of_a_starter_without_the_code() -> None:
    assert given(order, "ORD-1") == (("ORD-1", 1), {})
    assert given(order, amount=5, order_id="ORD-1") == (("ORD-1", 5), {})
    assert given(many, 1, 2, 3, note="x", half=0.5) == ((1, 2, 3), {"note": "x", "half": 0.5})
    assert given(many, 1) == ((1,), {"note": ""})


def test_arguments_that_never_fitted_are_not_said_to_have_changed() -> None:
    with pytest.raises(InvalidInput) as told:
        given(order, 42)
    said = str(told.value)
    assert said == (
        "workflow 'order' was started by name with an argument that does not fit: order_id Input should be a valid "
        "string, got 42; its signature is order(ctx, order_id: str, amount: int = 1); start another with arguments "
        "that fit, as JSON: strings in quotes"
    )
    with pytest.raises(InvalidInput, match=r'got "x{99}\.\.\.; its'):
        given(order, "ORD-1", "x" * 1000)
    with pytest.raises(InvalidInput, match=r"workflow 'order' can't be called like this: missing a required argument"):
        given(order)


def test_a_stored_argument_that_fitted_once() -> None:
    kind, raw = write_input(order._definition, "order", ("ORD-1",), {})
    assert (kind, json.loads(raw)) == (BOUND, {"order_id": "ORD-1", "amount": 1})
    with pytest.raises(InvalidInput, match="a stored argument of workflow 'order' no longer fits: order_id"):
        read_input(order._definition, kind, b'{"order_id":42,"amount":1}')
