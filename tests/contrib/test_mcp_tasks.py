"""The tasks extension: handles of calls that go on, on both databases; questions; cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from romancy import App, Database, WorkflowContext, ask, wait_event, workflow
from romancy.contrib.mcp import tools
from tests import pg_server
from tests.contrib.mcp_kit import TASKS, call, client, served, task

ANN, BOB = "ann@x.org=control:SECRET-OF-ANN-0123456789", "bob=control:SECRET-OF-BOB-0123456789"


@workflow
async def order(ctx: WorkflowContext, sku: str) -> dict[str, str]:
    event = await wait_event(ctx, "paid", model=str)
    return {"sku": sku, "paid": event.data}


@workflow
async def hidden(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "never")


@workflow
async def fails(ctx: WorkflowContext) -> None:
    raise RuntimeError("no way")


@dataclass
class Approval:
    approved: bool
    note: str = ""


@workflow
async def refund(ctx: WorkflowContext) -> dict[str, Any]:
    question = await ask(ctx, Approval, title="Refund 5?", people=["ann@x.org"], expires_in=timedelta(days=3))
    answer = await question.answer()
    return {"approved": answer.data.approved, "note": answer.data.note, "by": answer.by}


ALL = [order, hidden, fails, refund]


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    if request.param == "sqlite":
        yield Database(str(tmp_path / "a.db"))
        return
    async with pg_server.schema() as schema:
        yield Database(pg_server.url(), schema)


async def _until(found: Any, id: str, status: str) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while True:
            state = await task(found, "get", id)
            if state["status"] == status:
                return state
            await asyncio.sleep(0.01)


async def test_a_task_is_found_by_another_process(database: Database) -> None:
    """The server that began it is gone; another one on the same database answers."""
    first = App(database, workflows=ALL)
    async with served(tools(first, [order], answer_within=0)) as url, client(url, tasks=True) as found:
        begun = await call(found, "order", {"sku": "x"})
        assert (begun.result_type, begun.status) == ("task", "working")
        id = begun.taskId
        assert (await task(found, "get", id))["status"] == "working"
    second = App(database, workflows=ALL)
    async with served(tools(second, [order])) as url, client(url, tasks=True) as found:
        state = await task(found, "get", id)
        assert (state["status"], state.get("ttlMs")) == ("working", None)
        await second.send_event("paid", "bank", "by card")
        state = await _until(found, id, "completed")
        assert state["result"]["structuredContent"] == {"sku": "x", "paid": "by card"}
        assert state["ttlMs"] >= timedelta(days=7).total_seconds() * 1000
        assert (await second.get_instance(id)).instance_id == id


async def test_the_client_can_choose_the_id_so_that_it_can_call_again(database: Database) -> None:
    app = App(database, workflows=ALL)
    async with app, client(tools(app, [order], answer_within=0).server, tasks=True) as found:
        ids = [(await call(found, "order", {"sku": "x"}, **{"romancy/instance_id": "o-1"})).taskId for _ in range(2)]
        assert ids == ["o-1", "o-1"]
        taken = await call(found, "order", {"sku": "y"}, **{"romancy/instance_id": "o-1"})
        assert taken.is_error
        assert "is taken" in taken.content[0].text
        assert await app.count_instances() == 1


async def test_a_task_is_cancelled(database: Database) -> None:
    app = App(database, workflows=ALL)
    async with app, client(tools(app, [order], answer_within=0).server, tasks=True) as found:
        id = (await call(found, "order", {"sku": "x"})).taskId
        assert (await task(found, "cancel", id))["resultType"] == "complete"
        state = await _until(found, id, "cancelled")
        assert state["statusMessage"].startswith("The workflow 'order' was cancelled")
        acts = [(act.verb, act.who) for act in (await app.get_instance(id)).acts]
        assert acts == [("start", "mcp"), ("cancel", "mcp")]
        await task(found, "cancel", id)  # again: acknowledged, and nothing happens


async def test_a_failed_workflow_is_a_result_with_an_error_and_without_traceback(database: Database) -> None:
    app = App(database, workflows=ALL)
    async with app, client(tools(app, [fails], answer_within=0).server, tasks=True) as found:
        await call(found, "fails", **{"romancy/instance_id": "f"})
        state = await _until(found, "f", "completed")
        assert state["result"]["isError"]
        assert state["result"]["content"][0]["text"] == "The workflow 'fails' failed: RuntimeError: no way"
        assert "Traceback" not in str(state)


@pytest.mark.parametrize("id", ["hidden-1", "nothing", "", "x" * 5000, "\0", "a/b%"])
async def test_other_instances_and_wrong_ids_are_no_tasks(id: str) -> None:
    app = App(":memory:", workflows=ALL)
    async with app, client(tools(app, [order]).server, tasks=True) as found:
        await app.start_workflow(hidden.options(instance_id="hidden-1"))
        for method, params in (("get", {}), ("cancel", {}), ("update", {"inputResponses": {}})):
            with pytest.raises(MCPError) as refused:
                await task(found, method, id, **params)
            assert refused.value.code == -32602
            assert "hidden" not in refused.value.message
        for name in ("get_result", "cancel"):
            assert (await call(found, name, {"instance_id": id})).is_error
        assert (await app.get_instance("hidden-1")).status not in ("cancelled", "completed")


async def test_nothing_tells_whether_another_instance_exists() -> None:
    app = App(":memory:", workflows=ALL)
    async with app, client(tools(app, [order]).server, tasks=True) as found:
        await app.start_workflow(hidden.options(instance_id="id-1"))
        told = [(await call(found, "get_result", {"instance_id": id})).content[0].text for id in ("id-1", "id-2")]
        assert told == [f"no tool of this server has started 'id-{n}'" for n in (1, 2)]


async def test_clients_without_the_extension_get_no_tasks() -> None:
    app = App(":memory:", workflows=ALL)
    async with app, client(tools(app, [order], answer_within=0).server) as found:
        begun = await call(found, "order", {"sku": "x"})
        assert begun.result_type == "complete"
        id = begun.structured_content["instance_id"]
        with pytest.raises(MCPError) as refused:
            await task(found, "get", id)
        assert refused.value.code == -32021
        assert refused.value.data["requiredCapabilities"]["extensions"] == {TASKS: {}}


# --- questions --------------------------------------------------------------------------------------------------------
async def test_a_question_is_answered_by_the_person_it_names(database: Database) -> None:
    app = App(database, workflows=ALL, tokens=[ANN, BOB])
    face = tools(app, [refund], answer_within=0)
    async with served(face) as url:
        async with client(url, tasks=True, token="SECRET-OF-BOB-0123456789") as bob:
            id = (await call(bob, "refund")).taskId
            state = await _until(bob, id, "input_required")
            assert state["inputRequests"] == {}
            assert state["statusMessage"] == "It waits for ann@x.org to answer 'Refund 5?'."
        async with client(url, tasks=True, token="SECRET-OF-ANN-0123456789") as ann:
            ((key, request),) = (await task(ann, "get", id))["inputRequests"].items()
            assert request["method"] == "elicitation/create"
            assert request["params"]["message"] == "Refund 5?"
            schema = request["params"]["requestedSchema"]
            assert {name: part["type"] for name, part in schema["properties"].items()} == {
                "approved": "boolean",
                "note": "string",
            }
            assert schema["required"] == ["approved"]
            content = {"approved": True, "note": "fine"}
            accepted = {"action": "accept", "content": content}
        async with client(url, tasks=True, token="SECRET-OF-BOB-0123456789") as bob:  # knows the key, and may not
            for name in (key, key.rpartition("/")[0] + "/0"):
                await task(bob, "update", id, inputResponses={name: accepted})
            assert (await task(bob, "get", id))["status"] == "input_required"
        async with client(url, tasks=True, token="SECRET-OF-ANN-0123456789") as ann:
            await task(ann, "update", id, inputResponses={key: {"action": "decline"}, "other": accepted})
            with pytest.raises(MCPError, match="approved: This is needed"):
                await task(ann, "update", id, inputResponses={key: {"action": "accept", "content": {"note": "x"}}})
            for nonsense in (7, {"action": "shrug"}, {"action": "accept", "content": [1]}, {"action": "accept"}):
                with pytest.raises(MCPError) as refused:
                    await task(ann, "update", id, inputResponses={key: nonsense})
                assert refused.value.code == -32602
            assert (await task(ann, "get", id))["status"] == "input_required"
            await task(ann, "update", id, inputResponses={key: accepted})
            state = await _until(ann, id, "completed")
            assert state["result"]["structuredContent"] == {**content, "by": "ann@x.org"}
            (stored,) = (await app.list_events(type="romancy.answered")).items
            assert (stored.sent_by, stored.event.origin) == ("ann@x.org", "mcp ann@x.org")
            await task(ann, "update", id, inputResponses={key: accepted})  # late: ignored


async def test_who_does_not_know_tasks_is_told_who_is_asked() -> None:
    app = App(":memory:", workflows=ALL)
    async with app, client(tools(app, [refund], answer_within=0.3).server) as found:
        told = await call(found, "refund")
        (question,) = told.structured_content["questions"]
        assert (question["title"], question["people"]) == ("Refund 5?", ["ann@x.org"])
        assert "It waits for ann@x.org to answer 'Refund 5?'." in told.content[0].text
        assert "/ask/" not in str(told)
