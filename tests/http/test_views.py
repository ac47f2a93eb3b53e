"""What instances show of themselves, over HTTP and through the clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from romancy import Client, InvalidInput, WorkflowContext, sync, wait_event, workflow
from tests.http.conftest import Live, assert_error


@dataclass
class Progress:
    done: int
    total: int


@workflow(attributes={"customer": "customer", "n": "n", "vip": "vip"})
async def showing(ctx: WorkflowContext, customer: str, n: int = 7, vip: bool = True) -> None:
    ctx.set_view(Progress(1, n))
    await wait_event(ctx, "go")


@pytest.fixture
def shown(serve: Any) -> Live:
    live: Live = serve(workflows=[showing])
    for id, kwargs in {"a": {"customer": "c-7"}, "b": {"customer": "7", "n": 8, "vip": False}}.items():
        body = {"kwargs": kwargs, "instance_id": id}
        assert live.client.post("/api/workflows/showing/start", json=body).status_code == 201
        live.until(id, "waiting_for_event")
    return live


@pytest.fixture
async def client(shown: Live) -> AsyncIterator[Client]:
    async with Client(shown.url) as client:
        yield client


def test_an_instance_has_its_view_and_attributes(shown: Live) -> None:
    found = shown.client.get("/api/instances/a").json()
    assert found["view"] == {"done": 1, "total": 7}
    assert found["attributes"] == {"customer": "c-7", "n": 7, "vip": True}
    listed = shown.client.get("/api/instances").json()["items"]
    assert [item["view"]["total"] for item in listed] == [8, 7]


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("where.customer=c-7", ["a"]),
        ("where[customer]=c-7", ["a"]),
        ("where%5Bcustomer%5D=c-7", ["a"]),
        ("where.customer=7", []),
        ('where.customer="7"', ["b"]),
        ("where.n=7", ["a"]),
        ("where.vip=true", ["a"]),
        ('where.vip="true"', []),
        ("where.vip=false&where.n=8", ["b"]),
        ("where.vip=false&where.n=7", []),
        ("where.none=null", ["b", "a"]),
        ("where.n=8&status=waiting_for_event&status=failed", ["b"]),
        ("where.n=8&status=failed", []),
        ("where.n=7.0", []),
    ],
)
def test_lists_and_counts_by_attribute(shown: Live, query: str, ids: list[str]) -> None:
    answer = shown.client.get(f"/api/instances?{query}")
    assert [item["instance_id"] for item in answer.json()["items"]] == ids
    assert shown.client.get(f"/api/instance-count?{query}").json() == {"count": len(ids)}


@pytest.mark.parametrize(
    "query", ["where=x", "where.=x", "where.a b=x", "where.a=1&where.a=2", f"where.a={'x' * 256}", "where.a=1&other=2"]
)
def test_a_wrong_filter_is_refused(shown: Live, query: str) -> None:
    assert_error(shown.client.get(f"/api/instances?{query}"), 400)


@pytest.mark.parametrize("where", ["a=1", [], {"a": 1.0}, {"a": 1.5}, {"a": []}, {"": 1}, {"a": "x" * 256}])
def test_a_wrong_filter_for_many_is_refused(shown: Live, where: Any) -> None:
    assert_error(shown.client.post("/api/instances/cancel", json={"where": where}), 400)


def test_many_are_cancelled_by_attribute(shown: Live) -> None:
    assert_error(shown.client.post("/api/instances/cancel", json={"where": {}}), 400)
    answer = shown.client.post("/api/instances/cancel", json={"where": {"n": 8, "vip": False}}).json()
    assert answer["changed"] == 1
    shown.until("b", "cancelled")
    assert shown.client.get("/api/instances/a").json()["status"] == "waiting_for_event"


async def test_the_client_says_what_the_app_says(shown: Live, client: Client) -> None:
    handle = client.handle("a")
    assert await handle.view(Progress) == Progress(1, 7)
    assert await handle.view() == {"done": 1, "total": 7}
    assert (await client.get_instance("a")).attributes == {"customer": "c-7", "n": 7, "vip": True}
    for where, ids in (
        ({"customer": "c-7"}, ["a"]),
        ({"customer": "7"}, ["b"]),
        ({"customer": 7}, []),
        ({"vip": True}, ["a"]),
        ({"none": None}, ["b", "a"]),
        ({"n": 7, "vip": True}, ["a"]),
        ({}, ["b", "a"]),
    ):
        page = await client.list_instances(where=where)
        assert [item.instance_id for item in page.items] == ids
        assert await client.count_instances(where=where) == len(ids)
    assert (await client.cancel_workflows(where={"customer": "7"})).changed == 1
    with pytest.raises(InvalidInput, match="attribute 'a'"):
        await client.list_instances(where={"a": 1.5})  # type: ignore[dict-item]


async def test_there_is_no_view_yet(serve: Any) -> None:
    live: Live = serve()
    live.start("nap", id="n")
    async with Client(live.url) as client:
        assert await client.handle("n").view() is None
        assert await client.handle("n").view(Progress) is None


def test_an_older_server_sends_neither(shown: Live) -> None:
    item = shown.client.get("/api/instances/a").json()
    del item["view"], item["attributes"]
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json=item))
    with sync.Client("http://older", transport=transport) as client:  # type: ignore[arg-type]
        found = client.get_instance("a")
    assert (found.view, found.attributes) == (None, {})


def test_the_blocking_verbs(shown: Live) -> None:
    with sync.Client(shown.url) as client:
        assert client.handle("a").view(Progress) == Progress(1, 7)
        assert [item.instance_id for item in client.list_instances(where={"n": 7}).items] == ["a"]
    with sync.App(":memory:", workflows=[showing]) as app:
        handle = app.start_workflow(showing, "c-7")
        assert app.count_instances(where={"customer": "c-7"}) == 1
        while handle.view() is None:
            assert handle.status() in ("running", "waiting_for_event")
        assert handle.view(Progress) == Progress(1, 7)
