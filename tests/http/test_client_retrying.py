"""When the client tries again, and that nothing happens twice by it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from romancy import Client, Overloaded, ServerUnreachable, StorageError, UnexpectedAnswer
from romancy.client.retries import asked_for, may_help, pause
from romancy.sync import Client as SyncClient
from tests.helpers import eventually, free_port
from tests.http.conftest import Live
from tests.http.flaky import LOST, RESET, Canned, proxy

LATER = json.dumps({"error": "not now", "error_type": "StorageError", "retryable": True})


def busy(status: int = 503, after: str = "1") -> Canned:
    return Canned(status, LATER, {"retry-after": after, "content-type": "application/json"})


# --- the decisions ----------------------------------------------------------------------------------------------------
def test_the_pause_grows_is_spread_and_ends_with_the_patience() -> None:
    assert [pause(n, 0, 100, 1) for n in range(1, 9)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert pause(10_000, 0, 100, 1) == 5.0
    assert pause(1, 0, 100, 0) == 0.05, "half of it is luck"
    assert pause(1, 3, 100, 1) == 3.1, "never before the server wants it"
    assert pause(1, 3, 3, 1) is None, "what would end after the patience is not waited for"
    assert pause(1, 0, 0, 1) is None


def test_what_may_help() -> None:
    assert [status for status in range(200, 600) if may_help(status, None)] == [429, 502, 503, 504]
    assert may_help(500, {"retryable": True})
    assert not may_help(500, {"retryable": False})
    assert not may_help(400, {"retryable": True}), "a 4xx is never repeated, whatever it says"


def test_retry_after_is_seconds_or_a_date() -> None:
    assert asked_for("7", 0) == 7
    assert asked_for("Thu, 01 Jan 1970 00:00:10 GMT", 4_000_000) == 6
    assert asked_for("Thu, 01 Jan 1970 00:00:10 GMT", 40_000_000) == 0
    for nonsense in (None, "", "soon", "-1", "1.5", "²", "Thu, 99 Jan"):
        assert asked_for(nonsense, 0) == 0


# --- nothing happens twice --------------------------------------------------------------------------------------------
async def test_an_answer_that_is_lost_leaves_one_event(live: Live) -> None:
    with proxy(live.url, LOST, LOST, RESET) as between:
        async with Client(between.url) as client:
            receipt = await client.send_event("paid", "bank", {"amount": 1})
            assert receipt.duplicate, "the first attempt had come through"
            assert len((await client.list_events()).items) == 1
        sent = [json.loads(body)["id"] for method, _, body, _ in between.seen if method == "POST"]
        assert len(sent) == 4
        assert len(set(sent)) == 1, "the id is made once"


async def test_a_batch_whose_answer_is_lost(live: Live) -> None:
    with proxy(live.url, LOST) as between:
        async with Client(between.url) as client:
            events = [client.event("a", "b") for _ in range(3)]
            assert [receipt.duplicate for receipt in await client.send_events(events)] == [True] * 3
            assert len((await client.list_events()).items) == 3


async def test_a_start_whose_answer_is_lost_is_one_instance(live: Live) -> None:
    with proxy(live.url, LOST) as between:
        async with Client(between.url) as client:
            handle = await client.start_workflow("nap")
            assert handle.created, "nobody else can have this id"
            assert [item.instance_id for item in (await client.list_instances()).items] == [handle.instance_id]


async def test_cancelling_whose_answer_is_lost(live: Live) -> None:
    live.start("pay", id="p")
    live.until("p", "waiting_for_event")
    with proxy(live.url, LOST) as between:
        async with Client(between.url) as client:
            assert await client.cancel_workflow("p", reason="once"), "the attempt whose answer was lost did it"
            live.until("p", "cancelled")
            assert (await client.get_instance("p")).error["message"] == "once"


# --- when it is tried again -------------------------------------------------------------------------------------------
async def test_a_busy_server_is_asked_again_when_it_wants_to_be(live: Live) -> None:
    loop = asyncio.get_running_loop()
    with proxy(live.url, busy(), busy(429, "0"), Canned(502), Canned(504, "<html>")) as between:
        async with Client(between.url) as client:
            begun = loop.time()
            assert not (await client.send_event("a", "b")).duplicate
            assert loop.time() - begun >= 1, "Retry-After: 1"
        assert len(between.seen) == 5


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 415])
async def test_a_refusal_is_not_repeated(live: Live, status: int) -> None:
    with proxy(live.url, *[busy(status, "0")] * 3) as between:
        async with Client(between.url) as client:
            with pytest.raises(Exception, match=r"not now|token|answered"):
                await client.send_event("a", "b")
        assert len(between.seen) == 1


async def test_without_patience_it_is_not_tried_again(live: Live) -> None:
    with proxy(live.url, busy(after="0"), RESET, busy(429)) as between:
        async with Client(between.url, retry_for=0) as client:
            with pytest.raises(StorageError, match="not now"):
                await client.send_event("a", "b")
            with pytest.raises(ServerUnreachable, match=r"event 'mine'"):
                await client.send_event("a", "b", id="mine")
            with pytest.raises(StorageError):
                await client.list_instances()
        assert len(between.seen) == 3


async def test_a_server_that_wants_more_time_than_there_is_ends_it_at_once(live: Live) -> None:
    with proxy(live.url, busy(after="60")) as between:
        async with Client(between.url, retry_for=30) as client:
            async with asyncio.timeout(10):
                with pytest.raises(StorageError):
                    await client.send_event("a", "b")


async def test_a_plain_429_and_a_fault_inside(live: Live) -> None:
    fault = json.dumps({"error": "oh", "error_type": "InternalError", "retryable": True})
    with proxy(live.url, Canned(429, "slow down"), Canned(500, fault)) as between:
        async with Client(between.url, retry_for=0) as client:
            with pytest.raises(Overloaded, match="429"):
                await client.list_instances()
            with pytest.raises(UnexpectedAnswer, match=r"answered 500 \(InternalError\): oh"):
                await client.list_instances()


async def test_a_server_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with Client(url, timeout=0.1, retry_for=0.2) as client:
            with pytest.raises(ServerUnreachable, match=r"did not answer within 0.1 s"):
                await client.send_event("a", "b")


async def test_nobody_there() -> None:
    async with Client(f"http://127.0.0.1:{free_port()}", retry_for=0.3) as client:
        with pytest.raises(
            ServerUnreachable, match=r"can't reach the server at .*: .*refused.*is it running"
        ) as caught:
            await client.list_instances()
    assert isinstance(caught.value, ConnectionError)
    async with Client("http://nowhere.invalid", retry_for=0) as client:
        with pytest.raises(ServerUnreachable, match=r"can't reach the server at http://nowhere\.invalid"):
            await client.list_instances()


# --- a server that is killed ------------------------------------------------------------------------------------------
SHOP = """
from romancy import *

@workflow
async def pay(ctx: WorkflowContext) -> float:
    return (await wait_event(ctx, "paid")).data["amount"]

app = App("killed.db", workflows=[pay], lease=1)
"""


@contextmanager
def server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "romancy", "serve", "killed_shop.py", "--port", str(port)]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ROMANCY_")}
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, env=kept) as process:
        try:
            yield process
        finally:
            process.kill()


def is_up(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/health/ready").status_code == 200
    except httpx2.TransportError:
        return False


@pytest.mark.play
def test_a_server_killed_and_started_again_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "killed_shop.py").write_text(SHOP)
    port, found = free_port(), list[Any]()
    with SyncClient(f"http://127.0.0.1:{port}", retry_for=60) as client:
        with server(tmp_path, port) as process:
            handle = client.start_workflow("pay", instance_id="p")  # waits until it is up
            process.send_signal(signal.SIGKILL)
            process.wait(20)
        assert not is_up(port)
        with server(tmp_path, port):
            receipt = client.send_event("paid", "bank", {"amount": 2.5}, id="once")
            found.append(handle.result(timeout=60))
        assert not receipt.duplicate
    assert found == [2.5]


def test_waiting_for_a_result_outlives_the_server(tmp_path: Path) -> None:
    (tmp_path / "killed_shop.py").write_text(SHOP)
    port = free_port()

    async def main() -> float:
        async with Client(f"http://127.0.0.1:{port}", retry_for=60) as client:
            with server(tmp_path, port) as process:
                handle = await client.start_workflow("pay", instance_id="p")
                waiting = asyncio.create_task(handle.result(timeout=100))
                await asyncio.sleep(0.2)
                process.send_signal(signal.SIGKILL)
                await asyncio.to_thread(process.wait, 20)
            with server(tmp_path, port):
                await asyncio.to_thread(eventually, lambda: is_up(port), 90)
                assert not waiting.done()
                await client.send_event("paid", "bank", {"amount": 4})
                return await waiting

    assert asyncio.run(main()) == 4
