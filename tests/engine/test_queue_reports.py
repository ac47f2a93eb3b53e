"""What people are told about a queued instance: which limit holds it, and who holds the slots."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from romancy import App, Client, HTTPOptions, Queue, QueueWait, Rate, WorkflowContext, wait_event, workflow
from romancy.cli.server_target import ServerTarget
from romancy.cli.why import _state
from romancy.testing import Environment, environment
from tests.engine.helpers import command

mail = Queue("mail", max_concurrent=3, max_concurrent_per_key=2)
slow = Queue("slow", rate=Rate(1, timedelta(hours=1)))
fair = Queue("fair", rate_per_key=Rate(1, timedelta(hours=1), burst=1))


@workflow(queue=mail, key="customer")
async def letter(ctx: WorkflowContext, customer: str) -> None:
    await wait_event(ctx, "go", timeout=None)


@workflow(queue=slow)
async def rare(ctx: WorkflowContext) -> None: ...


@workflow(queue=fair, key="customer")
async def turn(ctx: WorkflowContext, customer: str) -> None: ...


@workflow
async def other(ctx: WorkflowContext) -> None: ...


ALL = [letter, rare, turn, other]


async def start(env: Environment, wf: Any, id: str, *args: str, **more: Any) -> None:
    await env.app.start_workflow(wf.options(instance_id=id, **more), *args)
    await env.settle()


async def fill(env: Environment) -> None:
    for id in ("a1", "a2", "b1"):
        await start(env, letter, id, id[0])
    for id in ("a3", "a4", "c1"):
        await start(env, letter, id, id[0])


async def held(app: App, id: str) -> QueueWait:
    [wait] = (await app.get_instance(id)).waits
    assert wait.kind == "queue"
    assert wait.queue is not None
    return wait.queue


async def test_a_limit_of_the_key_and_a_limit_of_the_queue() -> None:
    async with environment(workflows=ALL) as env:
        await fill(env)
        found = await held(env.app, "a4")
        assert (found.limit, found.is_known, found.ahead) == ("max_concurrent_per_key", True, 1)
        assert (found.running, found.running_of_key, sorted(found.holders)) == (3, 2, ["a1", "a2"])
        assert found.reason.startswith("max_concurrent_per_key=2 of the queue is reached: a")
        assert found.reason.endswith(" with key 'a' hold slots")
        found = await held(env.app, "c1")
        assert (found.limit, found.ahead, found.running_of_key, len(found.holders)) == ("max_concurrent", 0, 0, 3)
        assert found.reason.startswith("max_concurrent=3 of the queue is reached: ")
        assert found.opens_at is None
        await env.app.send_event("go", "test", to="a1")
        await env.settle()
        assert await env.app.count_instances(status="queued") == 2


async def test_more_holders_than_are_named() -> None:
    many = Queue("many", max_concurrent=5)

    @workflow(queue=many)
    async def job(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "go")

    async with environment(workflows=[job]) as env:
        for n in range(6):
            await start(env, job, f"j{n}")
        found = await held(env.app, "j5")
        assert len(found.holders) == 3
        assert found.reason.endswith(" and 2 others hold slots")


async def test_rates_say_when_the_next_one_can_begin() -> None:
    async with environment(workflows=ALL) as env:
        for id in ("r1", "r2"):
            await start(env, rare, id)
        found = await held(env.app, "r2")
        assert (found.limit, found.reason) == ("rate", "the rate of the queue is used up: 1 every 1 h")
        assert found.opens_at is not None
        began = (await env.app.get_instance("r1")).started_at
        assert abs(found.opens_at - began - timedelta(hours=1)) < timedelta(seconds=5)
        for id in ("x1", "x2"):
            await start(env, turn, id, "x")
        found = await held(env.app, "x2")
        assert (found.limit, found.reason) == ("rate_per_key", "the rate of its key is used up: 1 every 1 h, 1 at once")
        assert found.opens_at is not None
        await env.advance(timedelta(hours=1))
        assert await env.app.count_instances(status="queued") == 0


async def test_nothing_holds_it_until_a_worker_comes(db: str) -> None:
    async with App(db, workflows=ALL, worker=False) as app:
        for id in ("a1", "a2"):
            await app.start_workflow(letter.options(instance_id=id), "a")
        assert "no limit of the queue holds it: a worker admits it when" in (await held(app, "a1")).reason
        assert "admits it once those before it are, when" in (await held(app, "a2")).reason


@asynccontextmanager
async def visiting(app: App) -> AsyncGenerator[tuple[Client, httpx2.AsyncClient]]:
    transport = httpx2.ASGITransport(app)
    async with (
        Client("http://localhost", transport=transport, retry_for=0) as client,
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as visitor,
    ):
        yield client, visitor


async def test_every_face(db: str) -> None:
    async with environment(database=db, workflows=ALL) as env:
        await fill(env)
    async with App(db, workflows=ALL, worker=False, http=HTTPOptions(open=True)) as app:
        found = await held(app, "a4")
        async with visiting(app) as (client, visitor):
            [wait] = (await client.get_instance("a4")).waits
            assert wait.queue == found
            item = (await visitor.get("/api/instances/a4")).json()["waits"][0]["queue"]
            assert (item["limit"], item["ahead"], item["opens_at"]) == ("max_concurrent_per_key", 1, None)
            assert (
                "max_concurrent_per_key=2 of the queue is reached" in (await visitor.get("/viewer/instances/a4")).text
            )
            standing = await ServerTarget(client).standing("a4")
            said = _state(standing, standing.instance.started_at, is_replaced=False)
        assert said[:2] == ["it is queued behind 1 other of key a in queue mail", found.reason]
    said = await command(db, "why", "a4")
    alone = "no worker is running; start one with workflow 'letter': romancy worker MODULE"
    assert said.index(alone) < said.index("it is queued")
    async with App(db, workflows=[other]):
        assert "no worker is running" not in await command(db, "why", "a4")
    assert "it is queued behind 1 other of key a in queue mail" in said
    assert "with key 'a' hold slots" in said, "the command line does not have the code, and names the holders"
    assert "renamed or removed" in said
    assert "its turn in queue mail" in await command(db, "show", "a4")
    shown = await command(db, "show", "a4")
    assert "mail, key a" in shown


async def test_show_tells_queue_key_and_priority(db: str) -> None:
    async with environment(database=db, workflows=ALL) as env:
        await start(env, letter, "p", "a", key="vip", priority=7)
        await start(env, rare, "r")
        await start(env, other, "o")
    assert "mail, key vip, priority 7" in await command(db, "show", "p")
    assert "slow" in await command(db, "show", "r")
    assert "\nqueue " not in await command(db, "show", "o")


async def test_a_queue_that_was_renamed_is_reported(db: str, caplog: pytest.LogCaptureFixture) -> None:
    async with environment(database=db, workflows=ALL) as env:
        await fill(env)

    @workflow(name="letter", queue=Queue("post"))
    async def renamed(ctx: WorkflowContext, customer: str) -> None: ...

    @workflow(name="rare")
    async def without(ctx: WorkflowContext) -> None: ...

    caplog.set_level(logging.WARNING, "romancy")
    async with environment(database=db, workflows=[renamed]) as env:
        await env.settle()
        [said] = [record.message for record in caplog.records if "queue" in record.message]
        assert said.startswith(
            "3 instances wait in queue 'mail', which no workflow of this worker has ('letter'). If it was renamed or "
            "removed, nothing admits them: give a workflow Queue('mail', ...) until they run, or cancel them"
        )
        found = await held(env.app, "a4")
        assert (found.limit, found.is_known) == (None, False)
        assert "In the code of this process, workflow 'letter' has queue 'post'" in found.reason
        assert "If queue 'mail' was renamed or removed, it waits until a worker has that queue again" in found.reason
    caplog.clear()
    async with environment(database=db, workflows=[other, without]) as env:
        await env.settle()
        assert not caplog.records, "they belong to another service that shares the database"
    async with environment(database=db, workflows=ALL) as env:
        await env.settle()
        assert not caplog.records


async def test_one_instance_in_a_queue_that_was_removed(db: str, caplog: pytest.LogCaptureFixture) -> None:
    async with App(db, workflows=ALL, worker=False) as app:
        await app.start_workflow(rare.options(instance_id="r"))

    @workflow(name="rare")
    async def without(ctx: WorkflowContext) -> None: ...

    async with environment(database=db, workflows=[without]) as env:
        await env.settle()
        assert "1 instance waits in queue 'slow'" in caplog.text
        assert "nothing admits it: give a workflow Queue('slow', ...) until it runs, or cancel it with" in caplog.text
        assert "workflow 'rare' has no queue" in (await held(env.app, "r")).reason
