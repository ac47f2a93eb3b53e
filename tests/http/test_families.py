"""Parents, children and runs over HTTP, and what the client reads of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from romancy import App, Client, HTTPOptions, WorkflowContext, wait_event, workflow
from romancy.client.responses import to_instance, to_wait
from tests.viewer.test_catalog import until


@workflow
async def kid(ctx: WorkflowContext, n: int) -> int:
    await wait_event(ctx, "go")
    return n


@workflow(version=2)
async def parent(ctx: WorkflowContext) -> int:
    if ctx.run_number == 1:
        parent.continue_as_new(ctx)
    return await kid(ctx, 1)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[App, httpx2.AsyncClient]]:
    async with App(":memory:", workflows=[kid, parent], http=HTTPOptions(open=True)) as app:
        await app.start_workflow(parent, instance_id="p")
        await until(app, "p", "waiting_for_child")
        await until(app, "p/kid:1@2", "waiting_for_event")
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield app, client


async def test_an_instance_has_its_parent_run_and_version() -> None:
    async with serving() as (_, client):
        found = (await client.get("/api/instances/p")).json()
        child = (await client.get("/api/instances/p%2Fkid:1@2")).json()
        listed = (await client.get("/api/instances?parent=p")).json()["items"]
        waits = (await client.get("/api/waits?instance_id=p")).json()["items"]
    assert (found["run_number"], found["version"], found["parent"]) == (2, 2, None)
    assert found["run_started_at"] > found["started_at"]
    [wait] = found["waits"]
    assert (wait["kind"], wait["wait_id"], wait["child"]) == ("child", "kid:1@2", "p/kid:1@2")
    assert waits == found["waits"]
    assert (child["parent"], child["run_number"], child["version"]) == ("p", 1, 1)
    assert child["run_started_at"] == child["started_at"]
    assert [item["instance_id"] for item in listed] == ["p/kid:1@2"]
    assert listed[0]["parent"] == "p"


async def test_the_client_reads_the_same_as_the_app() -> None:
    async with serving() as (app, http):
        client = Client("http://localhost")
        client._wire._http = http
        for id in ("p", "p/kid:1@2"):
            assert await client.get_instance(id) == await app.get_instance(id)
        page = await client.list_instances(parent="p")
        assert list(page.items) == list((await app.list_instances(parent="p")).items)
        waits = await client.list_waits(instance_id="p")
        assert list(waits.items) == list((await app.list_waits(instance_id="p")).items)


async def test_an_older_server_sends_less() -> None:
    async with serving() as (_, client):
        item = (await client.get("/api/instances/p")).json()
    for name in ("parent", "run_number", "run_started_at", "forked_from"):
        del item[name]
    del item["waits"][0]["child"]
    found = to_instance(item)
    assert (found.parent, found.run_number, found.run_started_at, found.forked_from) == (None, 1, None, None)
    assert to_wait(item["waits"][0]).child is None
