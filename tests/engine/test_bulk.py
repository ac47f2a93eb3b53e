"""Acting on many instances at once, and the filters that say which."""

from __future__ import annotations

import inspect
from collections import Counter
from datetime import timedelta
from typing import Any, get_type_hints

import asyncpg
import pytest

from romancy import (
    App,
    BulkResult,
    Client,
    InstanceFilter,
    WorkflowContext,
    sleep,
    wait_event,
    workflow,
)
from romancy import bulk as bulk_module
from romancy.service import runtime_of
from romancy.storage.postgres import PostgresStorage
from romancy.testing import Environment
from tests import pg_server


@workflow
async def waiter(ctx: WorkflowContext, n: int = 0) -> None:
    await wait_event(ctx, "go")


@workflow
async def sleeper(ctx: WorkflowContext) -> None:
    await sleep(ctx, 60)


@workflow
async def fails(ctx: WorkflowContext, kind: str) -> None:
    raise {"value": ValueError, "key": KeyError, "valuer": Valuer}[kind]("no way")


class Valuer(Exception):
    """Its name begins like another one."""


async def ids(env: Environment, **which: Any) -> list[str]:
    found = sorted(i.instance_id for i in (await env.app.list_instances(**which)).items)
    assert await env.app.count_instances(**which) == len(found)
    return found


ERROR = b'{"error_type": "Changed"}'


async def change(env: Environment, what: str) -> None:
    """Change instances behind the engine's back. `{error}` stands for an error."""
    storage: Any = runtime_of(env.app).engine.storage
    if isinstance(storage, PostgresStorage):
        connection = await asyncpg.connect(pg_server.url(), server_settings={"search_path": storage.schema})
        await connection.execute("UPDATE instances SET " + what.format(error=f"'\\x{ERROR.hex()}'"))
        await connection.close()
    else:
        await storage._write(
            lambda c: c.execute("UPDATE romancy_instances SET " + what.format(error=f"x'{ERROR.hex()}'"))
        )


# --- filters ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [App, Client])
def test_the_keywords_of_the_list_are_the_filters(kind: Any) -> None:
    listed = list(inspect.signature(kind.list_instances).parameters)
    assert listed == ["self", *get_type_hints(InstanceFilter), "limit", "cursor"]


async def test_errors_by_their_type(env: Environment) -> None:
    for n, kind in enumerate(("value", "value", "key", "valuer")):
        await env.start(fails.options(instance_id=f"{kind}-{n}"), kind)
    await env.start(waiter.options(instance_id="open"))
    assert await ids(env, error_type="ValueError") == ["value-0", "value-1"]
    assert await ids(env, error_type="ValueError", status="failed") == ["value-0", "value-1"]
    assert await ids(env, error_type="ValueError", status=["waiting_for_event", "completed"]) == []
    assert await ids(env, error_type="Value") == []
    assert await ids(env, error_type="") == []
    assert await ids(env, error_type='Value"Error') == []
    assert await ids(env, error_type="Valuer", workflow="fails", text="no way") == ["valuer-3"]


async def test_times_are_excluded(env: Environment) -> None:
    await env.start(waiter.options(instance_id="early"))
    await env.advance(1)
    middle = env.now
    await env.start(waiter.options(instance_id="middle"))
    await env.advance(1)
    await env.start(waiter.options(instance_id="late"))
    assert await ids(env, started_after=middle) == ["late"]
    assert await ids(env, started_before=middle) == ["early"]
    around = timedelta(microseconds=1)
    assert await ids(env, started_after=middle - around, started_before=middle + around) == ["middle"]


async def test_children_by_their_parent(env: Environment) -> None:
    await env.start(waiter.options(instance_id="child"))
    await env.start(waiter.options(instance_id="other"))
    await change(env, "parent = 'p' WHERE id = 'child'")
    assert await ids(env, parent="p") == ["child"]
    assert await ids(env, parent="p", status="waiting_for_event") == ["child"]
    assert await ids(env, parent="nosuch") == []


@pytest.mark.parametrize(
    "which",
    [{"workflow": 1}, {"text": b"x"}, {"error_type": ValueError}, {"parent": 7}, {"status": "done"}, {"status": ["x"]}],
    ids=repr,
)
async def test_a_filter_of_another_type_is_refused(env: Environment, which: Any) -> None:
    for verb in (env.app.list_instances, env.app.count_instances, env.app.cancel_workflows):
        with pytest.raises(ValueError, match=r"must be a string|unknown status"):
            await verb(**which)


async def test_an_unknown_filter_is_refused(env: Environment) -> None:
    await env.start(waiter.options(instance_id="w"))
    which: Any = {"workfow": "waiter"}
    with pytest.raises(TypeError, match="'workfow' is not a filter for instances; use status, workflow"):
        await env.app.cancel_workflows(**which)
    with pytest.raises(TypeError):
        await env.app.count_instances(**which)
    assert await ids(env, status="waiting_for_event") == ["w"]


async def test_counting_goes_in_steps(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.service.SCAN", 3)
    for n in range(10):
        await env.start(waiter, n)
        await env.advance(n % 2)
    await env.start(fails, "key")
    assert await env.app.count_instances() == 11
    assert await env.app.count_instances(status=["failed", "waiting_for_event"], workflow="waiter") == 10
    assert await env.app.count_instances(text="nosuch") == 0
    assert await env.app.count_instances(started_after=env.now + timedelta(seconds=1)) == 0


# --- cancel ----------------------------------------------------------------------------------------------------------
async def test_all_that_match_are_cancelled_and_the_others_are_not(env: Environment) -> None:
    for n in range(5):
        await env.start(waiter.options(instance_id=f"w{n}"), n)
    await env.start(sleeper.options(instance_id="s"))
    assert await env.app.cancel_workflows(workflow="waiter", reason="sold out") == BulkResult(5, 5, {})
    await env.settle()
    assert await ids(env, status="cancelled") == [f"w{n}" for n in range(5)]
    assert "sold out" in (await env.app.get_instance("w3")).error["message"]
    assert await ids(env, status="waiting_for_timer") == ["s"]


async def test_what_has_ended_matches_and_is_not_changed(env: Environment) -> None:
    await env.start(fails.options(instance_id="f"), "key")
    await env.start(waiter.options(instance_id="w"))
    after = env.now - timedelta(seconds=1)
    assert await env.app.cancel_workflows(started_after=after) == BulkResult(2, 1, {})
    await env.settle()
    assert await env.app.cancel_workflows(started_after=after) == BulkResult(2, 0, {})
    assert await env.app.cancel_workflows(status="completed") == BulkResult(0, 0, {})


@pytest.mark.parametrize("which", [{}, {"status": ()}, {"text": ""}, {"workflow": None, "status": []}], ids=repr)
async def test_without_a_filter_nothing_happens(env: Environment, which: Any) -> None:
    await env.start(waiter.options(instance_id="w"))
    with pytest.raises(ValueError, match="cancel_workflows needs at least one filter: status, workflow"):
        await env.app.cancel_workflows(**which, reason="x", limit=5)
    with pytest.raises(ValueError, match="resume_workflows needs at least one filter"):
        await env.app.resume_workflows(**which)
    assert await ids(env, status="waiting_for_event") == ["w"]


@pytest.mark.parametrize("limit", [0, -1, 1.5, "x", True], ids=repr)
async def test_a_limit_that_is_none_is_refused(env: Environment, limit: Any) -> None:
    with pytest.raises(ValueError, match="limit must be a whole number of at least 1"):
        await env.app.cancel_workflows(workflow="waiter", limit=limit)


async def test_a_reason_that_is_no_text_is_refused(env: Environment) -> None:
    reason: Any = 7
    with pytest.raises(ValueError, match="reason"):
        await env.app.cancel_workflows(workflow="waiter", reason=reason)


async def test_at_most_the_limit_newest_first(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has ended does not count: called again and again, it gets through all."""
    monkeypatch.setattr(bulk_module, "PAGE", 3)
    for n in range(6):
        await env.start(waiter.options(instance_id=f"w{n}"), n)
        await env.advance(1)
    await env.app.cancel_workflow("w5")
    await env.settle()
    assert await env.app.cancel_workflows(workflow="waiter", limit=2) == BulkResult(3, 2, {})
    await env.settle()
    assert await ids(env, status="cancelled") == ["w3", "w4", "w5"]
    assert await env.app.cancel_workflows(workflow="waiter", limit=100) == BulkResult(6, 3, {})


async def test_pages_meet_each_instance_once(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that change between two pages, and not those that are started meanwhile."""
    monkeypatch.setattr(bulk_module, "PAGE", 4)
    for n in range(11):
        await env.start(waiter.options(instance_id=f"w{n:02}"), n)
        await env.advance(n % 3)
    engine = runtime_of(env.app).engine
    cancel, asked = engine.cancel, Counter[str]()

    async def counted(instance: str, reason: str | None, who: str | None) -> Any:
        asked[instance] += 1
        await env.app.start_workflow(waiter.options(instance_id=f"new-{instance}"), 1)
        return await cancel(instance, reason, who)

    monkeypatch.setattr(engine, "cancel", counted)
    assert await env.app.cancel_workflows(workflow="waiter") == BulkResult(11, 11, {})
    assert asked == Counter(f"w{n:02}" for n in range(11))


async def test_a_page_of_cancellations_is_stored_together(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(60):
        await env.start(waiter, n)
    storage: Any = runtime_of(env.app).engine.storage
    commit, requests = storage.commit, list[int]()

    def watched(batch: Any, answered: Any) -> None:
        if batch.requests:
            requests.append(len(batch.requests))
        commit(batch, answered)

    monkeypatch.setattr(storage, "commit", watched)
    assert (await env.app.cancel_workflows(workflow="waiter")).changed == 60
    assert sum(requests) == 60
    assert len(requests) <= 2, "the committer may split a batch into halves"


async def test_a_filter_without_an_index_is_searched_in_steps(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_module, "SCAN", 2)
    for n in range(7):
        await env.start(waiter.options(instance_id=f"w{n}"), n)
        await env.start(sleeper)
    which: Any = {"workflow": "waiter", "status": ["waiting_for_event", "waiting_for_timer"]}
    assert await env.app.cancel_workflows(**which) == BulkResult(7, 7, {})
    await env.settle()
    assert await env.app.count_instances(status="cancelled") == 7


# --- resume ----------------------------------------------------------------------------------------------------------
async def test_blocked_ones_are_resumed_together(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(5):
        await env.app.start_workflow("nobody has it", instance_id=f"b{n}")
    await change(env, "status = 9, error = {error} WHERE workflow = 'nobody has it'")
    await env.start(waiter.options(instance_id="w"))
    assert await env.app.count_instances(status="blocked") == 5
    storage: Any = runtime_of(env.app).engine.storage
    resume_all, calls = storage.resume_all, list[set[str]]()

    async def watched(instances: Any, who: str | None) -> set[str]:
        resumed: set[str] = await resume_all(instances, who)
        calls.append(resumed)
        return resumed

    monkeypatch.setattr(storage, "resume_all", watched)
    after = env.now - timedelta(seconds=1)
    assert await env.app.resume_workflows(started_after=after, limit=2) == BulkResult(3, 2, {})
    assert await env.app.resume_workflows(error_type="Changed") == BulkResult(3, 3, {})
    assert [len(resumed) for resumed in calls] == [2, 3]
