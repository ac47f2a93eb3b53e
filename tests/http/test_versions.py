"""Versions of a workflow over HTTP: instances say which one they run."""

from __future__ import annotations

import httpx2

from romancy import App, Client, WorkflowContext, workflow


@workflow(name="payment")
async def first(ctx: WorkflowContext) -> int:
    return 1


@workflow(name="payment", version=2)
async def second(ctx: WorkflowContext) -> int:
    return 2


async def test_versions_over_http() -> None:
    app = App(":memory:", workflows=[first, second], tokens=["secret"])
    transport = httpx2.ASGITransport(app)
    async with app, Client("http://test", token="secret", transport=transport) as client:
        assert await client.list_workflows() == ["payment", "payment@2"]
        results: dict[str, int] = {}
        for name in ("payment", "payment@1", "payment@2"):
            handle = await client.start_workflow(name, instance_id=name)
            results[name] = await handle.result(10)
        assert results == {"payment": 2, "payment@1": 1, "payment@2": 2}
        assert await (await client.start_workflow(second)).result(10) == 2
        found = (await client.list_instances(workflow="payment")).items
        assert {(item.workflow, item.version) for item in found} == {("payment", 1), ("payment", 2)}
        assert len(found) == 4
        assert (await client.get_instance("payment")).version == 2
        assert [item.version for item in (await client.list_instances(workflow="payment@1")).items] == [1]
    async with app, httpx2.AsyncClient(base_url="http://test", transport=transport) as browser:
        handle = await app.start_workflow("payment", instance_id="seen")
        await handle.result(10)
        headers = {"authorization": "Bearer secret"}
        page = await browser.get("/viewer/instances/seen", headers=headers)
        assert page.status_code == 200, page.text
        assert "<bdi>payment@2</bdi>" in page.text
        assert "return 2" in page.text  # the source of this version
        form = (await browser.get("/viewer/start/payment", headers=headers)).text
        assert 'data-workflow="payment@1"' in form
        assert "payment@2" in (await browser.get("/viewer/?workflow=payment", headers=headers)).text
