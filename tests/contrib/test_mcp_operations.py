"""The read-only server: what operators and coding agents see, cut to size."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from romancy import ActivityContext, App, WorkflowContext, activity, wait_event, workflow
from romancy.contrib.mcp import operations
from romancy.contrib.mcp.bounded import MOST, bounded
from romancy.contrib.mcp.deadline import OutOfTime, run_for
from romancy.contrib.mcp.operator_tools import OPERATIONS
from tests.contrib.mcp_kit import call, client

CHANGED = ENDLESS = False


@activity
async def charge(ctx: ActivityContext, amount: float) -> str:
    return f"charged {amount}"


@workflow
async def pay(ctx: WorkflowContext, order: str, more: str = "") -> None:
    while ENDLESS:
        try:
            sum(range(100))
        except Exception as error:
            print(error)
    await charge(ctx, 2.0 if CHANGED else 1.0)
    await wait_event(ctx, "paid", where={"order": order})


async def _waits(app: App) -> None:
    async with asyncio.timeout(10):
        while (await app.get_instance("p-1")).status != "waiting_for_event":  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_what_operators_see() -> None:
    global CHANGED
    app = App(":memory:", workflows=[pay])
    async with app, client(operations(app).server) as found:
        tools = (await found.list_tools()).tools
        assert [tool.name for tool in tools] == list(OPERATIONS)
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        await app.start_workflow(pay.options(instance_id="p-1"), "7")
        await app.send_event("paid", "bank", {"order": "8"})
        await _waits(app)

        async def ask(name: str, **arguments: object) -> dict[str, object]:
            result = await call(found, name, arguments)
            assert not result.is_error, result
            assert json.loads(result.content[0].text) == result.structured_content
            return result.structured_content

        (item,) = (await ask("list_instances", workflow="pay", status=["waiting_for_event"]))["items"]
        assert (item["instance_id"], item["input"]) == ("p-1", {"order": "7", "more": ""})
        assert (await ask("list_instances", workflow="other"))["items"] == []
        shown = await ask("show_instance", instance_id="p-1")
        assert [entry["kind"] for entry in shown["history"]] == ["started", "activity_completed"]
        assert [entry["n"] for entry in (await ask("show_instance", instance_id="p-1", entries=1))["history"]] == [1]
        earlier = await ask("show_instance", instance_id="p-1", before=1)
        assert [entry["n"] for entry in earlier["history"]] == [0]
        (wait,) = (await ask("why", instance_id="p-1"))["waits"]
        assert wait["near"][0]["reasons"]
        assert [wait["kind"] for wait in (await ask("list_waits", instance_id="p-1"))["items"]] == ["event"]
        assert [event["type"] for event in (await ask("list_events", unmatched=True))["items"]] == ["paid"]
        assert (await ask("replay", instance_id="p-1"))["follows"]
        try:
            CHANGED = True
            changed = await ask("replay", instance_id="p-1")
        finally:
            CHANGED = False
        assert not changed["follows"]
        assert "2.0" in changed["code"]


@pytest.mark.parametrize("name", [name for name in OPERATIONS if "instance_id" in OPERATIONS[name].model.model_fields])
async def test_wrong_ids_are_errors_in_words(name: str) -> None:
    app = App(":memory:", workflows=[pay])
    async with app, client(operations(app).server) as found:
        if name not in ("list_waits", "list_events"):
            missing = await call(found, name, {"instance_id": "nope"})
            assert missing.is_error
            assert missing.content[0].text == "no instance has the id 'nope'; list_instances lists all instances"
        for arguments in ({"instance_id": 7}, {"nope": 1}, {"instance_id": "x", "limit": 10**9}):
            refused = await call(found, name, arguments)
            assert refused.is_error, arguments
            assert "does not fit" in refused.content[0].text


async def test_a_replay_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.contrib.mcp.operator_tools.REPLAY_SECONDS", 0.1)
    app = App(":memory:", workflows=[pay])
    async with app, client(operations(app).server) as found:
        await app.start_workflow(pay.options(instance_id="p-1"), "7")
        await _waits(app)
        monkeypatch.setattr(f"{__name__}.ENDLESS", True)
        stopped = await call(found, "replay", {"instance_id": "p-1"})
        assert stopped.is_error
        assert "the replay was stopped" in stopped.content[0].text


async def test_what_ends_in_time_is_left_alone() -> None:
    assert await run_for(5, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await run_for(5, lambda: 1 // 0)


async def test_code_that_catches_everything_once_is_stopped_too() -> None:
    caught: list[BaseException] = []

    def stubborn() -> None:
        try:
            while True:
                sum(range(100))
        except BaseException as error:
            caught.append(error)
        while True:
            sum(range(100))

    with pytest.raises(TimeoutError):
        await run_for(0.01, stubborn)
    assert [type(error) for error in caught] == [OutOfTime]
    for thread in threading.enumerate():
        if thread.name == "romancy-replay":
            thread.join(5)
            assert not thread.is_alive()


def test_answers_are_cut_to_size() -> None:
    small = {"items": [{"text": "x"}], "cursor": None}
    assert bounded(small) == small
    for huge in (
        {"items": [{"text": "x" * 100_000}] * 3},
        {"items": [{"n": n, "text": "y" * 500} for n in range(1000)]},
        {"deep": [[["z" * 100] * 50] * 50] * 5},
        {"many": {f"k{n}": n for n in range(20_000)}},
        {f"k{n}": "x" * 1000 for n in range(1000)},
        {"names": {"k" * 100_000: 1}},
    ):
        cut = bounded(huge)
        assert len(json.dumps(cut)) <= MOST * 1.05
        assert "cut" in cut
    assert len(bounded({"items": [{"n": n, "text": "y" * 500} for n in range(200)]})["items"]) == 200


@workflow
async def log_in(ctx: WorkflowContext, user: dict[str, str]) -> dict[str, str]:
    await wait_event(ctx, "code")
    return user


@pytest.mark.parametrize(("name", "more"), [("show_instance", {"instance_id": "u"}), ("list_events", {})])
async def test_what_people_do_not_see_agents_do_not_see_either(name: str, more: dict[str, str]) -> None:
    app = App(":memory:", workflows=[log_in], redact=["password"])
    async with app, client(operations(app).server) as found:
        handle = await app.start_workflow(log_in, {"password": "hunter2"}, instance_id="u")
        await app.send_event("code", "phone", {"password": "hunter2"})
        assert await handle.result(timeout=10) == {"password": "hunter2"}
        shown = str((await call(found, name, more)).structured_content)
        assert "(redacted)" in shown
        assert "hunter2" not in shown
