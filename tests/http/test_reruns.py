"""Retrying instances over HTTP and with the clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import pytest

from romancy import NO_RETRY, ActivityContext, BulkResult, Client, NotRetryable, WorkflowContext, activity, workflow
from romancy import bulk as bulk_module
from romancy.errors import InstanceExists, InstanceNotFound, InvalidInput
from romancy.http import control
from romancy.sync import Client as SyncClient
from tests.http.conftest import WORKFLOWS, Live, assert_error
from tests.http.flaky import LOST, proxy

BROKEN: set[str] = set()
"""Names of activities that fail now."""
RAN: list[str] = []


def run(name: str) -> str:
    RAN.append(name)
    if name in BROKEN:
        raise ConnectionError(f"{name} is down")
    return name


@activity(retry=NO_RETRY)
async def reserve(ctx: ActivityContext) -> str:
    return run("reserve")


@activity(retry=NO_RETRY, raises=ConnectionError)
async def advise(ctx: ActivityContext) -> str:
    return run("advise")


@activity(retry=NO_RETRY)
async def charge(ctx: ActivityContext) -> str:
    return run("charge")


@reserve.compensate
async def release(ctx: ActivityContext, reserved: str) -> None: ...


@activity(retry=NO_RETRY)
async def look_up(ctx: ActivityContext) -> str:
    return run("look_up")


@workflow
async def shop(ctx: WorkflowContext) -> str:
    await look_up(ctx)
    with suppress(ConnectionError):
        await advise(ctx)
    return await charge(ctx)


@workflow
async def undone(ctx: WorkflowContext) -> str:
    await reserve(ctx)
    return await charge(ctx)


@pytest.fixture(autouse=True)
def broken() -> Iterator[None]:
    RAN.clear()
    BROKEN.clear()
    BROKEN.update({"advise", "charge"})
    yield
    BROKEN.clear()


@pytest.fixture
def live(serve: Callable[..., Live]) -> Live:
    return serve(workflows=[*WORKFLOWS, shop, undone])


def failed(live: Live, *ids: str, name: str = "shop") -> None:
    for id in ids:
        live.start(name, id=id)
    for id in ids:
        live.until(id, "failed")
    RAN.clear()


def test_a_failed_instance_goes_on(live: Live) -> None:
    failed(live, "s")
    BROKEN.clear()
    answer = live.client.post("/api/instances/s/retry")
    assert answer.status_code == 200, answer.text
    assert answer.json()["instance_id"] == "s"
    assert live.result("s")["output"] == "charge"
    assert RAN == ["charge"]
    entries = live.client.get("/api/instances/s/history").json()["entries"]
    gone = [entry["operation"] for entry in entries if entry["dropped"]]
    assert gone == ["charge:1"]
    [retried] = [entry for entry in entries if entry["kind"] == "retried"]
    assert retried["input"] == {"dropped": [entry["n"] for entry in entries if entry["dropped"]]}
    assert not retried["dropped"]


@pytest.mark.parametrize("steps", ["failed", ["advise:1", "charge:1"]], ids=str)
def test_more_than_what_led_to_the_end_can_run_again(live: Live, steps: Any) -> None:
    failed(live, "s")
    BROKEN.clear()
    assert live.client.post("/api/instances/s/retry", json={"steps": steps}).status_code == 200
    live.until("s", "completed")
    assert RAN == ["advise", "charge"]


def test_what_can_not_be_retried(live: Live) -> None:
    assert_error(live.client.post("/api/instances/none/retry"), 404, "InstanceNotFound")
    live.start("nap", id="n")
    live.until("n", "waiting_for_timer")
    assert assert_error(live.client.post("/api/instances/n/retry"), 409, "NotRetryable")["status"] == (
        "waiting_for_timer"
    )
    failed(live, "u", name="undone")
    refused = assert_error(live.client.post("/api/instances/u/retry"), 409, "NotRetryable")
    assert refused["status"] == "failed"
    assert "has undone its steps" in refused["error"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"steps": "charge:1"}, 'steps must be None (null), "failed" or a list of operation ids'),
        ({"steps": [1]}, 'steps must be None (null), "failed" or a list of operation ids'),
        ({"steps": []}, "got an empty list"),
        ({"step": ["charge:1"]}, "step"),
        ({"steps": ["chrge:1"]}, "has no recorded step 'chrge:1'; these failed: advise:1, charge:1"),
    ],
    ids=str,
)
def test_a_wrong_request_changes_nothing(live: Live, body: Any, words: str) -> None:
    failed(live, "s")
    assert words in assert_error(live.client.post("/api/instances/s/retry", json=body), 400)["error"]
    assert live.client.get("/api/instances/s").json()["status"] == "failed"


def test_the_scope_control_is_needed(serve: Callable[..., Live]) -> None:
    live = serve(tokens=["read:LOOK"])
    headers = {"authorization": "Bearer LOOK"}
    assert_error(live.client.post("/api/instances/s/retry", headers=headers), 403)
    assert_error(live.client.post("/api/instances/retry", json={"workflow": "shop"}, headers=headers), 403)


def test_many_are_retried(live: Live) -> None:
    failed(live, "a", "b")
    failed(live, "u", name="undone")
    BROKEN.clear()
    body = {"error_type": "ActivityError", "dry_run": True}
    preview = live.client.post("/api/instances/retry", json=body).json()
    assert (preview["matched"], preview["changed"], list(preview["errors"])) == (3, 2, ["u"])
    done = live.client.post("/api/instances/retry", json={"error_type": "ActivityError"}).json()
    assert (done["matched"], done["changed"], done["cursor"]) == (3, 2, None)
    assert "has undone its steps" in done["errors"]["u"]
    live.until("a", "completed")
    live.until("b", "completed")
    assert "at least one filter" in assert_error(live.client.post("/api/instances/retry", json={}), 400)["error"]


async def test_those_that_are_refused_do_not_count(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that could change none says where to go on, and the client does."""
    monkeypatch.setattr(bulk_module, "PAGE", 1)
    monkeypatch.setattr(control, "_PARTS", 1)
    failed(live, "a")
    for id in ("u1", "u2"):
        failed(live, id, name="undone")
    BROKEN.clear()
    body = {"status": ["failed"], "limit": 1}
    done = live.client.post("/api/instances/retry", json=body).json()
    assert (done["matched"], done["changed"], list(done["errors"])) == (1, 0, ["u2"])
    assert done["cursor"] is not None
    async with Client(live.url) as client:
        result = await client.retry_workflows(status="failed", limit=1)
    assert (result.matched, result.changed, list(result.errors)) == (3, 1, ["u2", "u1"])
    live.until("a", "completed")


async def test_the_client(live: Live) -> None:
    failed(live, "a", "b", "c")
    async with Client(live.url) as client:
        again = await client.handle("a", shop).retry()
        with pytest.raises(Exception, match="charge is down"):
            await again.result(timeout=20)
        assert RAN == ["charge"]
        BROKEN.clear()
        handle = await client.retry_workflow("a", shop, steps="failed")
        assert await handle.result(timeout=20) == "charge"
        history = await client.get_history("a")
        assert history == live.on_loop(lambda: live.app.get_history("a"))
        assert [entry.operation for entry in history if entry.dropped] == ["advise:1", "charge:1", "charge:1"]
        with pytest.raises(NotRetryable, match="it has completed") as refused:
            await client.retry_workflow("a")
        assert (refused.value.status, refused.value.instance_id) == ("completed", "a")
        with pytest.raises(InstanceNotFound):
            await client.retry_workflow("none", steps=["charge:1"])
        with pytest.raises(InvalidInput, match="a list of operation ids"):
            await client.retry_workflow("b", steps=cast("Any", "charge:1"))
        with pytest.raises(InvalidInput, match="no recorded step"):
            await client.retry_workflow("b", steps=("pay:1",))
        assert await client.retry_workflows(workflow="shop") == BulkResult(3, 2, {})
        with pytest.raises(ValueError, match="at least one filter"):
            await client.retry_workflows(limit=2)


async def test_a_retry_whose_answer_is_lost(live: Live) -> None:
    failed(live, "a")
    BROKEN.clear()
    with proxy(live.url, LOST) as between:
        async with Client(between.url) as client:
            handle = await client.retry_workflow("a")
            assert await handle.result(timeout=20) == "charge"
    assert RAN == ["charge"]


def test_the_blocking_client(live: Live) -> None:
    failed(live, "a", "b")
    BROKEN.clear()
    with SyncClient(live.url) as client:
        assert client.retry_workflow("a", shop).result(timeout=20) == "charge"
        assert client.handle("b", shop).retry().result(timeout=20) == "charge"
        with pytest.raises(NotRetryable):
            client.retry_workflow("b", steps="failed")
        assert client.retry_workflows(workflow="shop") == BulkResult(2, 0, {})


# --- forks ------------------------------------------------------------------------------------------------------------
def test_a_fork_begins_with_a_part_of_the_history(live: Live) -> None:
    failed(live, "s")
    BROKEN.clear()
    answer = live.client.post("/api/instances/s/fork", json={"at": 1, "new_id": "copy/1"})
    assert (answer.status_code, answer.json()) == (201, {"instance_id": "copy/1"})
    assert live.result("copy%2F1")["output"] == "charge"
    assert RAN == ["advise", "charge"], "look_up is copied"
    assert live.client.get("/api/instances/copy%2F1").json()["forked_from"] == "s"
    listed = live.client.get("/api/instances?workflow=shop").json()["items"]
    assert {item["instance_id"]: item["forked_from"] for item in listed} == {"copy/1": "s", "s": None}
    assert live.client.get("/api/instances/s").json()["status"] == "failed"
    anew = live.client.post("/api/instances/s/fork").json()["instance_id"]
    assert live.result(anew)["output"] == "charge"
    assert RAN == ["advise", "charge", "look_up", "advise", "charge"]


def test_what_can_not_be_forked(live: Live) -> None:
    assert_error(live.client.post("/api/instances/none/fork"), 404, "InstanceNotFound")
    failed(live, "s")
    for body, words in (
        ({"at": 99}, "and no entry 99"),
        ({"at": -1}, "at"),
        ({"at": 0, "new_id": ""}, "an instance id must be"),
        ({"n": 1}, "n"),
    ):
        assert words in assert_error(live.client.post("/api/instances/s/fork", json=body), 400)["error"]
    assert_error(live.client.post("/api/instances/s/fork", json={"new_id": "s"}), 409, "InstanceExists")


async def test_the_clients_fork(live: Live) -> None:
    failed(live, "s")
    failed(live, "u", name="undone")
    BROKEN.clear()
    async with Client(live.url) as client:
        handle = await client.fork_workflow("s", at=1, new_id="copy")
        assert (handle.instance_id, handle.created) == ("copy", True)
        assert await handle.result(timeout=20) == "charge"
        assert (await client.get_instance("copy")).forked_from == "s"
        with pytest.raises(InstanceExists) as exists:
            await client.fork_workflow("s", new_id="copy")
        assert exists.value.instance_id == "copy"
        with pytest.raises(InstanceNotFound):
            await client.fork_workflow("none")
        with pytest.raises(InvalidInput, match="no entry 99"):
            await client.fork_workflow("s", at=99)
        with pytest.raises(NotRetryable, match="fork it from its beginning: at=0") as refused:
            await client.fork_workflow("u", at=1)
        assert (refused.value.instance_id, refused.value.status) == ("u", "failed")


async def test_a_fork_whose_answer_is_lost_is_one_instance(live: Live) -> None:
    failed(live, "s")
    with proxy(live.url, LOST) as between:
        async with Client(between.url) as client:
            handle = await client.fork_workflow("s")
            assert {item.instance_id for item in (await client.list_instances()).items} == {"s", handle.instance_id}


def test_the_blocking_client_forks(live: Live) -> None:
    failed(live, "s")
    BROKEN.clear()
    with SyncClient(live.url) as client:
        assert client.fork_workflow("s", at=1).result(timeout=20) == "charge"
