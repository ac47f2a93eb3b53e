"""`romancy.Client` against a real server: the verbs of the app, with the same answers."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from romancy import App, Client, InstanceNotFound, Receipt, ServerUnreachable, WorkflowContext, workflow
from romancy.app import http_app
from romancy.options import HTTPOptions
from romancy.sync import Client as SyncClient
from tests.helpers import eventually
from tests.http.conftest import Live, Order, buy, nap, pay


@pytest.fixture
async def client(live: Live, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.delenv("ROMANCY_TOKEN", raising=False)
    async with Client(live.url) as client:
        yield client


async def until(client: Client, id: str, status: str) -> None:
    async with asyncio.timeout(20):
        while await client.handle(id).status() != status:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_an_order_from_start_to_end(client: Client) -> None:
    handle = await client.start_workflow("pay", "ORD-1", instance_id="order-1")
    assert (handle.instance_id, handle.created) == ("order-1", True)
    await until(client, "order-1", "waiting_for_event")
    assert await client.send_event("paid", "bank", {"amount": 9.5}) == Receipt(delivered=1)
    assert await handle.result(timeout=20) == 9.5
    assert await handle.status() == "completed"
    assert repr(handle) == f"<RemoteHandle 'order-1' at {client.url}>"


async def test_starting_again_gives_the_existing_one(client: Client) -> None:
    assert (await client.start_workflow("nap", 60.0, instance_id="n")).created
    assert not (await client.start_workflow("nap", 60.0, instance_id="n")).created
    assert not (await client.start_workflow(nap.options(instance_id="n"), 60.0)).created
    assert (await client.start_workflow("nap", 60.0)).created
    assert (await client.start_workflow("nap", 60.0)).instance_id != "n"


async def test_a_workflow_itself_writes_its_arguments_and_reads_its_result(client: Client) -> None:
    handle = await client.start_workflow(buy, Order("tea", 2), gift=True)
    assert await handle.result(timeout=20) == "2 tea as a gift"
    by_name = await client.start_workflow("buy", {"sku": "tea"})
    assert await by_name.result(timeout=20) == "1 tea"


@workflow
async def every_kind(
    ctx: WorkflowContext, first: Order, /, when: datetime, *rest: Order, last: timedelta, **more: Order
) -> tuple[Order, datetime, list[Order], timedelta, dict[str, Order]]:
    return first, when, list(rest), last, more


async def test_every_kind_of_parameter_and_a_result_by_its_annotation(serve: Any) -> None:
    live = serve(workflows=[every_kind])
    when, one, two = datetime(2026, 1, 2, tzinfo=UTC), Order("a"), Order("b", 2)
    async with Client(live.url) as client:
        plain = await client.start_workflow(every_kind, one, when, last=timedelta(days=1))
        assert await plain.result(timeout=20) == (one, when, [], timedelta(days=1), {})
        full = await client.start_workflow(every_kind, one, when, two, one, last=timedelta(1), x=two)
        assert await full.result(timeout=20) == (one, when, [two, one], timedelta(1), {"x": two})
        handle = client.handle(plain.instance_id, every_kind)
        assert (await handle.result(timeout=20))[0] == one
        assert (await client.handle(plain.instance_id).result(timeout=20))[0] == {"sku": "a", "count": 1}


async def test_ids_may_hold_anything(client: Client, live: Live) -> None:
    for id in ("a/history", "ü ?#%2F", "..", ".", "x" * 255, "a/../b", "a;b=c&d+e"):
        handle = await client.start_workflow("pay", instance_id=id)
        await until(client, id, "waiting_for_event")
        assert (await client.get_instance(id)).instance_id == id
        assert (await client.get_history(id))[0].kind == "started"
        assert (await client.list_waits(instance_id=id)).items[0].instance_id == id
        await handle.cancel("enough")
        await until(client, id, "cancelled")


async def test_what_is_read_is_what_the_app_would_read(client: Client, live: Live) -> None:
    await client.start_workflow("fails", instance_id="f")
    await until(client, "f", "failed")
    await client.start_workflow("pay", "ORD-1", instance_id="p")
    await until(client, "p", "waiting_for_event")
    time = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
    extensions = {"trace": "x", "n": 7, "expirytime": "2999-01-01T00:00:00Z"}
    await client.send_event("other", "bank", {"ä": 1.5}, subject="s", to="p", extensions=extensions, time=time)
    await client.send_event("raw", "bank", b"\xff\x00", id="mine", dataschema="http://schema/1")
    await client.send_event("paid", "bank", {"amount": 1})
    await until(client, "p", "completed")

    async def same(verb: str, *args: Any, **kwargs: Any) -> Any:
        here = await getattr(client, verb)(*args, **kwargs)
        assert here == live.on_loop(lambda: getattr(live.app, verb)(*args, **kwargs))
        return here

    assert (await same("get_instance", "f")).error["message"] == "no way"
    assert len(await same("get_history", "p")) == 2
    assert len((await same("list_instances")).items) == 2
    assert (await same("list_instances", status="failed", workflow="fails", text="f")).items[0].instance_id == "f"
    assert (await same("list_instances", status=["failed", "completed"])).items[1].instance_id == "f"
    assert (await same("list_instances", started_after=datetime(2999, 1, 1, tzinfo=UTC))).items == []
    await client.start_workflow("pay", instance_id="q")
    await until(client, "q", "waiting_for_event")
    assert (await same("list_waits", type="paid")).items[0].types == ("paid",)
    page = await same("list_instances", limit=2)
    assert [item.instance_id for item in (await same("list_instances", limit=2, cursor=page.cursor)).items] == ["f"]
    events = (await client.list_events()).items
    here = live.on_loop(live.app.list_events).items
    assert [(e.event.id, e.accepted_at, e.received_by) for e in events] == [
        (e.event.id, e.accepted_at, e.received_by) for e in here
    ]
    for found, stored in zip(events, here, strict=True):
        for name in ("source", "type", "data", "subject", "time", "dataschema", "extensions", "target", "expires_at"):
            assert getattr(found.event, name) == getattr(stored.event, name), name
    assert [e.event.type for e in (await client.list_events(unmatched=True)).items] == ["raw", "other"]
    assert await client.list_workflows() == list(live.app.workflows)


async def test_a_batch_is_stored_whole(client: Client) -> None:
    events = [client.event("paid", "bank", {"amount": n}, id=str(n % 2)) for n in range(3)]
    assert [receipt.duplicate for receipt in await client.send_events(events)] == [False, False, True]
    assert await client.send_events([]) == []
    assert (await client.send(events[0])).duplicate


async def test_a_server_that_gives_no_receipts(serve: Any) -> None:
    live = serve(http=HTTPOptions(accepted_status=204))
    async with Client(live.url) as client:
        assert await client.send_event("a", "b") == Receipt()
        assert await client.send_events([client.event("a", "b"), client.event("a", "b")]) == [Receipt(), Receipt()]
        assert len((await client.list_events()).items) == 3


async def test_cancel_and_resume_do_nothing_where_there_is_nothing_to_do(client: Client) -> None:
    handle = await client.start_workflow("pay", instance_id="p")
    assert await client.resume_workflow("p") is False
    assert await client.cancel_workflow("p", reason="changed") is True
    await until(client, "p", "cancelled")
    assert await client.cancel_workflow("p") is False
    assert await handle.cancel() is False
    assert await handle.status() == "cancelled"


async def test_a_mounted_app_and_a_transport_of_ones_own() -> None:
    class Mounted(httpx2.ASGITransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            self.root_path = "/romancy"
            return await super().handle_async_request(request)

    async with App(":memory:", workflows=[buy]) as app:
        async with Client("http://shop/romancy/", transport=Mounted(http_app(app))) as client:
            assert (await client.send_event("a", "b")).duplicate is False
            handle = await client.start_workflow(buy, Order("tea"))
            assert await handle.result(timeout=10) == "1 tea"


async def test_a_transport_of_httpx() -> None:
    """Programs that used the client before it changed to httpx2 have such a transport."""
    httpx = pytest.importorskip("httpx")
    async with App(":memory:", workflows=[buy, pay]) as app:
        async with Client("http://shop", transport=httpx.ASGITransport(http_app(app))) as client:
            handle = await client.start_workflow(buy, Order("tea"))
            assert await handle.result(timeout=10) == "1 tea"
            assert not (await client.send_event("a", "b", {"text": "\N{SNOWMAN}"})).duplicate
            with pytest.raises(InstanceNotFound):
                await client.get_instance("nobody")


@pytest.mark.parametrize(("kind", "words"), [("ConnectError", "can't reach"), ("ReadTimeout", "did not answer within")])
async def test_errors_of_a_transport_of_httpx(kind: str, words: str) -> None:
    httpx = pytest.importorskip("httpx")

    def fail(request: Any) -> Any:
        raise getattr(httpx, kind)("as planned")

    async with Client("http://shop", retry_for=0, transport=httpx.MockTransport(fail)) as client:
        with pytest.raises(ServerUnreachable, match=words):
            await client.send_event("a", "b")


def test_a_transport_of_another_library_is_refused() -> None:
    class ASGITransport:
        """It has the name, and nothing else."""

    for client in (Client, SyncClient):
        with pytest.raises(TypeError, match=r"transport must be an httpx2\.AsyncBaseTransport, not .*ASGITransport"):
            client("http://shop", transport=ASGITransport())  # pyright: ignore[reportArgumentType]


async def test_many_at_once_take_turns_while_results_are_waited_for(client: Client) -> None:
    await client.start_workflow("nap", instance_id="n")
    waiting = [asyncio.create_task(client.handle("n").result()) for _ in range(110)]
    await asyncio.sleep(0)
    async with asyncio.timeout(15):  # less than a server is asked to wait for a result
        receipts = await asyncio.gather(*(client.send_event("a", "b") for _ in range(150)))
    assert not any(receipt.duplicate for receipt in receipts)
    await client.cancel_workflow("n")
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(end).__name__ for end in ends} == {"WorkflowCancelled"}


def test_blocking_from_plain_threads(live: Live) -> None:
    with SyncClient(live.url) as client:
        handle = client.start_workflow(pay, "ORD-1", instance_id="p")
        assert handle.created
        eventually(lambda: handle.status() == "waiting_for_event", 20)
        found: list[float] = []
        thread = threading.Thread(target=lambda: found.append(handle.result(timeout=20)))
        thread.start()
        time = datetime(2026, 1, 1, tzinfo=UTC)
        assert client.send_event("paid", "bank", {"amount": 3}, time=time, id="1").delivered == 1
        thread.join(20)
        assert found == [3.0]
        events = [client.event("x", "y", id=str(n)) for n in range(2)]
        assert [receipt.duplicate for receipt in client.send_events(events)] == [False, False]
        assert client.send(events[0]).duplicate
        assert client.get_instance("p").status == "completed"
        assert client.list_instances(workflow="pay").items[0].instance_id == "p"
        assert client.handle("p", pay).result() == 3.0
        assert client.list_events(type="paid").items[0].event.time == 1_767_225_600_000_000
        assert len(client.get_history("p")) == 2
        assert repr(client) == f"<sync <Client {live.url}>>"
    assert [thread.name for thread in threading.enumerate() if thread.name == "romancy"] == []


FORK = """
import os, sys
from romancy import AppNotRunning, ServerUnreachable
from romancy.sync import Client

def ask(client, expected):
    try:
        client.list_instances()
    except expected as error:
        return str(error)
    raise AssertionError

client, used = Client(sys.argv[1], retry_for=0), Client(sys.argv[1], retry_for=0)
ask(used, ServerUnreachable)
child = os.fork()
if child == 0:
    ask(client, ServerUnreachable)
    assert "before this process was forked" in ask(used, AppNotRunning)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
ask(used, ServerUnreachable)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_blocking_client_and_forks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}"
    done = subprocess.run(
        [sys.executable, "-c", FORK, nowhere], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
