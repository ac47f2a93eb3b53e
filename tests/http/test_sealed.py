"""Sealed and redacted values over HTTP and in the viewer: pages work without the key, and hidden fields stay hidden."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    RetryPolicy,
    Schedule,
    WorkflowContext,
    activity,
    ask,
    wait_event,
    workflow,
)
from romancy.codecs import Encrypted
from romancy.core.model import MAGIC
from tests.http.conftest import Live, assert_error
from tests.sealed import KEYS

SECRET = "hunter2"


@activity(retry=RetryPolicy(max_attempts=9, initial=timedelta(hours=1)))
async def falter(ctx: ActivityContext, order: dict[str, Any]) -> None:
    ctx.progress(order)
    raise ValueError("not yet")


@workflow
async def faltering(ctx: WorkflowContext, order: dict[str, Any]) -> None:
    await falter(ctx, order)


@workflow
async def asking(ctx: WorkflowContext, order: dict[str, Any]) -> None:
    await (await ask(ctx, bool, title="May I?", people=["ann"])).answer()


@workflow
async def waiting(ctx: WorkflowContext, order: dict[str, Any]) -> dict[str, Any]:
    if order["waits"]:
        await wait_event(ctx, "go", where={"card.password": SECRET})
        await wait_event(ctx, "go", where={"card.password": SECRET, "n": 3})
    return order


ALL = [faltering, asking, waiting]


@pytest.fixture
def sealed(tmp_path: Path) -> None:
    """A database with values that are sealed with k1."""
    database = str(tmp_path / "http.db")

    async def fill() -> None:
        async with App(database, workflows=ALL, codec=Encrypted({"k1": KEYS["k1"]})) as app:
            done = await app.start_workflow(waiting.options(instance_id="waiting"), {"waits": False})
            for wf, name in ((faltering, "faltering"), (asking, "asking")):
                await app.start_workflow(wf.options(instance_id=name), {"waits": True})
            await app.set_schedule("nightly", Schedule(every=timedelta(hours=1)), waiting, {"waits": False})
            await done.result()
            async with asyncio.timeout(20):
                while not all([(await app.get_instance(id)).waits for id in ("faltering", "asking")]):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        async with App(database, workflows=ALL, codec=Encrypted(KEYS), worker=False):
            pass  # the key for filters is sealed with k2 from now on

    asyncio.run(fill())


@pytest.mark.usefixtures("sealed")
@pytest.mark.parametrize("codec", [None, Encrypted({"k2": KEYS["k2"]})], ids=["no codec", "no key"])
def test_without_the_key_everything_can_be_looked_at(serve: Callable[..., Live], codec: Any) -> None:
    live = serve(workflows=ALL, codec=codec, worker=False)
    ids = ("faltering", "asking", "waiting")
    pages = [f"/viewer/instances/{id}" for id in ids] + [f"/api/instances/{id}/history" for id in ids]
    for path in [*pages, "/viewer/approvals", "/api/questions", "/api/schedules", "/viewer/schedules"]:
        assert live.client.get(path).status_code == 200, path
    [question] = live.client.get("/api/questions").json()["items"]
    assert (question["instance_id"], question["title"], question["people"]) == ("asking", "sealed (k1)", [])
    assert live.client.post("/api/schedules/nightly/pause").status_code == 200
    # Code must not take what is shown for the result.
    for answer in (
        live.client.get("/api/instances/waiting/result"),
        live.client.post("/api/instances/waiting/fork", json={}),
    ):
        assert_error(answer, 500, "CodecError")


def test_data_that_looks_sealed_is_refused(serve: Callable[..., Live]) -> None:
    live = serve(workflows=ALL)
    about = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "t"}
    headers = {**about, "content-type": "application/octet-stream"}
    assert_error(live.client.post("/", content=MAGIC + b"x", headers=headers), 400, "InvalidEvent")


def hide(value: Any) -> Any:
    """As a function of the user: it knows where to look."""
    if isinstance(value, dict) and isinstance(value.get("card"), dict):
        return {**value, "card": "***"}
    return {name: hide(item) for name, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("redact", [["password", "next", "attempt"], hide], ids=["names", "function"])
def test_nothing_is_shown_of_hidden_fields(serve: Callable[..., Live], redact: Any) -> None:
    """Filters of waits, and reasons why events do not match, have values of users in them, too."""
    live = serve(workflows=ALL, redact=redact)
    order = {"waits": True, "card": {"password": SECRET}}
    live.start("waiting", order, id="waiting")
    live.start("faltering", order, id="faltering")
    live.until("waiting", "waiting_for_event")
    for n in (1, 2):
        live.on_loop(lambda n=n: live.app.send_event("go", "s", {"card": {"password": SECRET}, "n": n}))
    live.on_loop(lambda: live.app.send_event("go", "s", {"card": {"password": f"{SECRET}?"}, "n": 3}))
    todo = [f"/{kind}/instances/{id}" for kind in ("viewer", "api") for id in ("waiting", "faltering")]
    todo += ["/viewer/events?show=unmatched", "/viewer/events", "/api/instances/waiting/history", "/api/waits"]
    events = re.findall(r'href="(/viewer/event\?[^"]+)', live.client.get("/viewer/events").text)
    assert len(events) >= 3
    for path in [*todo, *(event.replace("&amp;", "&") for event in events)]:
        answer = live.client.get(path)
        assert answer.status_code == 200, path
        assert SECRET not in answer.text, path
    assert "its values are redacted" in live.client.get("/viewer/instances/waiting").text
