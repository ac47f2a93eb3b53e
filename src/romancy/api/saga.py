"""`compensate` and `saga`: undo what a workflow did, if it fails."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, ParamSpec

from romancy.api.activity import Activity, settings_of
from romancy.api.context import WorkflowContext, instance_of
from romancy.core.compensation import Compensation, compensation_of
from romancy.core.instance import Instance
from romancy.core.scope import Scope, current_scope

P = ParamSpec("P")


def compensate(ctx: WorkflowContext, undo: Activity[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Call `undo` with these arguments if the workflow, or the surrounding `saga` block, fails or is cancelled.

    Undos run one by one, the last one first. Write it before a call whose outcome may stay unknown, so that it covers
    that, too.

    >>> compensate(ctx, refund, payment)
    """
    if not isinstance(undo, Activity):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"compensate(ctx, ...) takes an activity, not {undo!r}; put @activity on it")
    instance = _instance_of(ctx, "compensate")
    instance.check_alive()
    instance.glance()
    definition, retry, timeout = settings_of(undo)
    arguments = definition.signature.encode_call(args, kwargs)
    compensation_of(instance).owe_by_hand(definition, retry, timeout, arguments)


class saga:
    """A block that is undone as a whole: if an exception leaves it, its undos run before the exception goes on.

    Before that, tasks that were created in the block are cancelled. They are waited for, and so are children and calls
    with an undo that were given up.

    If the block ends normally, its undos belong to the surrounding block, or to the workflow.

    >>> async with saga(ctx):
    ...     booking = await reserve(ctx, room)
    ...     await charge(ctx, booking)
    """

    def __init__(self, ctx: WorkflowContext) -> None:
        self._instance = _instance_of(ctx, "saga")
        self._entered: list[tuple[Compensation, Scope, Scope]] = []

    async def __aenter__(self) -> None:
        compensation = compensation_of(self._instance)
        outer, inner = compensation.scope, compensation.enter()
        self._entered.append((compensation, outer, inner))
        current_scope.set(inner)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        compensation, outer, inner = self._entered.pop()
        current_scope.set(outer)
        if isinstance(error, Exception | asyncio.CancelledError):
            await compensation.undo_block(inner)
        else:
            inner.is_closed = True


def _instance_of(ctx: WorkflowContext, name: str) -> Instance:
    if not isinstance(ctx, WorkflowContext):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}(ctx) must be called in a workflow, with its ctx, not {ctx!r}")
    return instance_of(ctx)
