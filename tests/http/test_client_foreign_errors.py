"""Errors of other libraries do not pass through the client: an answer that can't be read, a client that is closed, and
proxies in the environment have errors of ours."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from romancy import (
    App,
    Client,
    InvalidInput,
    NotStorable,
    RomancyError,
    ServerUnreachable,
    UnexpectedAnswer,
    WorkflowBlocked,
    WorkflowContext,
    WorkflowFailed,
    workflow,
)
from tests.http.flaky import Canned, proxy

STREAM = {"content-type": "text/event-stream"}
EMISSION: dict[str, Any] = {
    "n": 1,
    "topic": "t",
    "value": "x",
    "at": "2026-01-01T00:00:00Z",
    "activity_id": None,
    "attempt": 1,
    "kind": "data",
}


async def first_emitted(client: Client, **options: Any) -> Any:
    async for emission in client.handle("i").emitted(**options):
        return emission


def streamed(data: str) -> Canned:
    return Canned(200, f"data: {data}\n\n", STREAM)


# --- answers that can't be read ---------------------------------------------------------------------------------------
async def test_a_body_that_cant_be_decoded() -> None:
    broken = {"content-encoding": "gzip"}
    answers = Canned(200, "broken", broken), Canned(200, "broken", STREAM | broken), Canned(200, "broken", broken)
    with proxy("", *answers) as between:
        async with Client(between.url) as client:
            for ask in (client.list_instances, lambda: first_emitted(client), lambda: first_emitted(client)):
                with pytest.raises(UnexpectedAnswer, match="can't be decoded"):
                    await ask()
        assert len(between.seen) == 3, "the server would answer the same again"


async def test_a_transport_of_httpx_that_cant_decode() -> None:
    httpx = pytest.importorskip("httpx")

    def fail(request: Any) -> Any:
        raise httpx.DecodingError("as planned")

    async with Client("http://shop", transport=httpx.MockTransport(fail)) as client:
        with pytest.raises(UnexpectedAnswer, match=r"can't be decoded.*as planned"):
            await client.list_instances()


@pytest.mark.parametrize(
    "data",
    [
        "{nope",
        "3",
        "[]",
        '{"n": 1}',
        json.dumps({**EMISSION, "n": "one"}),
        json.dumps({**EMISSION, "at": 7}),
        "[" * 100_000,
    ],
)
async def test_an_emission_that_is_none(data: str) -> None:
    with proxy("", streamed(data)) as between:
        async with Client(between.url, retry_for=0) as client:
            with pytest.raises(UnexpectedAnswer, match="its answer is not valid"):
                await first_emitted(client)


async def test_an_emission_that_does_not_fit_the_model_is_not_blamed_on_the_server() -> None:
    with proxy("", streamed(json.dumps(EMISSION)), streamed(json.dumps(EMISSION))) as between:
        async with Client(between.url, retry_for=0) as client:
            assert (await first_emitted(client)).value == "x"
            with pytest.raises(NotStorable, match="does not fit"):
                await first_emitted(client, model=int)


@pytest.mark.parametrize(
    "failures", ["[{}]", "3", "[3]", '[{"index": "x", "error": ""}]', '[{"index": 1e999, "error": ""}]']
)
async def test_a_batch_that_fails_in_an_unknown_way(failures: str) -> None:
    body = f'{{"error": "no", "error_type": "InvalidBatch", "failures": {failures}}}'
    with proxy("", Canned(400, body)) as between:
        async with Client(between.url) as client:
            with pytest.raises(UnexpectedAnswer, match="its answer is not valid"):
                await client.send_events([client.event("a", "b")])


# --- a client that is closed ------------------------------------------------------------------------------------------
class Silent(httpx2.AsyncBaseTransport):
    """Answers with a stream that says nothing until the client is closed, and then breaks off."""

    def __init__(self) -> None:
        self.asked, self.closed = asyncio.Event(), asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.set()
        if request.url.path.endswith("/emitted"):
            return httpx2.Response(200, headers=STREAM, stream=Broken(self.closed))
        await self.closed.wait()
        raise httpx2.ReadError("broken off")

    async def aclose(self) -> None:
        self.closed.set()


class Broken(httpx2.AsyncByteStream):
    def __init__(self, closed: asyncio.Event) -> None:
        self._closed = closed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b": hello\n"
        await self._closed.wait()
        raise httpx2.ReadError("broken off")


@pytest.mark.parametrize("retry_for", [0, 30])
@pytest.mark.parametrize("streams", [False, True])
async def test_closing_while_something_is_under_way(retry_for: float, streams: bool) -> None:
    client = Client("http://shop", retry_for=retry_for, transport=(silent := Silent()))
    asking = asyncio.create_task(first_emitted(client) if streams else client.list_instances())
    await silent.asked.wait()
    await client.close()
    async with asyncio.timeout(10):
        with pytest.raises(RomancyError, match="the client is closed"):
            await asking


async def test_closing_before_another_attempt() -> None:
    refused = asyncio.Event()

    def refuse(request: httpx2.Request) -> httpx2.Response:
        refused.set()
        raise httpx2.ConnectError("refused")

    client = Client("http://shop", transport=httpx2.MockTransport(refuse))
    asking = asyncio.create_task(client.list_instances())
    await refused.wait()
    await client.close()
    with pytest.raises(RomancyError, match="the client is closed"):
        await asking


async def test_emissions_of_a_closed_client() -> None:
    client = Client("http://shop")
    await client.close()
    with pytest.raises(RomancyError, match="the client is closed"):
        await first_emitted(client)


# --- inside a workflow ------------------------------------------------------------------------------------------------
async def test_emissions_inside_a_workflow_are_refused() -> None:
    def fail(request: httpx2.Request) -> httpx2.Response:
        raise AssertionError("the workflow must not get here")

    client = Client("http://shop", retry_for=0, transport=httpx2.MockTransport(fail))

    @workflow
    async def follows(ctx: WorkflowContext) -> None:
        await first_emitted(client)

    async with client, App(":memory:", workflows=[follows]) as app:
        handle = await app.start_workflow(follows)
        with pytest.raises((WorkflowFailed, WorkflowBlocked), match=r"client\.\* was called inside a workflow"):
            await handle.result(timeout=20)


# --- proxies in the environment ---------------------------------------------------------------------------------------
@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize("name", ["ALL_PROXY", "https_proxy"])
@pytest.mark.parametrize("value", ["foo://user:hidden@x", "http://user:hidden/@x"])
def test_a_proxy_that_is_none(no_proxies: pytest.MonkeyPatch, name: str, value: str) -> None:
    no_proxies.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    no_proxies.setenv(name, value)
    with pytest.raises(InvalidInput, match=f"variable {name} is not the URL of a proxy") as caught:
        Client("http://shop")
    assert "hidden" not in str(caught.value)
    Client("http://shop", transport=httpx2.AsyncHTTPTransport())  # does not use the environment


def test_a_socks_proxy_without_its_package(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setitem(sys.modules, "socksio", None)
    no_proxies.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(InvalidInput, match=r"variable ALL_PROXY .* SOCKS .*httpx2\[socks\]"):
        Client("http://shop")


async def test_a_proxy_that_is_not_running(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("ALL_PROXY", "127.0.0.1:1")
    async with Client("http://shop", retry_for=0) as client:
        with pytest.raises(ServerUnreachable):
            await client.list_instances()
