"""Child workflows: `await other(ctx, ...)` and `start_workflow(ctx, other, ...)`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar, TypeVarTuple, cast, overload

from romancy.api.context import WorkflowContext, instance_of
from romancy.api.workflow import Workflow, child_call
from romancy.core.instance import Instance
from romancy.core.model import Duration, duration_us
from romancy.core.operations import ChildCall

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Ts = TypeVarTuple("Ts")


class ChildHandle(Generic[R_co]):
    """A child that was started with `start_workflow(ctx, ...)`. It goes on even if its parent ends."""

    def __init__(self, instance: Instance, call: ChildCall) -> None:
        self._instance, self._call = instance, call

    def __repr__(self) -> str:
        return f"<ChildHandle {self.instance_id!r}>"

    @property
    def instance_id(self) -> str:
        """The id of the child."""
        return self._call.child

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the child to end, and return what it returned.

        Raises `WorkflowFailed`, `WorkflowCancelled` or `InstanceExists` if it ended otherwise, and `TimeoutError` if it
        takes longer than `timeout`. The child goes on then.
        """
        assert self._call.future is not None
        seconds = None if timeout is None else duration_us(timeout, "timeout") / 1_000_000
        async with asyncio.timeout(seconds):
            return cast("R_co", await asyncio.shield(self._call.future))

    async def cancel(self, reason: str | None = None) -> None:
        """Ask the child to cancel. Its code can clean up first."""
        instance = self._instance
        instance.check_alive()
        instance.glance()
        self._call.is_cancelled = True
        if not (self._call.is_over or instance.replaying) and instance.offspring is not None:
            instance.offspring.asks.append((self.instance_id, reason or ""))


@overload
async def start_workflow(
    ctx: WorkflowContext,
    wf: Callable[[WorkflowContext, *Ts], Coroutine[Any, Any, R]],
    /,
    *args: *Ts,
    instance_id: str | None,
) -> ChildHandle[R]: ...
@overload
async def start_workflow(
    ctx: WorkflowContext, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> ChildHandle[R]: ...
@overload
async def start_workflow(
    ctx: WorkflowContext, wf: str, /, *args: Any, instance_id: str | None = None, **kwargs: Any
) -> ChildHandle[Any]: ...
async def start_workflow(
    ctx: WorkflowContext, wf: Any, /, *args: Any, instance_id: str | None = None, **kwargs: Any
) -> ChildHandle[Any]:
    """Start a child that runs independently: it is not cancelled when its parent ends or stops waiting for it.

    >>> child = await start_workflow(ctx, archive, count)
    >>> await child.result()

    To start a child and wait for it, call it: `await archive(ctx, count)`. If the id belongs to another instance,
    `child.result()` raises `InstanceExists`.
    """
    instance = instance_of(ctx)
    call = child_call(instance, wf, args, kwargs, instance_id, is_free=True)
    instance.perform(call)
    return ChildHandle(instance, call)
