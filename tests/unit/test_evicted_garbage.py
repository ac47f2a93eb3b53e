"""An evicted instance leaves nothing to the garbage collector, whatever its code waited for."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from romancy import WorkflowContext, sleep, wait_event, workflow
from romancy.core.instance import Instance
from tests.unit.test_instance import T0, charge


class Watched(Instance):
    __slots__ = ("__weakref__",)


async def _event(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "paid", where={"order": 1})


async def _sleep(ctx: WorkflowContext) -> None:
    await sleep(ctx, 10)


async def _call(ctx: WorkflowContext) -> None:
    await charge(ctx, 1)


async def _alike(ctx: WorkflowContext) -> None:
    await asyncio.gather(wait_event(ctx, "paid"), wait_event(ctx, "paid"))


async def _group(ctx: WorkflowContext) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(charge(ctx, 1))
        await sleep(ctx, 10)


async def _time_limit(ctx: WorkflowContext) -> None:
    async with asyncio.timeout(60):
        await charge(ctx, 1)


async def _first(ctx: WorkflowContext) -> None:
    tasks = [asyncio.create_task(sleep(ctx, n)) for n in (10, 20)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("wait", [_event, _sleep, _call, _alike, _group, _time_limit, _first])
def test_nothing_is_left_of_it(wait: Callable[[WorkflowContext], Awaitable[None]]) -> None:
    async def wf(ctx: WorkflowContext) -> None:
        await wait(ctx)

    definition: Any = workflow(name="wf")(wf)._definition
    instance = Watched(definition, "i", b"{}", T0)
    instance.begin()
    instance.take()
    assert instance.ops
    left = weakref.ref(instance)
    instance.evict()
    del instance
    assert left() is None
