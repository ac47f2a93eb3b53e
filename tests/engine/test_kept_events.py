"""Events are kept while an open instance that was there when they came may still take them."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    Retention,
    RetryPolicy,
    WorkflowContext,
    WorkflowFailed,
    activity,
    events,
    sleep,
    wait_event,
    workflow,
)
from romancy.engine.retention import BRISK, REST
from romancy.storage.interests import rows_of_commits
from romancy.testing import Environment, environment
from tests.engine.helpers import watch

DAY = timedelta(days=1)
MONTH = timedelta(days=30)


@workflow
async def sleeper(ctx: WorkflowContext) -> Any:
    await sleep(ctx, MONTH)
    return (await wait_event(ctx, "approved")).data


@workflow
async def quick(ctx: WorkflowContext) -> None:
    pass


async def kept(env: Environment) -> set[str]:
    return {record.event.id for record in (await env.app.list_events(limit=1000)).items}


async def settled(env: Environment, wf: Any, *args: Any) -> None:
    """Let an instance of a workflow complete, so that its first cohort is over."""
    handle = await env.start(wf, *args)
    await env.send_event("approved", "test", "first", to=handle.instance_id)
    await env.advance(MONTH)
    await env.settle()
    assert await handle.status() == "completed"


@pytest.mark.parametrize("to", [None, "one"], ids=["for all", "addressed"])
@pytest.mark.parametrize("restarts", [False, True])
async def test_an_instance_asleep_for_a_month_takes_an_event_of_its_first_day(
    db: str, to: str | None, restarts: bool
) -> None:
    async with environment(database=db, workflows=[sleeper]) as env:
        handle = await env.start(sleeper.options(instance_id="one"))
        await env.send_event("approved", "test", "yes", to=to)
        for _ in range(29):
            await env.advance(DAY)
        if restarts:
            await env.restart()
        await env.advance(DAY)
        assert await handle.result() == "yes"


async def test_nobody_waits_for_what_is_removed_after_a_week(db: str) -> None:
    """Once an instance has completed, it is known what the workflow waits for."""
    async with environment(database=db, workflows=[sleeper]) as env:
        await settled(env, sleeper)
        handle = await env.start(sleeper)
        await env.send_event("approved", "test", "yes", id="wanted")
        await env.send_event("other", "test", id="unwanted")
        await env.advance(7 * DAY)
        assert await kept(env) >= {"wanted", "unwanted"}
        await env.advance(timedelta(hours=2))
        assert "wanted" in await kept(env)
        assert "unwanted" not in await kept(env)
        assert await handle.result() == "yes"
        await env.advance(timedelta(hours=2))
        assert "wanted" not in await kept(env), "it has been taken, and its instance has completed"


async def test_the_first_cohort_keeps_everything(db: str) -> None:
    async with environment(database=db, workflows=[sleeper]) as env:
        await env.start(sleeper)
        await env.send_event("other", "test", id="other")
        await env.advance(20 * DAY)
        assert await kept(env) == {"other"}, "nobody knows yet what it is going to wait for"


async def test_events_from_before_the_oldest_instance_go(db: str) -> None:
    async with environment(database=db, workflows=[sleeper]) as env:
        await env.send_event("approved", "test", id="before")
        await env.advance(timedelta(hours=2))
        await env.start(sleeper)
        await env.advance(8 * DAY)
        assert await kept(env) == set()


@workflow(expects=["approved", "payment.*"])
async def declared(ctx: WorkflowContext, type: str) -> Any:
    await sleep(ctx, MONTH)
    return (await wait_event(ctx, type)).data


async def test_a_declaration_counts_from_the_start(db: str) -> None:
    async with environment(database=db, workflows=[declared]) as env:
        handle = await env.start(declared, "payment.made")
        for type in ("approved", "payment.made", "payments", "other"):
            await env.send_event(type, "test", "yes", id=type)
        await env.advance(8 * DAY)
        assert await kept(env) == {"approved", "payment.made"}
        assert await handle.result() == "yes"


async def test_to_wait_for_what_is_not_expected_is_an_error(env: Environment) -> None:
    handle = await env.start(declared, "other")
    with pytest.raises(WorkflowFailed, match=r"'declared' waits for 'other', but expects only approved, payment\.\*"):
        await handle.result()


@workflow(expects="hit")
async def streaming(ctx: WorkflowContext, type: str) -> Any:
    async for event in events(ctx, type):
        return event.data


async def test_a_stream_of_what_is_not_expected_is_an_error(env: Environment) -> None:
    assert (await (await env.start(streaming, "hit")).status()) == "waiting_for_event"
    with pytest.raises(WorkflowFailed, match="add 'miss' to"):
        await (await env.start(streaming, "miss")).result()


@pytest.mark.parametrize("expects", [[""], ["a*b"], [1], ["**"]])
def test_a_declaration_is_checked(expects: Any) -> None:
    with pytest.raises(TypeError, match=r"expects= takes event types"):

        @workflow(expects=expects)
        async def wrong(ctx: WorkflowContext) -> None: ...


@workflow
async def computing(ctx: WorkflowContext, first: str, then: str) -> Any:
    await wait_event(ctx, first)
    await sleep(ctx, MONTH)
    return (await wait_event(ctx, then)).data


async def test_a_type_that_is_computed_is_never_known(db: str) -> None:
    async with environment(database=db, workflows=[computing]) as env:
        handle = await env.start(computing, "a", "b")
        await env.send_event("a", "test")
        await env.send_event("b", "test", 1)
        await env.advance(MONTH)
        assert await handle.result() == 1
        handle = await env.start(computing, "a", "c")
        await env.send_event("a", "test")
        await env.send_event("c", "test", 2)
        await env.advance(MONTH)
        assert await handle.result() == 2


def elsewhere() -> Any:
    """A wait that the source of the workflow does not show."""
    from tests.engine import kept_elsewhere

    return kept_elsewhere


@workflow
async def helped(ctx: WorkflowContext, days: int) -> Any:
    await sleep(ctx, days * DAY)
    return (await elsewhere().wait_for_signature(ctx)).data


async def test_what_was_waited_for_is_learned(db: str) -> None:
    async with environment(database=db, workflows=[helped]) as env:
        handle = await env.start(helped, 0)
        await env.send_event("signed", "test", 1)
        assert await handle.result() == 1
        await env.advance(DAY)
        handle = await env.start(helped, 20)
        await env.send_event("signed", "test", 2, id="signed")
        await env.send_event("other", "test", id="other")
        await env.advance(10 * DAY)
        assert await kept(env) == {"signed"}
        assert await handle.result() == 2


@workflow
async def begins(ctx: WorkflowContext) -> Any:
    await sleep(ctx, MONTH)
    sleeper.continue_as_new(ctx)


async def test_what_the_next_run_may_take_is_kept(db: str) -> None:
    async with environment(database=db, workflows=[begins, sleeper]) as env:
        await settled(env, sleeper)
        first = await env.start(begins)
        await env.advance(MONTH)
        await env.send_event("approved", "test", "first", to=first.instance_id)
        await env.advance(MONTH)
        handle = await env.start(begins.options(instance_id="two"))
        await env.send_event("approved", "test", "yes", id="wanted")
        await env.send_event("other", "test", id="unwanted")
        await env.advance(20 * DAY)
        assert await kept(env) == {"wanted"}
        await env.advance(40 * DAY)
        assert await handle.result() == "yes"


async def test_what_expires_is_not_kept_after_that(db: str) -> None:
    async with environment(database=db, workflows=[sleeper]) as env:
        await env.start(sleeper)
        until = (env.now + DAY).isoformat()
        await env.send_event("approved", "test", id="short", extensions={"expirytime": until})
        await env.advance(7 * DAY)
        assert await kept(env) == {"short"}, "for duplicates"
        await env.advance(2 * DAY)
        assert await kept(env) == set()


async def test_addressed_events_stay_with_their_addressee(db: str) -> None:
    async with environment(database=db, workflows=[sleeper]) as env:
        handle = await env.start(sleeper.options(instance_id="there"))
        for to in ("there", "nobody"):
            await env.send_event("approved", "test", "yes", id=to, to=to)
        await env.advance(8 * DAY)
        assert await kept(env) == {"there"}
        assert await handle.result() == "yes"
        await env.advance(timedelta(hours=2))
        assert await kept(env) == set()


async def test_a_limit_cuts_what_is_wanted_and_says_so(db: str, caplog: pytest.LogCaptureFixture) -> None:
    kept_for = Retention(events=10 * DAY)
    async with environment(database=db, workflows=[sleeper], retention=kept_for) as env:
        handle = await env.start(sleeper)
        await env.send_event("approved", "test", "yes", id="wanted")
        await env.advance(9 * DAY)
        assert await kept(env) == {"wanted"}
        assert "removed" not in caplog.text
        with caplog.at_level(logging.WARNING, "romancy"):
            await env.advance(2 * DAY)
        assert await kept(env) == set()
        assert "removed 1 event that open instances might have taken" in caplog.text
        assert env.app._runtime.engine.metrics.events_cut == {"approved": 1}
        await env.advance(MONTH)
        assert await handle.status() == "waiting_for_event"


broken: set[str] = set()


@activity(retry=RetryPolicy(max_attempts=1))
async def pay(ctx: ActivityContext) -> None:
    if "pay" in broken:
        raise ValueError("no")


@workflow
async def taking(ctx: WorkflowContext) -> list[Any]:
    first = await wait_event(ctx, "go")
    second = await wait_event(ctx, "go")
    await pay(ctx)
    return [first.data, second.data]


@pytest.mark.parametrize("removed", [False, True], ids=["kept", "cut"])
async def test_two_instances_took_an_event_that_was_removed(db: str, removed: bool) -> None:
    """What a failed instance took is kept for its retry. If a limit removed it nevertheless, each gets its own copy."""
    kept_for = Retention(failed=MONTH, events=DAY if removed else None)
    async with environment(database=db, workflows=[taking], retention=kept_for) as env:
        broken.add("pay")
        for id in ("i", "j"):
            await env.start(taking.options(instance_id=id))
        for n in (1, 2):
            await env.send_event("go", "test", n, id=f"e{n}")
        await env.advance(20 * DAY)
        assert await kept(env) == (set() if removed else {"e1", "e2"})
        broken.clear()
        for id in ("i", "j"):
            assert (await env.app.get_instance(id)).status == "failed"
            await env.app.retry_workflow(id, steps=["go:1", "go:2"])
        await env.settle()
        for id in ("i", "j"):
            assert (await env.app.get_instance(id)).status == "completed"
            assert await env.app.handle(id).result() == [1, 2]


async def test_what_a_failed_instance_took_from_before_its_time_is_kept_for_it(db: str) -> None:
    @workflow
    async def late(ctx: WorkflowContext) -> Any:
        event = await wait_event(ctx, "go", since=begun)
        await pay(ctx)
        return event.data

    async with environment(database=db, workflows=[late], retention=Retention(failed=MONTH)) as env:
        begun = env.now
        await env.send_event("go", "test", 1, id="e1")
        await env.advance(5 * DAY)
        broken.add("pay")
        await env.start(late.options(instance_id="i"))
        await env.advance(10 * DAY)
        assert await kept(env) == {"e1"}
        broken.clear()
        again = await env.app.retry_workflow("i", steps=["go:1"])
        await env.settle()
        assert await again.result(timeout=5) == 1
        await env.advance(timedelta(hours=2))
        assert await kept(env) == set()


async def test_the_test_kit_removes_what_production_removes(db: str) -> None:
    async with environment(database=db, workflows=[quick]) as env:
        await env.start(quick.options(instance_id="done"))
        await env.send_event("news", "test")
        await env.advance(7 * DAY)
        assert len((await env.app.list_instances()).items) == 1
        await env.advance(timedelta(hours=1))
        assert not (await env.app.list_instances()).items
        assert not await kept(env)


@workflow(expects=["paid.*"])
async def paid_by(ctx: WorkflowContext, order: str) -> None:
    await wait_event(ctx, f"paid.{order}")


async def test_a_type_for_each_instance_adds_nothing_to_what_is_declared() -> None:
    """What is remembered of interest is read in every round of retention: it must not grow with instances."""
    async with environment(workflows=[paid_by]) as env:
        batches = watch(env)
        await env.start(paid_by, "1")
        await env.settle()
        commits = [commit for batch in batches for commit in batch.commits if commit.opened]
        assert [wait.types for commit in commits for wait in commit.opened] == [("paid.1",)]
        assert rows_of_commits(commits, set()) == []


@workflow
async def sometimes(ctx: WorkflowContext, days: int) -> Any:
    if days == 0:
        return None
    await sleep(ctx, days * DAY)
    return (await elsewhere().wait_for_signature(ctx)).data


@pytest.mark.parametrize("is_declared", [False, True])
async def test_a_wait_in_another_module_that_has_never_happened_is_not_known(db: str, is_declared: bool) -> None:
    """As docs/operating.md says: after the first cohort, only `expects` keeps what such a wait asks for."""
    expects = ["signed"] if is_declared else None
    wf: Any = workflow(name="sometimes", expects=expects)(sometimes.fn)
    async with environment(database=db, workflows=[wf]) as env:
        await env.start(wf, 0)
        await env.advance(DAY)
        handle = await env.start(wf, 20)
        await env.send_event("signed", "test", 1, id="first")
        await env.advance(10 * DAY)
        assert await kept(env) == ({"first"} if is_declared else set())
        await env.advance(11 * DAY)
        assert await handle.status() == ("completed" if is_declared else "waiting_for_event")
        if not is_declared:  # from now on it is known
            later = await env.start(wf, 20)
            await env.send_event("signed", "test", 2, id="second", to=handle.instance_id)
            await env.send_event("signed", "test", 3, id="third")
            await env.advance(19 * DAY)
            assert "third" in await kept(env)
            assert await later.result() == 3


async def test_a_round_that_removes_a_little_is_followed_by_a_rest(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a steady trickle of old events would keep every worker busy."""
    monkeypatch.setattr("romancy.engine.retention.CHUNK", 3)
    async with environment(database=db, workflows=[quick]) as env:
        pruning = env.app._runtime.engine._pruning
        for n in range(7):
            await env.app.send_event("news", "test", id=str(n))
        env.clock._now += 8 * 24 * 3600 * 1_000_000
        assert [await pruning.round() for _ in range(3)] == [BRISK, BRISK, REST]
        assert await kept(env) == set()
