"""The mail of a worker's instances: what other processes left for them."""

import asyncio
import os
from typing import Any

import pytest

from romancy import WorkflowContext, wait_event, workflow
from romancy.storage.batch import CANCEL, Batch, Request
from romancy.testing import Environment


@workflow
async def waiter(ctx: WorkflowContext) -> Any:
    return (await wait_event(ctx, "go")).data


async def cancel_elsewhere(env: Environment, *ids: str) -> None:
    """Another process stores requests: this one has to find them in the mail."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    now = env.clock.now()
    requests = [Request(id, CANCEL, b"", now) for id in ids]
    batch = Batch(None, (), os.urandom(16), now, requests=requests)
    env.app._runtime.engine.storage.commit(batch, lambda answer, error: done.set_result(None))
    await done


async def hold(env: Environment, id: str) -> list[Any]:
    """It may have killed its worker, and waits for its turn. Returns its inputs."""
    engine, inputs = env.app._runtime.engine, list[Any]()
    engine.exits.drop(engine.residents[id])
    engine.residents.hold(id, inputs)
    return inputs


async def sweep(env: Environment) -> None:
    env.app._runtime.engine.kick()
    await env.settle()


@pytest.fixture
async def three(env: Environment, monkeypatch: pytest.MonkeyPatch) -> Environment:
    monkeypatch.setattr("romancy.engine.sweep.MAIL", 3)
    env.app.register(waiter)
    for id in ("a", "b", "c"):
        await env.app.start_workflow(waiter, instance_id=id)
    await env.settle()
    return env


async def test_letters_to_an_instance_that_is_held_do_not_hide_those_of_others(three: Environment) -> None:
    inputs = await hold(three, "a")
    await cancel_elsewhere(three, *["a"] * 20)
    await cancel_elsewhere(three, "c")
    await sweep(three)
    assert (await three.app.get_instance("c")).status == "cancelled"
    for _ in range(5):
        await sweep(three)
    assert len(inputs) == 0, "the same letters are not gathered again and again"
    three.app._runtime.engine.residents.let_in("a")  # which leads to a sweep
    await three.settle()
    assert (await three.app.get_instance("a")).status == "cancelled"
