"""The operators' desk: workers, what needs attention, failures in groups, minutes, and attempts that begin now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    InstanceNotFound,
    NotRetryable,
    RetryPolicy,
    TerminalError,
    WorkerOptions,
    WorkflowContext,
    activity,
    sleep,
    wait_event,
    workflow,
)
from romancy.core.model import SECOND
from romancy.desk import OperatorsDesk
from romancy.engine.retention import SURVEY
from romancy.testing import Environment, environment
from tests.engine.helpers import down, outsider, until

HOUR = timedelta(hours=1)
SLOW = RetryPolicy(initial=HOUR, maximum=HOUR, jitter=0)


class Line:
    """What the activities do: fail as often as they are told to, and wait where they are told to."""

    def __init__(self) -> None:
        self.failures, self.calls, self.running, self.most = 0, 0, 0, 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def call(self) -> int:
        self.calls += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.goes_on.wait()
            if self.calls <= self.failures:
                raise ConnectionError("the line is busy\nfor long")
            return self.calls
        finally:
            self.running -= 1


line = Line()


@pytest.fixture(autouse=True)
def _new_line() -> None:
    global line
    line = Line()


@activity(retry=SLOW)
async def dial(ctx: ActivityContext, number: str) -> int:
    return await line.call()


@activity
async def refuse(ctx: ActivityContext, why: str) -> None:
    raise TerminalError(why)


@workflow
async def calling(ctx: WorkflowContext, number: str) -> int:
    return await dial(ctx, number)


@workflow
async def failing(ctx: WorkflowContext, why: str, by_itself: bool = False) -> None:
    if by_itself:
        raise ValueError(why)
    await refuse(ctx, why)


@workflow
async def napping(ctx: WorkflowContext) -> None:
    await sleep(ctx, HOUR)


@workflow
async def listening(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "word")


@pytest.fixture
async def env(db: str) -> AsyncIterator[Environment]:
    async with environment(database=db, workflows=[calling, failing, napping]) as env:
        yield env


def desk(env: Environment) -> OperatorsDesk:
    return OperatorsDesk(env.app._runtime.engine.storage, env.clock)


async def failed_once(env: Environment) -> str:
    line.failures = 1
    handle = await env.start(calling, "1")
    await env.settle()
    assert line.calls == 1
    return handle.instance_id


async def minute_over(env: Environment) -> None:
    await env.advance(60)
    await env.app._runtime.engine.counting.round()


# --- workers ----------------------------------------------------------------------------------------------------------
async def test_a_worker_says_what_it_is(env: Environment) -> None:
    line.goes_on.clear()
    await env.app.start_workflow(calling, "1", instance_id="c")
    await until(lambda: line.running)
    env.app.register(listening)
    engine = env.app._runtime.engine
    await env.app._runtime.engine.lease.round()  # it is kicked, but need not be over yet
    [worker] = await env.app.list_workers()
    assert worker.id == engine.worker_id
    assert worker.is_alive
    assert worker.workflows == ("calling", "failing", "listening", "napping")
    assert (worker.load, worker.slots, worker.instances) == (1, 100, 1)
    assert worker.pid
    assert worker.version
    assert worker.build
    assert worker.host
    line.goes_on.set()
    await env.settle()


async def test_a_worker_whose_lease_ended_and_one_of_an_older_library(env: Environment) -> None:
    storage = env.app._runtime.engine.storage
    await storage.register("old", SECOND, [], ["listening"])
    workers = {worker.id: worker for worker in await env.app.list_workers()}
    assert workers["old"].is_alive
    assert workers["old"].pid is None
    assert workers["old"].workflows == ()
    env.clock._now += 2 * SECOND
    workers = {worker.id: worker for worker in await env.app.list_workers()}
    assert not workers["old"].is_alive
    assert workers[env.app._runtime.engine.worker_id or ""].is_alive


async def test_workflows_that_no_live_worker_has(env: Environment, db: str) -> None:
    at = desk(env)
    async with outsider(env) as other:
        await other.start_workflow("ghost", instance_id="g1")
        await other.start_workflow("ghost", instance_id="g2")
        await other.start_workflow("calling", "1", instance_id="c")
    other = App(env.app.database, workflows=[listening])
    other._runtime.clock = env.clock
    async with other:
        await other.start_workflow(listening, instance_id="l")
        assert [found.workflow for found in await at.stranded()] == ["ghost"]
    found = {one.workflow: one for one in await at.stranded()}
    assert {name: one.instances for name, one in found.items()} == {"ghost": 2, "listening": 1}
    assert found["ghost"].oldest <= env.now
    await env.app._runtime.engine.storage.register("old", SECOND * 60, [], [])
    assert await at.stranded() == [], "an older worker may have them"


# --- what needs attention ---------------------------------------------------------------------------------------------
async def test_what_is_tried_again(env: Environment) -> None:
    id, at = await failed_once(env), desk(env)
    counts = await at.counts()
    assert counts.retrying.n == 1
    assert not counts.retrying.is_more
    assert counts.retrying.at == env.now + HOUR
    [retry] = (await at.retrying()).items
    assert (retry.instance_id, retry.workflow, retry.operation, retry.attempts) == (id, "calling", "dial:1", 1)
    assert (retry.error_type, retry.error) == ("ConnectionError", "the line is busy")
    assert retry.next_attempt == env.now + HOUR
    assert not retry.is_running


async def test_an_attempt_that_runs_is_not_overdue(env: Environment) -> None:
    await failed_once(env)
    line.goes_on.clear()
    env.clock.turn_to(env.clock.now() + 3600 * SECOND)
    await until(lambda: line.running)
    await env.app._runtime.engine.lease.round()
    env.clock._now += 5 * SECOND
    at = desk(env)
    assert (await at.retrying()).items[0].is_running
    assert (await at.counts()).overdue.n == 0
    assert not (await at.overdue(late=0)).items
    env.clock._now += 20 * SECOND  # the lease is over: nobody tries
    assert not (await at.retrying()).items[0].is_running
    overdue = (await at.counts()).overdue
    [late] = (await at.overdue()).items
    assert (overdue.n, overdue.at, late.kind, late.operation) == (1, late.due, "retry", "dial:1")
    line.goes_on.set()
    await env.settle()


async def test_pages_of_what_is_overdue(env: Environment) -> None:
    for n in range(3):
        await env.app.start_workflow(napping, instance_id=f"n{n}")
    await env.app.start_workflow(napping, instance_id="blocked")
    await env.settle()
    await env.app._runtime.crash()
    env.clock._now += 3600 * SECOND + 11 * SECOND
    async with outsider(env) as other:
        storage = other._runtime.engine.storage
        await _block(storage, "blocked")
        at = OperatorsDesk(storage, env.clock)
        first = await at.overdue(limit=2)
        second = await at.overdue(limit=2, cursor=first.cursor)
        assert [late.instance_id for late in (*first.items, *second.items)] == ["n0", "n1", "n2"]
        assert second.cursor is None
        assert {late.kind for late in first.items} == {"timer"}
        assert (await at.counts()).overdue.n == 3
        assert not (await at.overdue(late=60 * SECOND)).items
    await env.app.start()


async def test_blocked_instances_hide_nothing_behind_them(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.storage.desk.FEW", 2)
    line.failures = 100
    for n in range(8):
        await env.app.start_workflow(calling, "1", instance_id=f"c{n}")
        await env.app.start_workflow(napping, instance_id=f"n{n}")
        await env.advance(1)
    await env.app._runtime.crash()
    env.clock._now += 2 * 3600 * SECOND
    async with outsider(env) as other:
        storage = other._runtime.engine.storage
        for n in (0, 1, 2, 4, 5):
            await _block(storage, f"c{n}")
            await _block(storage, f"n{n}")
        at = OperatorsDesk(storage, env.clock)
        assert [item.instance_id for page in await _pages(at.retrying) for item in page] == ["c3", "c6", "c7"]
        late = [item.instance_id for page in await _pages(at.overdue) for item in page]
        assert late == ["c3", "n3", "c6", "n6", "c7", "n7"]
        assert (await at.counts()).overdue.at == (await at.overdue(limit=1)).items[0].due
    await env.app.start()


async def _pages(read: Any) -> list[Any]:
    """All pages of two."""
    pages, cursor = list[Any](), None
    while not pages or cursor is not None:
        page = await read(limit=2, cursor=cursor)
        pages.append(page.items)
        cursor = page.cursor
    return pages


async def _block(storage: Any, instance: str) -> None:
    if hasattr(storage, "_write"):
        sql = "UPDATE romancy_instances SET status = 9, owner = NULL WHERE id = ?"
        await storage._write(lambda c: c.execute(sql, (instance,)).rowcount)
    else:
        async with storage._connections._pool.acquire() as c:
            sql = f'UPDATE "{storage.schema}".instances SET status = 9, owner = NULL WHERE id = $1'
            await c.execute(sql, instance)


async def test_failures_in_groups(env: Environment) -> None:
    for n in range(3):
        await env.app.start_workflow(failing, f"no {n}\nreally", instance_id=f"f{n}")
        await env.advance(60)
    await env.app.start_workflow(failing, "odd 🙃", by_itself=True, instance_id="odd")
    await env.settle()
    found = await desk(env).failures()
    assert not found.is_cut
    first, second = found.groups
    assert (first.workflow, first.status, first.error_type, first.operation) == (
        "failing", "failed", "ActivityError", "refuse",
    )  # fmt: skip
    assert (first.count, first.message, first.newest_id) == (
        3,
        "activity 'refuse' failed after 1 attempt: TerminalError: no 2",
        "f2",
    )
    assert first.newest - first.oldest == timedelta(minutes=2)
    assert list(first.minutes[-5:]) == [0, 1, 1, 1, 0]
    assert len(first.minutes) == 60
    assert (second.error_type, second.operation, second.message) == ("ValueError", None, "odd 🙃")


async def test_only_the_newest_failures_are_in_groups(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.storage.desk.MOST_FAILURES", 2)
    for n in range(3):
        await env.app.start_workflow(failing, "no", instance_id=f"f{n}")
        await env.advance(1)
    found = await desk(env).failures()
    assert found.is_cut
    assert [group.count for group in found.groups] == [2]


# --- minutes ----------------------------------------------------------------------------------------------------------
async def test_what_happened_in_a_minute(env: Environment) -> None:
    before, at = env.now, desk(env)
    await env.app._runtime.engine.counting.round()
    await minute_over(env)
    assert await at.minutes(before - HOUR) == [], "nothing happened"
    await env.app.start_workflow(failing, "no", instance_id="f")
    await env.app.start_workflow(calling, "1", instance_id="c")
    async with outsider(env) as other:
        await (await other.start_workflow("calling", "2", instance_id="c2")).result(timeout=30)
    await env.settle()
    await minute_over(env)
    [minute] = await at.minutes(before - HOUR)
    assert (minute.started, minute.completed, minute.failed, minute.cancelled) == (3, 2, 1, 0)
    assert (minute.failures, minute.blocked, minute.retrying, minute.overdue, minute.queued) == (1, 0, 0, 0, 0)
    await env.app._runtime.engine.counting.round()
    assert await at.minutes(before - HOUR) == [minute]
    await minute_over(env)
    _, idle = await at.minutes(before - HOUR)
    assert (idle.started, idle.failures) == (0, 1), "it still needs attention"
    assert idle.at - minute.at == timedelta(minutes=1)


async def test_workers_add_up_and_the_first_one_counts_what_needs_attention(env: Environment) -> None:
    rows = env.app._runtime.engine.storage.desk
    engine, before = env.app._runtime.engine, env.now
    await engine.counting.round()
    minute = env.clock.now() // (60 * SECOND)
    await env.app.start_workflow(failing, "no", instance_id="f")
    await env.settle()
    now = env.clock.now()
    nothing = await rows.tallies(now - 86400 * SECOND, 0)
    await rows.survey(minute, nothing)
    await env.app.start_workflow(failing, "no", instance_id="f2")
    await env.settle()
    await minute_over(env)
    [found] = await desk(env).minutes(before - HOUR)
    assert (found.started, found.failed, found.failures) == (2, 2, 1), "the count of the first one stays"


async def test_minutes_are_added_once_the_database_is_back(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, before = env.app._runtime.engine, env.now
    await engine.counting.round()
    await env.app.start_workflow(failing, "no", instance_id="f")
    await env.settle()
    with monkeypatch.context() as patch:
        patch.setattr(engine.storage.desk, "_do", _fail)
        with pytest.raises(ConnectionError):
            await minute_over(env)
    await minute_over(env)
    found = await desk(env).minutes(before - HOUR)
    assert [(minute.started, minute.failed) for minute in found] == [(1, 1)]


async def _fail(*_: object, **__: object) -> list[Any]:
    raise ConnectionError


async def test_a_worker_that_stops_adds_its_last_minute(env: Environment) -> None:
    await env.app._runtime.engine.counting.round()
    await env.app.start_workflow(failing, "no", instance_id="f")
    await env.settle()
    await env.app.stop()
    async with outsider(env) as other:
        [minute] = await OperatorsDesk(other._runtime.engine.storage, env.clock).minutes(env.now - HOUR)
        assert (minute.started, minute.failed, minute.failures) == (1, 1, None)
    await env.app.start()


async def test_minutes_are_forgotten_after_a_day(env: Environment) -> None:
    before, engine = env.now, env.app._runtime.engine
    await engine.counting.round()
    await env.app.start_workflow(failing, "no", instance_id="f")
    await env.settle()
    await minute_over(env)
    env.clock._now += 12 * 3600 * SECOND
    await engine.prune()
    assert len(await desk(env).minutes(before - HOUR)) == 1
    env.clock._now += 12 * 3600 * SECOND + SURVEY
    await engine.prune()
    assert await desk(env).minutes(before - HOUR) == []


# --- retry now --------------------------------------------------------------------------------------------------------
async def test_an_attempt_begins_at_once(env: Environment) -> None:
    id = await failed_once(env)
    assert await env.app.retry_now(id)
    await env.settle()
    assert (await env.app.get_instance(id)).status == "completed"
    assert line.calls == 2
    assert line.most == 1
    with pytest.raises(NotRetryable, match="has ended"):
        await env.app.retry_now(id)
    with pytest.raises(InstanceNotFound):
        await env.app.retry_now("nobody")


async def test_from_another_process(env: Environment) -> None:
    id = await failed_once(env)
    async with outsider(env) as other:
        assert await other.retry_now(id)
        assert await other.handle(id).result(timeout=30) == 2
    await env.advance(2 * HOUR)
    assert line.calls == 2


async def test_an_instance_that_is_not_in_memory(db: str) -> None:
    options = WorkerOptions(max_resident=1)
    async with environment(database=db, workflows=[calling, napping], worker=options) as env, outsider(env) as other:
        id = await failed_once(env)
        for _ in range(3):
            await env.start(napping)
        await env.settle()
        assert id not in env.app._runtime.engine.residents
        assert await other.retry_now(id)
        assert await env.app.handle(id).result(timeout=30) == 2


async def test_the_owner_died(env: Environment) -> None:
    id = await failed_once(env)
    async with down(env), outsider(env) as other:
        assert await other.retry_now(id)
    async with asyncio.timeout(30):
        while (await env.app.get_instance(id)).status != "completed":
            await env.settle()
    assert line.calls == 2
    assert line.most == 1


async def test_a_death_is_not_blamed_on_an_attempt_that_waited(env: Environment) -> None:
    id = await failed_once(env)
    line.goes_on.clear()
    async with down(env), outsider(env) as other:
        assert await other.retry_now(id)
    await until(lambda: line.running)
    attempt = env.app._runtime.engine.residents[id].attempts["dial:1"]
    assert (attempt.n, attempt.crashes, attempt.suspicion) == (1, 0, None)
    line.goes_on.set()
    await env.settle()
    assert line.calls == 2


async def test_nothing_waits(env: Environment) -> None:
    await env.app.start_workflow(napping, instance_id="n")
    line.goes_on.clear()
    await env.app.start_workflow(calling, "1", instance_id="c")
    await until(lambda: line.running)
    assert not await env.app.retry_now("n")
    assert not await env.app.retry_now("c")
    line.goes_on.set()
    await env.settle()
    assert line.calls == 1


async def test_asked_twice_it_begins_once(env: Environment) -> None:
    id = await failed_once(env)
    line.goes_on.clear()
    async with outsider(env) as other:
        assert any(await asyncio.gather(env.app.retry_now(id), other.retry_now(id), env.app.retry_now(id)))
        await until(lambda: line.running)
        await env.app._runtime.engine.sweep.round()
    line.goes_on.set()
    await env.settle()
    assert (await env.app.get_instance(id)).status == "completed"
    assert line.calls == 2
    assert line.most == 1


async def test_it_fails_again_and_waits_again(env: Environment) -> None:
    id = await failed_once(env)
    line.failures = 2
    assert await env.app.retry_now(id)
    await env.settle()
    [retry] = (await desk(env).retrying()).items
    assert retry.attempts == 2
    assert retry.next_attempt == env.now + HOUR
    await env.advance(HOUR)
    assert line.calls == 3
    assert (await env.app.get_instance(id)).status == "completed"


async def test_cancelled_meanwhile(env: Environment) -> None:
    id = await failed_once(env)
    await asyncio.gather(env.app.cancel_workflow(id), env.app.retry_now(id), return_exceptions=True)
    await env.settle()
    assert (await env.app.get_instance(id)).status == "cancelled"
    assert line.running == 0
    with pytest.raises(NotRetryable, match="retry it"):
        await env.app.retry_now(id)


async def test_a_blocked_instance(env: Environment) -> None:
    id = await failed_once(env)
    await env.app._runtime.crash()
    async with outsider(env) as other:
        await _block(other._runtime.engine.storage, id)
        with pytest.raises(NotRetryable, match="resume"):
            await other.retry_now(id)
        assert (await OperatorsDesk(other._runtime.engine.storage, env.clock).counts()).retrying.n == 0
    await env.app.start()


async def test_an_attempt_that_waits_for_a_slot_is_left_alone(db: str) -> None:
    async with environment(database=db, workflows=[calling], max_activities=1) as env:
        id = await failed_once(env)
        line.goes_on.clear()
        await env.app.start_workflow(calling, "2", instance_id="other")
        await until(lambda: line.running)
        activities = env.app._runtime.engine.activities
        for _ in range(2):  # as if its time had come between the request and its commit
            activities.begin_now(id, "dial:1")
        assert activities.running == 2
        line.goes_on.set()
        await env.settle()
        assert (line.calls, line.most) == (3, 1)
