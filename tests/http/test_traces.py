"""The trace of an HTTP request: it goes on in the instance that it starts, and in the events that it brings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    Event,
    HTTPOptions,
    MiddlewareBase,
    StartRequest,
    WorkflowContext,
    activity,
    workflow,
)
from tests.http.conftest import Live

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Passed(MiddlewareBase):
    async def around_start(self, start: StartRequest, call_next: Callable[[], Awaitable[Any]]) -> Any:
        if start.arguments.get("n") == 13:
            raise PermissionError("13 is not allowed")
        return await call_next()

    async def around_send(self, event: Event, call_next: Callable[[Event], Awaitable[Any]]) -> Any:
        return await call_next(event)


@activity
async def carried(ctx: ActivityContext) -> dict[str, str]:
    return dict(ctx.headers)


@workflow
async def tells(ctx: WorkflowContext, n: int) -> dict[str, str]:
    return await carried(ctx)


@pytest.fixture
def live() -> Iterator[Live]:
    live = Live(App(":memory:", workflows=[tells], middleware=Passed(), http=HTTPOptions(open=True)))
    yield live
    live.stop()


def started(live: Live, n: int, **headers: str) -> Any:
    answer = live.client.post("/api/workflows/tells/start", json={"args": [n]}, headers=headers)
    assert answer.status_code == 201, answer.text
    id = answer.json()["instance_id"]
    return live.client.get(f"/api/instances/{id}/result?timeout=10").json()["output"]


def test_a_start_has_the_trace_of_its_request(live: Live) -> None:
    assert started(live, 1, traceparent=PARENT, tracestate="a=1", tenant="x") == {
        "traceparent": PARENT, "tracestate": "a=1"
    }  # fmt: skip
    assert started(live, 1) == {}
    assert started(live, 1, traceparent=PARENT, tracestate="x" * 5000) == {"traceparent": PARENT}


def test_a_start_that_middleware_refuses_is_forbidden(live: Live) -> None:
    answer = live.client.post("/api/workflows/tells/start", json={"args": [13]})
    assert answer.status_code == 403
    assert "13 is not allowed" in answer.text


@pytest.mark.parametrize(("own", "found"), [({}, PARENT), ({"ce-traceparent": "own"}, "own")])
def test_an_event_has_the_trace_of_its_request_unless_it_has_its_own(
    live: Live, own: dict[str, str], found: str
) -> None:
    head = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "x", "ce-type": "paid", "traceparent": PARENT, **own}
    assert live.client.post("/", content=b"1", headers={**head, "content-type": "application/json"}).is_success
    [item] = live.client.get("/api/events").json()["items"]
    assert item["extensions"] == {"traceparent": found}
