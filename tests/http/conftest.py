"""An app behind the real server on a real socket, in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from romancy import (
    ActivityContext,
    App,
    ReceivedEvent,
    WorkerOptions,
    WorkflowContext,
    activity,
    sleep,
    wait_event,
    workflow,
)
from romancy.app import http_app
from romancy.http import server as serving
from romancy.http import wrong_tokens
from romancy.http.listener import listen
from tests.helpers import eventually

CE = {"content-type": "application/cloudevents+json"}
BATCH = {"content-type": "application/cloudevents-batch+json"}
JSON = {"content-type": "application/json"}


def event(id: str = "1", type: str = "paid", data: Any = None, **more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": id, "source": "bank", "type": type, "data": data, **more}


@dataclass
class Paid:
    amount: float


@dataclass
class Order:
    sku: str
    count: int = 1


@workflow
async def pay(ctx: WorkflowContext, order: str = "") -> float:
    """Waits for a payment.

    And more.
    """
    return (await wait_event(ctx, "paid", model=Paid)).data.amount


@workflow
async def buy(ctx: WorkflowContext, order: Order, *, gift: bool = False) -> str:
    return f"{order.count} {order.sku}{' as a gift' if gift else ''}"


@workflow(on_event="order.placed")
async def placed(ctx: WorkflowContext, event: ReceivedEvent[Order]) -> str:
    return event.data.sku


@workflow
async def nap(ctx: WorkflowContext, seconds: float = 3600) -> None:
    await sleep(ctx, seconds)


@workflow
async def fails(ctx: WorkflowContext) -> None:
    raise RuntimeError("no way")


@activity
async def odd_values(ctx: ActivityContext) -> bytes:
    return b"\xff\x00"


@workflow
async def odd(ctx: WorkflowContext, text: str) -> Any:
    await odd_values(ctx)
    return {"text": text, "number": float("nan"), "far": float("-inf")}


WORKFLOWS = [pay, buy, placed, nap, fails, odd]


class Live:
    """A server that runs; `client` speaks to it, `on_loop` does something where the app lives."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.face = http_app(app)
        self.bound = listen("127.0.0.1", 0)
        self.port: int = self.bound.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx2.Client(base_url=self.url, timeout=30)
        self.started = threading.Event()
        self.server: serving.Server | None = None
        self.thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self.thread.start()
        assert self.started.wait(20), "the server does not start"

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        async with self.app:
            self.server = serving.Server(self.face, self.app, self.started.set)
            await self.server.serve(sockets=[self.bound])

    def stop(self) -> None:
        self.client.close()
        if self.server is not None:
            self.server.should_exit = True
        self.thread.join(30)
        assert not self.thread.is_alive()

    def on_loop(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            return await work()

        return asyncio.run_coroutine_threadsafe(main(), self.loop).result(30)

    def drain(self) -> None:
        self.loop.call_soon_threadsafe(self.face.drain)
        eventually(lambda: self.face.is_stopping, 20)

    def send(self, *args: Any, **more: Any) -> httpx2.Response:
        return self.client.post("/", content=json.dumps(event(*args, **more)), headers=CE)

    def start(self, name: str, *args: Any, id: str | None = None, **kwargs: Any) -> str:
        body = {"args": args, "kwargs": kwargs, "instance_id": id}
        answer = self.client.post(f"/api/workflows/{name}/start", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["instance_id"]

    def until(self, id: str, status: str) -> None:
        """Wait until an instance has got somewhere."""
        eventually(lambda: self.client.get(f"/api/instances/{id}").json()["status"] == status, 20, f"{id} {status}")

    def result(self, id: str) -> dict[str, Any]:
        return self.client.get(f"/api/instances/{id}/result", params={"timeout": 20}).json()

    def raw(self, text: bytes, *, end: bool = False, timeout: float = 20) -> bytes:
        """Send bytes as they are, and read until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(text)
            if end:
                connection.shutdown(socket.SHUT_WR)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Live]]:
    """Starts a server with an app made of these arguments."""
    monkeypatch.delenv("ROMANCY_TOKENS", raising=False)
    monkeypatch.setattr(wrong_tokens, "LONGEST", 0.0)  # tests send many wrong tokens
    running: list[Live] = []

    def start(**options: Any) -> Live:
        app = App(tmp_path / "http.db", **{"workflows": WORKFLOWS, "worker": WorkerOptions(grace=2), **options})
        running.append(Live(app))
        return running[-1]

    yield start
    for live in running:
        live.stop()


@pytest.fixture
def live(serve: Callable[..., Live]) -> Live:
    return serve()


def assert_error(answer: httpx2.Response, status: int, kind: str | None = None) -> dict[str, Any]:
    """An error in the shape all errors have."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert isinstance(found["error"], str)
    assert found["error"]
    assert found["retryable"] is (status in (429, 500, 503))
    assert kind is None or found["error_type"] == kind
    assert ("retry-after" in answer.headers) == (status in (429, 503))
    return found
