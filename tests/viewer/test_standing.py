"""How an instance stands: who runs it, and why an event that seems to fit was not taken."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from romancy import App
from romancy.app import http_app
from romancy.core.model import SECOND
from romancy.storage.catalog import WHOLE
from romancy.viewer.values import beginning
from tests.helpers import eventually
from tests.http.conftest import Live
from tests.viewer.conftest import WORKFLOWS


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    """One that only looks."""
    async with App(tmp_path / "x.db", workflows=WORKFLOWS, worker=False) as made:
        yield made


async def page(app: App, path: str) -> str:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(http_app(app)), base_url="http://localhost") as client:
        answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.text


async def held(app: App, worker: str, lease: int) -> None:
    await app.start_workflow("echo", 1, instance_id="e")
    storage = app._runtime.engine.storage
    await storage.register(worker, lease, (), ["echo"])
    assert [claimed.id for claimed in await storage.claim(worker, ["echo"], 10, 0)] == ["e"]


# --- who runs it ------------------------------------------------------------------------------------------------------
async def test_no_worker_ever_took_it(app: App) -> None:
    await app.start_workflow("echo", 1, instance_id="e")
    text = await page(app, "/viewer/instances/e")
    assert "no worker runs it; start one with workflow &#39;echo&#39;: romancy worker MODULE" in text
    assert "its code is running" not in text


async def test_a_worker_that_runs_it_is_named(app: App) -> None:
    await held(app, "w1", 60 * SECOND)
    text = await page(app, "/viewer/instances/e")
    assert "worker w1 on" in text
    assert "runs it and is alive" in text
    assert "its code is running, or an activity is in its first attempt" in text


async def test_a_worker_that_was_killed_is_not_called_alive(app: App) -> None:
    await held(app, "w1", 60 * SECOND)
    app._runtime.engine.storage._locks.drop()  # type: ignore[attr-defined]
    text = await page(app, "/viewer/instances/e")
    assert "ran it, but its process seems to be gone; the instance soon goes to another one" in text
    assert "is alive" not in text
    assert "its code is running" not in text


async def test_a_worker_whose_lease_is_over_is_gone_or_hangs(app: App) -> None:
    await held(app, "w1", -5 * SECOND)
    text = await page(app, "/viewer/instances/e")
    assert "but its lease expired" in text
    assert (
        "it is dead or hangs; the instance goes to another one with workflow &#39;echo&#39;: romancy worker MODULE"
        in text
    )
    assert "its code is running" not in text


async def test_a_worker_that_left_is_gone(app: App) -> None:
    await held(app, "w1", 60 * SECOND)
    await app._runtime.engine.storage.release("w1")
    text = await page(app, "/viewer/instances/e")
    assert "worker w1, which ran it, is gone; start one with workflow &#39;echo&#39;: romancy worker MODULE" in text


async def test_of_what_has_ended_no_worker_is_told(live: Live) -> None:
    live.start("echo", id="e")
    live.until("e", "completed")
    assert "<dt>worker</dt>" not in live.client.get("/viewer/instances/e").text


# --- why an event was not taken -------------------------------------------------------------------------------------
BLOCKED = "the instance is blocked; it takes no events until it goes on"


def test_a_blocked_instance_is_told_from_a_misfit(blocked: Live) -> None:
    live = blocked
    for path in ("/viewer/events?show=unmatched", "/viewer/event?source=bank&id=e", "/viewer/instances/f"):
        text = live.client.get(path).text
        assert BLOCKED in text, path
        assert "fit the model" not in text, path


async def test_before_a_worker_looks_no_misfit_is_claimed(tmp_path: Path) -> None:
    async with App(tmp_path / "x.db", workflows=WORKFLOWS) as app:
        await app.start_workflow("invoice", 7, instance_id="i")
        await until_it_waits(app)
    async with App(tmp_path / "x.db", worker=False) as app:
        await app.send_event("invoice.paid", "bank", {"number": 7}, id="e")
        for path in ("/viewer/events?show=unmatched", "/viewer/event?source=bank&id=e", "/viewer/instances/i"):
            text = await page(app, path)
            assert "no worker has looked at it yet" in text, path
            assert "fit the model" not in text, path


async def until_it_waits(app: App) -> None:
    watcher = app._runtime.engine.changes.watch()
    while (await app.get_instance("i")).status != "waiting_for_event":
        await watcher.changed.wait()
        watcher.take()
    app._runtime.engine.changes.leave(watcher)


def test_a_recorded_misfit_is_told_with_its_reason(live: Live) -> None:
    live.start("invoice", 7, id="i")
    live.until("i", "waiting_for_event")
    assert live.send("e", "invoice.paid", data={"number": 7, "amount": "much"}).json()["mismatched"] == 1
    live.send("f", "invoice.paid", data={"number": 7, "amount": "more"})
    for path in ("/viewer/events?show=unmatched", "/viewer/event?source=bank&id=e", "/viewer/instances/i"):
        text = eventually_has(live, path, "does not fit Paid")
        assert "no worker has looked" not in text or path != "/viewer/event?source=bank&id=e"


def eventually_has(live: Live, path: str, words: str) -> str:
    eventually(lambda: words in live.client.get(path).text, 10, f"{words} on {path}")
    return live.client.get(path).text


# --- long values ------------------------------------------------------------------------------------------------------
def test_of_a_long_value_the_beginning_is_shown_as_it_is(live: Live) -> None:
    long: Any = {"text": "é" * WHOLE}
    live.start("echo", long, id="long")
    live.until("long", "completed")
    live.send("e", "order.placed", data=long)
    [started] = [i for i in live.client.get("/api/instances").json()["items"] if i["workflow"] == "placed"]
    live.until(started["instance_id"], "completed")
    for id in ("long", started["instance_id"]):
        text = live.client.get(f"/viewer/instances/{id}").text
        assert "ééééé" in text
        assert "base64" not in text
        assert "�" not in text
        assert "The first 4 KB of" in text


def test_what_is_no_text_is_base64() -> None:
    assert beginning(json.dumps("é").encode()[:4]) == '"\\u0'
    assert beginning("é".encode() * 3 + b"\xc3") == "ééé"
    assert beginning(b"\xff\xfe") == {"base64": "//4="}
