"""What goes wrong is raised as the app would raise it; what only a network can do wrong has errors of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from romancy import (
    NO_RETRY,
    AccessDenied,
    ActivityContext,
    App,
    AppNotRunning,
    Client,
    InstanceExists,
    InstanceNotFound,
    InvalidEvent,
    InvalidInput,
    NotStorable,
    Overloaded,
    RomancyError,
    StorageError,
    UnexpectedAnswer,
    UnknownWorkflow,
    WorkflowBlocked,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    activity,
    wait_event,
    workflow,
)
from romancy.options import HTTPOptions
from romancy.sync import Client as SyncClient
from tests.http.conftest import Live, Order, buy, nap, odd_values
from tests.http.flaky import Canned, proxy


@pytest.fixture
async def client(live: Live, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.delenv("ROMANCY_TOKEN", raising=False)
    async with Client(live.url) as client:
        yield client


BAD: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("get_instance", ("nobody",), {}),
    ("get_instance", ("",), {}),
    ("get_instance", ("\ud800",), {}),
    ("get_instance", (7,), {}),
    ("get_history", ("nobody",), {}),
    ("cancel_workflow", ("nobody",), {}),
    ("cancel_workflow", ("nobody",), {"reason": 7}),
    ("resume_workflow", ("nobody",), {}),
    ("start_workflow", ("pay",), {"instance_id": ""}),
    ("start_workflow", ("pay",), {"instance_id": "x" * 256}),
    ("start_workflow", ("",), {}),
    ("start_workflow", (7,), {}),
    ("start_workflow", ("pay", 1, 2, 3), {}),
    ("start_workflow", ("pay",), {"unheard": 1}),
    ("start_workflow", (buy, 7), {}),
    ("start_workflow", (buy,), {}),
    ("start_workflow", ("stranger", object()), {}),
    ("start_workflow", ("stranger", float("nan")), {}),
    ("start_workflow", ("nap", 1.0), {"instance_id": "taken"}),
    ("start_workflow", ("pay",), {"instance_id": "taken"}),
    ("send_event", ("", "bank"), {}),
    ("send_event", ("paid", ""), {}),
    ("send_event", ("paid", "bank", float("nan")), {}),
    ("send_event", ("paid", "bank", object()), {}),
    ("send_event", ("paid", "bank"), {"extensions": {"Bad": 1}}),
    ("send_event", ("paid", "bank"), {"to": ""}),
    ("send_event", ("paid", "bank"), {"id": "x" * 2000}),
    ("list_instances", (), {"limit": 0}),
    ("list_instances", (), {"cursor": "nonsense"}),
    ("list_instances", (), {"started_after": datetime(2026, 1, 1)}),
    ("list_waits", (), {"instance_id": 7}),
    ("list_events", (), {"limit": 1001}),
]


@pytest.mark.parametrize(("verb", "args", "kwargs"), BAD)
async def test_bad_input_raises_as_the_app_does(
    client: Client, live: Live, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    await client.start_workflow(nap, 60.0, instance_id="taken")
    with pytest.raises(Exception) as here:  # noqa: PT011
        await getattr(client, verb)(*args, **kwargs)
    with pytest.raises(Exception) as there:  # noqa: PT011
        live.on_loop(lambda: getattr(live.app, verb)(*args, **kwargs))
    assert isinstance(here.value, type(there.value)), (here.value, there.value)
    assert getattr(here.value, "instance_id", None) == getattr(there.value, "instance_id", None)
    assert str(here.value)


async def test_endings(client: Client) -> None:
    failed = await client.start_workflow("fails")
    with pytest.raises(WorkflowFailed, match="no way") as caught:
        await failed.result(timeout=20)
    assert (caught.value.error_type, caught.value.instance_id) == ("RuntimeError", failed.instance_id)
    assert "raise RuntimeError" in caught.value.traceback
    for reason in (None, "changed my mind"):
        napping = await client.start_workflow("nap")
        await napping.cancel(reason)
        with pytest.raises(WorkflowCancelled) as cancelled:
            await napping.result(timeout=20)
        assert cancelled.value.reason == reason
    with pytest.raises(InstanceNotFound):
        await client.handle("nobody").result()
    with pytest.raises(ValueError, match="negative"):
        await client.handle("nobody").result(timeout=-1)


async def test_a_timeout_leaves_it_running(client: Client) -> None:
    handle = await client.start_workflow("nap")
    for timeout in (0, 0.2):
        with pytest.raises(TimeoutError, match=f"did not end within {timeout:g} s; it keeps running"):
            await handle.result(timeout=timeout)
    done = await client.start_workflow(buy, Order("tea"))
    await done.result(timeout=20)
    assert await done.result(timeout=0) == "1 tea", "what has ended needs no time"


async def test_undos_that_failed(serve: Any) -> None:
    @activity
    async def reserve(ctx: ActivityContext) -> str:
        return "room"

    @reserve.compensate
    @activity(retry=NO_RETRY)
    async def release(ctx: ActivityContext, booking: str) -> None:
        raise ConnectionError("closed")

    @workflow
    async def trip(ctx: WorkflowContext) -> None:
        await reserve(ctx)
        raise ValueError("no luck")

    live = serve(workflows=[trip])
    live.start("trip", id="t")
    async with Client(live.url) as client:
        with pytest.raises(
            WorkflowBlocked, match=r"fix the cause, then resume it .*, or cancel it to leave that"
        ) as caught:
            await client.handle("t").result(timeout=30)
        assert caught.value.not_undone == ("reserve:1",)
    answer = live.client.get("/metrics").text
    assert 'romancy_compensations_total{outcome="failed",workflow="trip"} 1.0' in answer


async def test_a_blocked_instance(serve: Any) -> None:
    name = "before"

    @workflow
    async def turns(ctx: WorkflowContext) -> None:
        await odd_values.options(activity_id=name)(ctx)
        await wait_event(ctx, "turned")

    live = serve(workflows=[turns])
    live.start("turns", id="b")
    live.until("b", "waiting_for_event")
    live.on_loop(live.app._runtime.crash)
    name = "after"
    live.on_loop(live.app.start)
    async with Client(live.url) as client:
        await client.send_event("turned", "test")
        with pytest.raises(WorkflowBlocked, match="fix the code") as caught:
            await client.handle("b").result(timeout=30)
        assert "before" in caught.value.reason
        name = "before"
        await client.resume_workflow("b")
        assert await client.handle("b").result(timeout=30) is None


async def test_a_batch_names_the_events_to_blame(client: Client) -> None:
    good, bad = client.event("a", "b"), client.event("a", "b", dataschema="not absolute")
    with pytest.raises(InvalidEvent, match="1 of 2 events") as caught:
        await client.send_events([good, bad])
    assert [index for index, _ in caught.value.failures] == [1]  # type: ignore[attr-defined]
    assert (await client.list_events()).items == []


async def test_what_is_too_much(serve: Any) -> None:
    live = serve(http=HTTPOptions(max_body=2000))
    async with Client(live.url) as client:
        with pytest.raises(InvalidEvent, match="2,000 bytes"):
            await client.send_event("a", "b", "x" * 3000)
        with pytest.raises(InvalidInput, match="2,000 bytes"):
            await client.start_workflow("pay", "x" * 3000)


async def test_an_event_with_a_time_that_is_none() -> None:
    with pytest.raises(InvalidEvent, match="has no time zone"):
        Client.event("a", "b", time=datetime(2026, 1, 1))


async def test_a_start_that_a_server_cant_be_told(client: Client) -> None:
    with pytest.raises(InvalidInput, match="set it in @workflow"):
        await client.start_workflow(nap.options(timeout=5))


# --- each error by its name -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (400, "InvalidEvent", InvalidEvent),
        (400, "InvalidInput", InvalidInput),
        (400, "NotStorable", NotStorable),
        (400, "SomethingNew", InvalidInput),
        (404, "InstanceNotFound", InstanceNotFound),
        (404, "UnknownWorkflow", UnknownWorkflow),
        (404, "NotFound", UnexpectedAnswer),
        (409, "InstanceExists", InstanceExists),
        (429, "Overloaded", Overloaded),
        (431, "HeadersTooLarge", InvalidInput),
        (500, "InternalError", UnexpectedAnswer),
        (503, "AppNotRunning", AppNotRunning),
        (503, "StorageError", StorageError),
        (503, "DatabaseUnavailable", StorageError),
        (503, "Overloaded", Overloaded),
    ],
)
async def test_each_error(live: Live, status: int, kind: str, expected: type[RomancyError]) -> None:
    body = json.dumps({"error": "the reason", "error_type": kind, "retryable": False})
    with proxy(live.url, Canned(status, body)) as between:
        async with Client(between.url, retry_for=0) as client:
            with pytest.raises(RomancyError) as caught:
                await client.start_workflow("pay", instance_id="p")
    assert type(caught.value) is expected
    assert "the reason" in str(caught.value) or expected is InstanceNotFound
    assert getattr(caught.value, "instance_id", "p") == "p"


# --- tokens -----------------------------------------------------------------------------------------------------------
async def test_tokens(serve: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    live = serve(tokens=["SECRET-ü", "events:ONLY-EVENTS"])
    monkeypatch.delenv("ROMANCY_TOKEN", raising=False)
    async with Client(live.url) as client:
        with pytest.raises(AccessDenied, match=r"requires a token; pass token=") as none:
            await client.list_instances()
    async with Client(live.url, token="WRONG-ONE") as client:
        with pytest.raises(AccessDenied, match="does not accept this token") as wrong:
            await client.list_instances()
    async with Client(live.url, token="ONLY-EVENTS") as client:
        await client.send_event("a", "b")
        with pytest.raises(AccessDenied, match="does not have the scope 'read'") as scope:
            await client.list_instances()
        assert "ONLY-EVENTS" not in repr(vars(client)) + repr(client)
    async with Client(live.url, token="SECRET-ü") as client:
        assert len((await client.list_events()).items) == 1
    monkeypatch.setenv("ROMANCY_TOKEN", "SECRET-ü")
    async with Client(live.url) as client:
        assert len((await client.list_events()).items) == 1
    assert [error.value.status for error in (none, wrong, scope)] == [401, 401, 403]
    assert isinstance(none.value, PermissionError)
    assert (none.value.problem, none.value.advice) == tuple(str(none.value).split("; "))
    copied = pickle.loads(pickle.dumps(none.value))
    assert (str(copied), vars(copied)) == (str(none.value), vars(none.value))
    said = caplog.text + "".join(str(error.value) for error in (none, wrong, scope))
    assert not any(secret in said for secret in ("SECRET", "WRONG-ONE", "ONLY-EVENTS"))


@pytest.mark.parametrize("token", ["two words", "line\n", "\0"])
def test_a_token_that_is_none_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ValueError, match="without spaces") as caught:
        Client("http://x", token=token)
    assert token not in str(caught.value)


# --- other programs, addresses, life ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Canned(200, "<html>hello"), "answered 200 with no content type"),
        (Canned(200, "[]"), "answered 200"),
        (Canned(200, "{}"), r"is not valid \(KeyError"),
        (Canned(200, '{"items": [{}], "cursor": null}'), r"is not valid"),
        (Canned(404, '{"detail": "Not Found"}'), "it answered 404"),
        (Canned(405, ""), "it answered 405"),
        (Canned(301, "", {"location": "https://elsewhere/"}), "it redirects to 'https://elsewhere/'"),
    ],
)
async def test_another_program(live: Live, answer: Canned, said: str) -> None:
    with proxy(live.url, answer) as between:
        async with Client(between.url, retry_for=0) as client:
            with pytest.raises(UnexpectedAnswer, match=f"no Romancy server at .*, or not at this path: .*{said}"):
                await client.list_instances()


@pytest.mark.parametrize("url", ["localhost:8001", "ftp://x", "http://", "shop.db", "http://x/?a=1", "http://x/#a"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match="URL of a server"):
        Client(url)


def test_an_address_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match="use token=") as caught:
        Client("http://user:hidden@x")
    assert "hidden" not in str(caught.value)


def test_limits_that_are_none() -> None:
    with pytest.raises(ValueError, match="retry_for must not be negative"):
        Client("http://x", retry_for=-1)
    with pytest.raises(ValueError, match="timeout must be greater than 0"):
        Client("http://x", timeout=0)


async def test_the_address_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROMANCY_URL", raising=False)
    assert Client().url == "http://localhost:8001"
    monkeypatch.setenv("ROMANCY_URL", "https://shop.example/romancy/")
    assert repr(Client()) == "<Client https://shop.example/romancy>"


async def test_a_closed_client(live: Live) -> None:
    async with Client(live.url) as client:
        pass
    with pytest.raises(RomancyError, match="the client is closed"):
        await client.list_instances()
    with SyncClient(live.url) as blocking:
        pass
    blocking.close()
    with pytest.raises(AppNotRunning, match="the client is closed"):
        blocking.list_instances()


async def test_inside_a_workflow_it_is_refused(client: Client) -> None:
    @workflow
    async def calls(ctx: WorkflowContext) -> None:
        await client.send_event("a", "b")

    async with App(":memory:", workflows=[calls]) as app:
        handle = await app.start_workflow(calls)
        with pytest.raises((WorkflowFailed, WorkflowBlocked), match=r"client\.\* was called inside a workflow"):
            await handle.result(timeout=20)
    assert (await client.list_events()).items == []


async def test_giving_up_the_wait_is_possible(client: Client) -> None:
    handle = await client.start_workflow("nap")
    waiting = asyncio.create_task(handle.result())
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not (await client.send_event("a", "b")).duplicate
