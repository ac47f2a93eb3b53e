"""What pages show of views and attributes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from romancy import App, HTTPOptions, WorkflowContext, wait_event, workflow
from tests.viewer.test_catalog import until


@workflow(attributes={"customer": "customer", "n": "n"})
async def showing(ctx: WorkflowContext, customer: str, n: int = 7) -> None:
    ctx.set_view({"note": "<b>&", "done": 1})
    await wait_event(ctx, "go")


@workflow
async def silent(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "go")


@pytest.fixture
async def visitor() -> AsyncIterator[httpx2.AsyncClient]:
    async with App(":memory:", workflows=[showing, silent], http=HTTPOptions(open=True)) as app:
        for id, customer in {"a": "c-7", "b": "7", "odd": '"><i>'}.items():
            await app.start_workflow(showing.options(instance_id=id), customer)
            await until(app, id, "waiting_for_event")
        await app.start_workflow(silent.options(instance_id="silent"))
        await until(app, "silent", "waiting_for_event")
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost/viewer") as client:
            yield client


async def test_an_instance_shows_its_view_and_its_attributes_as_links(visitor: httpx2.AsyncClient) -> None:
    page = (await visitor.get("/instances/a")).text
    view = page.split('data-live-part="view"')[1].split("</section>")[0]
    assert "&lt;b&gt;&amp;" in view
    assert 'href="/viewer/instances?attribute=customer%3Dc-7"' in page
    assert 'href="/viewer/instances?attribute=n%3D7"' in page
    assert 'href="/viewer/instances?attribute=customer%3D%227%22"' in (await visitor.get("/instances/b")).text
    odd = (await visitor.get("/instances/odd")).text
    assert "<i>" not in odd


async def test_an_instance_that_shows_nothing_has_neither(visitor: httpx2.AsyncClient) -> None:
    page = (await visitor.get("/instances/silent")).text
    assert "view-title" not in page
    assert "attributes" not in page
    assert 'data-live-part="view"' in page, "so that one that comes later appears"


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("attribute=customer%3Dc-7", {"a"}),
        ("attribute=customer%3D%227%22&attribute=n%3D7&attribute=", {"b"}),
        ("attribute=n%3D7", {"a", "b", "odd"}),
        ("attribute=n%3Dnull", {"silent"}),
        ("attribute=", {"a", "b", "odd", "silent"}),
    ],
)
async def test_the_list_is_filtered_by_attributes(visitor: httpx2.AsyncClient, query: str, ids: set[str]) -> None:
    page = (await visitor.get(f"/?{query}")).text
    assert {id for id in ("a", "b", "odd", "silent") if f'data-key="{id}"' in page} == ids
    newer = (await visitor.get(f"/newer?{query}")).json()
    assert newer == {"newer": len(ids)}


async def test_the_filter_stays_in_the_form_and_in_the_links(visitor: httpx2.AsyncClient) -> None:
    page = (await visitor.get("/?attribute=customer%3Dc-7")).text
    assert 'name="attribute" value="customer=c-7"' in page
    assert 'data-query="attribute=customer%3Dc-7"' in page
    assert '<details class="more" open>' in page


async def test_a_wrong_filter_is_explained(visitor: httpx2.AsyncClient) -> None:
    answer = await visitor.get("/?attribute=customer")
    assert answer.status_code == 400
    assert "like customer=c-7" in answer.text
