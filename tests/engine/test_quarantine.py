"""Workers that die: what was running there runs again, and what kills them is set aside by evidence, alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    ActivityError,
    HooksBase,
    RetryPolicy,
    WorkflowBlocked,
    WorkflowBlockedInfo,
    WorkflowContext,
    activity,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy.core.model import SECOND
from romancy.engine.resident import Answered, AttemptChanged, EventOffered, State
from romancy.storage.batch import BODY
from romancy.storage.errors import TransientError
from romancy.testing import Environment, environment
from tests.engine.helpers import down_for, until

BOOT = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def _impatient(impatient: None) -> None:
    """Activities that hang are not waited for."""


async def die(env: Environment, boot: timedelta = BOOT) -> None:
    """The worker dies, and another one comes up that lives for a while before it takes over."""
    dead = env.app._runtime.engine.worker_id
    await env.app._runtime.crash()
    await env.app.start()
    env.clock._now += boot // timedelta(microseconds=1)
    engine = env.app._runtime.engine
    await engine.storage.take_over(engine.worker_id or "", [dead or ""])
    engine.kick()
    await env.settle()


async def kill_whenever(
    env: Environment, begins: Callable[[], int], instance: str, limit: float = 60.0, *, step: float = 0.5
) -> int:
    """The worker dies whenever something begins, until its instance is blocked; returns how many deaths it took."""
    deaths, until = 0, env.clock.now() + int(limit * SECOND)
    seen = 0
    while (await env.app.get_instance(instance)).status != "blocked":
        assert env.clock.now() < until, f"{deaths} deaths, and it is not blocked after {limit:g} s"
        if begins() > seen:
            seen, deaths = begins(), deaths + 1
            await die(env)
        else:
            await env.advance(step)
    return deaths


class Poison:
    """Counts how often it began; the test kills the worker then. Once it is harmless it ends."""

    def __init__(self) -> None:
        self.begun = 0
        self.is_harmless = False

    async def take(self) -> str:
        self.begun += 1
        if not self.is_harmless:
            await asyncio.Event().wait()
        return "survived"


@pytest.fixture
def poison() -> Poison:
    return Poison()


@pytest.fixture
def victim(poison: Poison) -> Any:
    @activity
    async def swallow(ctx: ActivityContext) -> str:
        return await poison.take()

    @workflow
    async def victim(ctx: WorkflowContext) -> str:
        return await swallow(ctx)

    return victim


async def test_an_activity_that_keeps_killing_its_worker_ends_blocked(env: Environment, poison: Poison, victim: Any):
    handle = await env.start(victim.options(instance_id="one"))
    deaths = await kill_whenever(env, lambda: poison.begun, "one")
    assert 3 <= deaths <= 8
    await env.restart()
    await env.advance(60)
    assert poison.begun == deaths, "it is not run again"
    with pytest.raises(WorkflowBlocked, match=r"activity 'swallow:1' was running \d times when its worker died: \d of"):
        await handle.result()


async def test_what_runs_for_all_of_a_crash_loop_is_not_to_blame(env: Environment, poison: Poison, victim: Any) -> None:
    """Something else kills the only worker soon after it came up. That it was down in between is no time lived."""
    await env.start(victim.options(instance_id="one"))
    for _ in range(8):
        for _ in range(4):
            await env.advance(0.125)
        await down_for(env, timedelta(seconds=15))
    await env.advance(8)
    assert (await env.app.get_instance("one")).status == "running"
    assert poison.begun > 1, "it is not left out for good"


async def test_what_kills_the_only_worker_after_each_start_is_blocked(
    env: Environment, poison: Poison, victim: Any
) -> None:
    """It rests while a worker lives, so that there is something to compare with."""
    await env.start(victim.options(instance_id="one"))
    deaths = 0
    while (await env.app.get_instance("one")).status != "blocked":
        assert deaths < 15
        if poison.begun > deaths:
            deaths = poison.begun
            await down_for(env, timedelta(seconds=15))
        await env.advance(0.5)


async def test_what_runs_while_the_machine_sleeps_is_not_to_blame(env: Environment, victim: Any) -> None:
    """The hour for which a laptop was closed is time it ran, too, though it ran on for longer than was recorded."""
    await env.start(victim.options(instance_id="one"))
    for _ in range(8):
        await die(env)
        await env.advance(10)
        env.clock.turn_to(env.clock.now() + 3600 * SECOND)
        await env.advance(1)
        engine = env.app._runtime.engine
        assert await engine.storage.renew(engine.worker_id or "", 10 * SECOND)
    assert (await env.app.get_instance("one")).status == "running"


async def test_resuming_gives_a_fresh_start(env: Environment, poison: Poison, victim: Any) -> None:
    handle = await env.start(victim.options(instance_id="one"))
    first = await kill_whenever(env, lambda: poison.begun, "one")
    poison.begun = 0
    await env.app.resume_workflow("one")
    await env.settle()
    assert await handle.status() == "running"
    snapshot = await env.app._runtime.engine.storage.load("one")
    assert snapshot is not None
    assert [(a.crashes, a.suspicion) for a in snapshot.attempts] == [(0, None)]
    assert abs(await kill_whenever(env, lambda: poison.begun, "one") - first) <= 2, "as many deaths as the first time"
    poison.is_harmless = True
    await env.app.resume_workflow("one")
    await env.settle()
    assert await handle.result() == "survived"


async def test_the_hook_hears_of_it_with_the_reason(poison: Poison, victim: Any) -> None:
    told: list[WorkflowBlockedInfo] = []

    class Hooks(HooksBase):
        async def on_workflow_blocked(self, info: WorkflowBlockedInfo) -> None:
            told.append(info)

    async with environment(hooks=[Hooks()]) as env:
        await env.start(victim.options(instance_id="one"))
        await kill_whenever(env, lambda: poison.begun, "one")
        await env.settle()
        (info,) = told
        assert "swallow:1" in str(info.error)


async def test_a_suspect_that_is_left_out_says_what_it_waits_for(env: Environment, poison: Poison, victim: Any) -> None:
    await env.start(victim.options(instance_id="one"))
    for _ in range(20):
        waits = [wait for wait in (await env.app.get_instance("one")).waits if wait.kind == "retry"]
        if waits:
            break
        await die(env)
    [wait] = waits
    assert wait.wait_id in ("swallow:1", "(code)")
    assert wait.due_at is not None
    assert wait.due_at > env.now
    assert "workers died while it ran; it is left out for a while, and then begins" in (wait.error or "")


async def test_three_deaths_from_outside_block_nobody(env: Environment) -> None:
    """A long activity is open at every death, as it is open nearly all the time."""

    @activity
    async def long(ctx: ActivityContext) -> None:
        await asyncio.Event().wait()

    @workflow
    async def patient(ctx: WorkflowContext) -> None:
        await long(ctx)

    handle = await env.start(patient)
    for _ in range(12):
        await env.advance(20)
        await die(env)
        assert await handle.status() == "running"


async def test_its_innocent_neighbours_are_not_blocked(env: Environment, poison: Poison, victim: Any) -> None:
    """Waiting instances, and activities resting between attempts, had no part in the death of the worker."""

    @activity(retry=RetryPolicy(initial=1000, maximum=1000, jitter=0))
    async def rests(ctx: ActivityContext) -> str:
        if ctx.attempt == 1:
            raise ValueError
        return "rested"

    @activity
    async def quick(ctx: ActivityContext) -> str:
        return "quick"

    @workflow
    async def resting(ctx: WorkflowContext) -> str:
        return await rests(ctx)

    @workflow
    async def waiting(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "go")

    @workflow
    async def busy(ctx: WorkflowContext) -> str:
        await sleep(ctx, 5)
        return await quick(ctx)

    one, two, three = await env.start(resting), await env.start(waiting), await env.start(busy)
    await env.start(victim.options(instance_id="bad"))
    await kill_whenever(env, lambda: poison.begun, "bad")
    await env.send_event("go", "test")
    assert await two.status() == "completed"
    assert await one.result() == "rested"
    assert await three.result() == "quick"


# --- the code of the workflow -----------------------------------------------------------------------------------------
@pytest.fixture
async def begun(env: Environment) -> Any:
    """(workflow code calls it to kill its worker, how often it did)."""
    storage: Any = env.app._runtime.engine.storage
    append, commit = storage.append, storage.commit
    struck = [0]

    def strike() -> None:
        struck[0] += 1
        storage.append = lambda *_: False
        storage.commit = lambda *_: None

    async def bring_back() -> None:
        storage.append, storage.commit = append, commit

    return strike, struck, bring_back


async def strike_until_blocked(env: Environment, begun: Any, instance: str) -> int:
    """As `kill_whenever`, for code that kills: nothing it did is stored."""
    _, struck, bring_back = begun
    deaths, until = 0, env.clock.now() + 60 * SECOND
    while True:
        if struck[0] > deaths:
            deaths += 1
            await revive(env, bring_back)
            await settle(env, struck, deaths)
        elif (await env.app.get_instance(instance)).status == "blocked":
            return deaths
        else:
            assert env.clock.now() < until, f"{deaths} deaths, and it is not blocked after a minute"
            env.clock.turn_to(env.clock.now() + SECOND // 2)
            await settle(env, struck, deaths)


async def revive(env: Environment, bring_back: Callable[[], Awaitable[None]]) -> None:
    """The worker that was struck is dead, and another one takes over from it."""
    dead = env.app._runtime.engine.worker_id
    await env.app._runtime.crash()
    await bring_back()
    await env.app.start()
    env.clock._now += BOOT // timedelta(microseconds=1)
    engine = env.app._runtime.engine
    await engine.storage.take_over(engine.worker_id or "", [dead or ""])
    engine.kick()


async def settle(env: Environment, struck: list[int], deaths: int) -> None:
    """Until all is idle, or the code has killed its worker: then nothing will be idle any more."""
    settling = asyncio.ensure_future(env.settle())
    while not settling.done() and struck[0] == deaths:  # noqa: ASYNC110 - what is waited for belongs to others
        await asyncio.sleep(0)
    settling.cancel()
    await asyncio.gather(settling, return_exceptions=True)


Play = Callable[[Environment, Callable[[], None]], Awaitable[None]]


async def code_kills_at_once(env: Environment, strike: Callable[[], None]) -> None:
    @workflow
    async def killer(ctx: WorkflowContext) -> None:
        strike()
        await wait_event(ctx, "never")

    env.app.register(killer)
    await env.app.start_workflow(killer.options(instance_id="bad"))


async def code_kills_on_a_timer(env: Environment, strike: Callable[[], None]) -> None:
    @workflow
    async def killer(ctx: WorkflowContext) -> None:
        await sleep(ctx, 5)
        strike()
        await wait_event(ctx, "never")

    env.app.register(killer)
    await env.app.start_workflow(killer.options(instance_id="bad"))


async def code_kills_on_an_event(env: Environment, strike: Callable[[], None]) -> None:
    @workflow
    async def killer(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "go")
        strike()
        await wait_event(ctx, "never")

    env.app.register(killer)
    await env.app.start_workflow(killer.options(instance_id="bad"))
    await env.settle()
    await env.app.send_event("go", "test")


async def code_kills_after_an_activity(env: Environment, strike: Callable[[], None]) -> None:
    """Its result is stored before the code goes on with it, once the call may be what killed the worker."""
    calls: list[str] = []

    @activity
    async def charge(ctx: ActivityContext) -> None:
        calls.append(ctx.activity_id)

    @workflow
    async def killer(ctx: WorkflowContext) -> None:
        await charge(ctx)
        assert len(calls) <= 2, "the result of the second call is stored"
        strike()
        await wait_event(ctx, "never")

    env.app.register(killer)
    await env.app.start_workflow(killer.options(instance_id="bad"))


async def code_kills_after_an_activity_failed(env: Environment, strike: Callable[[], None]) -> None:
    @activity(retry=NO_RETRY)
    async def charge(ctx: ActivityContext) -> None:
        raise ValueError("no")

    @workflow
    async def killer(ctx: WorkflowContext) -> None:
        with pytest.raises(ActivityError):
            await charge(ctx)
        strike()
        await wait_event(ctx, "never")

    env.app.register(killer)
    await env.app.start_workflow(killer.options(instance_id="bad"))


PLAYS: list[Play] = [
    code_kills_at_once,
    code_kills_on_a_timer,
    code_kills_on_an_event,
    code_kills_after_an_activity,
    code_kills_after_an_activity_failed,
]


@pytest.mark.parametrize("play", PLAYS)
async def test_code_that_kills_its_worker_is_set_aside(env: Environment, begun: Any, play: Play) -> None:
    @workflow
    async def innocent(ctx: WorkflowContext) -> str:
        await sleep(ctx, 100)
        return "done"

    handle = await env.start(innocent)
    await play(env, begun[0])
    deaths = await strike_until_blocked(env, begun, "bad")
    assert 3 <= deaths <= 9
    error = (await env.app.get_instance("bad")).error
    assert error["type"] == "KillsWorkers"
    assert "the code of the workflow was running" in error["message"]
    assert await handle.result() == "done"


async def test_what_code_does_with_a_stored_result_happens_for_the_first_time(env: Environment, begun: Any) -> None:
    """The worker dies between the commit of the result and that of what followed: an event, words, a log line."""
    strike, struck, bring_back = begun
    replaying: list[bool] = []

    @activity
    async def charge(ctx: ActivityContext) -> int:
        return 7

    @workflow
    async def pay(ctx: WorkflowContext) -> str:
        amount = await charge(ctx)
        replaying.append(ctx.is_replaying)
        if len(replaying) <= 2:
            strike()
        assert ctx.patched("asked for the first time")
        await send_event(ctx, "paid", "test", {"amount": amount})
        ctx.describe(f"paid {amount}")
        await wait_event(ctx, "thanks")
        return "thanked"

    env.app.register(pay)
    handle = await env.app.start_workflow(pay.options(instance_id="one"))
    for death in (1, 2):
        await settle(env, struck, death - 1)
        assert struck[0] == death
        await revive(env, bring_back)
    await env.advance(10)
    assert replaying == [False] * 3
    assert (await env.app.get_instance("one")).description == "paid 7"
    assert [record.event.type for record in (await env.app.list_events()).items] == ["paid"]
    await env.app.send_event("thanks", "test")
    assert await handle.result(10) == "thanked"


async def test_resumed_code_hears_of_a_result_that_it_never_came_through_with(env: Environment, begun: Any) -> None:
    """Code that kills on a stored result is blocked; mended, it sends something instead."""
    strike, is_mended = begun[0], False

    @activity
    async def charge(ctx: ActivityContext) -> int:
        return 7

    @workflow
    async def pay(ctx: WorkflowContext) -> str:
        amount = await charge(ctx)
        if is_mended:
            await send_event(ctx, "paid", "test", {"amount": amount})
            return "paid"
        strike()
        return "never"

    env.app.register(pay)
    handle = await env.app.start_workflow(pay.options(instance_id="bad"))
    await strike_until_blocked(env, begun, "bad")
    is_mended = True
    assert await env.app.resume_workflow("bad")
    await env.advance(10)
    assert await handle.result(10) == "paid"


async def test_an_event_is_taken_once_though_the_result_of_a_suspect_comes_between(env: Environment) -> None:
    """Two offers of one event, and between them a result that has a commit of its own."""
    release = asyncio.Event()

    @activity
    async def slow(ctx: ActivityContext) -> None:
        await release.wait()

    @workflow
    async def both(ctx: WorkflowContext) -> list[str]:
        first, second, _ = await asyncio.gather(wait_event(ctx, "go"), wait_event(ctx, "go"), slow(ctx))
        return [first.id, second.id]

    handle = await env.start(both.options(instance_id="one"))
    await die(env)
    await env.advance(5)
    resident = env.app._runtime.engine.scheduler.residents["one"]
    assert any(a.suspicion for a in resident.attempts.values())
    resident.state = State.COMMITTING  # so all that comes waits in its inbox
    await env.app.send_event("go", "test", id="e1")
    await until(lambda: any(isinstance(input, EventOffered) for input in resident.inbox))
    release.set()
    await until(lambda: any(isinstance(input, Answered) for input in resident.inbox))
    [offer] = [input for input in resident.inbox if isinstance(input, EventOffered)]
    resident.state = State.IDLE
    env.app._runtime.engine.inboxes.post(resident, offer)
    await env.settle()
    assert (await env.app.get_instance("one")).status == "waiting_for_event"
    await env.app.send_event("go", "test", id="e2")
    assert await handle.result(10) == ["e1", "e2"]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_suspect_stays_in_quarantine_until_its_outcome_is_stored(env: Environment, fails: bool) -> None:
    """Otherwise the next suspect could begin, and kill the worker, while the first one is still blamed."""
    release = asyncio.Event()

    @activity
    async def slow(ctx: ActivityContext) -> None:
        await release.wait()
        if fails:
            raise ValueError

    @workflow
    async def calling(ctx: WorkflowContext) -> None:
        await slow(ctx)

    await env.start(calling.options(instance_id="one"))
    await die(env)
    await env.advance(5)
    engine = env.app._runtime.engine
    resident = engine.residents["one"]
    resident.state = State.COMMITTING  # so all that comes waits in its inbox
    release.set()
    await until(lambda: any(isinstance(input, (Answered, AttemptChanged)) for input in resident.inbox))
    assert resident in engine.inquest.quarantine._inside
    resident.state = State.IDLE
    engine.inboxes.schedule(resident)
    await env.settle()
    assert not engine.inquest.quarantine._inside


async def test_code_that_came_through_is_not_suspected_any_more(env: Environment) -> None:
    """It costs two small commits after a death, and nothing is left of it."""

    @workflow
    async def quiet(ctx: WorkflowContext) -> str:
        await sleep(ctx, 5)
        await sleep(ctx, 5)
        return "done"

    handle = await env.start(quiet.options(instance_id="one"))
    await down_for(env, timedelta(seconds=6))
    storage = env.app._runtime.engine.storage
    snapshot = await storage.load("one")
    assert snapshot is not None
    assert [a.op for a in snapshot.attempts] == [BODY], "for a moment it may be what killed the worker"
    await env.advance(1)
    snapshot = await storage.load("one")
    assert snapshot is not None
    assert snapshot.attempts == []
    assert await handle.result() == "done"


async def test_code_that_is_loaded_long_after_the_deaths_begins_at_once(env: Environment) -> None:
    """Rests count from the death: an instance that waits is loaded when its event comes, and answers without delay."""

    @workflow
    async def waiting(ctx: WorkflowContext) -> str:
        await sleep(ctx, 5)
        await wait_event(ctx, "wake")
        return "done"

    handle = await env.start(waiting.options(instance_id="one"))
    await down_for(env, timedelta(seconds=6))
    await die(env, boot=timedelta())
    await env.advance(600)
    await env.app.send_event("wake", "test", {})
    await env.settle()
    assert (await env.app.get_instance("one")).status == "completed"
    assert await handle.result() == "done"


async def test_code_whose_worker_was_stopped_met_no_second_death(env: Environment) -> None:
    @workflow
    async def waiting(ctx: WorkflowContext) -> None:
        await sleep(ctx, 5)
        await wait_event(ctx, "wake")
        await wait_event(ctx, "never")

    await env.start(waiting.options(instance_id="one"))
    await down_for(env, timedelta(seconds=6))
    await env.app.stop()
    await env.app.start()
    await env.app.send_event("wake", "test", {}, to="one")
    await env.settle()
    snapshot = await env.app._runtime.engine.storage.load("one")
    assert snapshot is not None
    assert [(a.op, a.crashes) for a in snapshot.attempts] == [(BODY, 1)]


async def test_code_that_rests_is_cancelled_without_waiting_for_it(env: Environment) -> None:
    """Whoever cancels is answered once that is stored; the code hears of it when it runs again."""

    @workflow
    async def waiting(ctx: WorkflowContext) -> None:
        await sleep(ctx, 5)
        await wait_event(ctx, "wake")

    await env.start(waiting.options(instance_id="one"))
    await down_for(env, timedelta(seconds=6))
    await die(env, boot=timedelta())
    await env.app.send_event("wake", "test", {}, to="one")
    await env.settle()
    assert env.app._runtime.engine.scheduler.inquest.quarantine.waiting == 1
    async with asyncio.timeout(5):
        assert await env.app.cancel_workflow("one")
    await env.advance(5)
    assert (await env.app.get_instance("one")).status == "cancelled"


# --- what is not a death ----------------------------------------------------------------------------------------------
async def suspects(env: Environment, instance: str) -> list[str]:
    snapshot = await env.app._runtime.engine.storage.load(instance)
    assert snapshot is not None
    return [a.op for a in snapshot.attempts if a.crashes]


async def test_a_worker_that_was_asked_to_stop_did_not_die(env: Environment, poison: Poison, victim: Any) -> None:
    """SIGTERM, and SIGKILL before it was through: nothing that it ran is to blame."""
    await env.start(victim.options(instance_id="one"))
    engine = env.app._runtime.engine
    engine._grace = 3600.0
    stopping = asyncio.ensure_future(engine._stop())
    await until(lambda: engine.lease.leaving is not None and engine.lease.leaving.done())  # that it leaves is stored
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    await die(env)
    assert poison.begun == 2
    assert await suspects(env, "one") == []
    assert (await env.app._runtime.engine.storage.mortality()).deaths == []


async def test_a_worker_that_died_is_counted(env: Environment, poison: Poison, victim: Any) -> None:
    """The same without a word."""
    await env.start(victim.options(instance_id="one"))
    await die(env)
    assert poison.begun == 2
    assert await suspects(env, "one") == ["", "swallow:1"]
    assert len((await env.app._runtime.engine.storage.mortality()).deaths) == 1


async def test_work_that_never_met_a_death_writes_nothing_about_it(env: Environment, poison: Poison, victim: Any):
    poison.is_harmless = True
    read: list[str] = []
    storage: Any = env.app._runtime.engine.storage
    mortality = storage.mortality
    storage.mortality = lambda: read.append("read") or mortality()
    commits: list[Any] = []
    commit = storage.commit
    storage.commit = lambda batch, answered: (commits.extend(batch.commits), commit(batch, answered))[1]
    handle = await env.start(victim.options(instance_id="one"))
    assert await handle.result() == "survived"
    assert read == []
    assert all(not c.attempts and not c.attempts_done and not c.trials for c in commits)


async def test_a_fan_out_is_not_put_in_single_file_by_kills_from_outside(env: Environment) -> None:
    """Whatever was hit by a few kills begins together again, not one after the other."""
    gate = asyncio.Event()

    @activity
    async def part(ctx: ActivityContext) -> int:
        await gate.wait()
        return 1

    @workflow
    async def fan(ctx: WorkflowContext) -> int:
        return sum(await asyncio.gather(*(part(ctx) for _ in range(300))))

    handle = await env.start(fan)
    for _ in range(5):
        await env.advance(1)
        await die(env)
    gate.set()
    begin = env.clock.now()
    assert await handle.result() == 300
    assert env.clock.now() - begin < 3 * SECOND


async def test_the_results_of_suspects_in_company_share_commits(env: Environment) -> None:
    """A commit or two for each would make a fan-out that met a death many times slower."""
    gate = asyncio.Event()

    @activity
    async def part(ctx: ActivityContext) -> int:
        await gate.wait()
        return 1

    @workflow
    async def fan(ctx: WorkflowContext) -> int:
        return sum(await asyncio.gather(*(part(ctx) for _ in range(300))))

    handle = await env.start(fan)
    await die(env)
    await env.advance(1)
    storage: Any = env.app._runtime.engine.storage
    commit, commits = storage.commit, list[Any]()
    storage.commit = lambda batch, answered: (commits.extend(batch.commits), commit(batch, answered))[1]
    gate.set()
    assert await handle.result() == 300
    assert len(commits) < 30


async def test_code_that_kills_in_company_is_blamed_and_not_the_call_before_it(env: Environment, begun: Any) -> None:
    """The result of a call in company is not stored first; so the call is split from the others, and then it is."""
    gate = asyncio.Event()

    @activity
    async def charge(ctx: ActivityContext) -> None: ...

    @activity
    async def slow(ctx: ActivityContext) -> str:
        await gate.wait()
        return "done"

    @workflow
    async def innocent(ctx: WorkflowContext) -> str:
        return await slow(ctx)

    @workflow
    async def killer(ctx: WorkflowContext) -> None:
        await asyncio.gather(charge(ctx), charge(ctx))
        begun[0]()
        if begun[1][0] == 3:
            gate.set()
        await wait_event(ctx, "never")

    others = [await env.start(innocent) for _ in range(5)]
    env.app.register(killer)
    await env.app.start_workflow(killer.options(instance_id="bad"))
    await strike_until_blocked(env, begun, "bad")
    error = (await env.app.get_instance("bad")).error
    assert "the code of the workflow was running" in error["message"]
    tallies = (await env.app._runtime.engine.storage.mortality()).tallies
    assert all(tally.alone == 0 for name, tally in tallies.items() if name == "charge")
    for other in others:
        assert await other.result(60) == "done"


async def test_what_only_waits_is_woken_though_the_deaths_could_not_be_read(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was claimed before that, so its timer is this worker's to ring."""

    @workflow
    async def sleeper(ctx: WorkflowContext) -> str:
        await sleep(ctx, 5)
        return "awake"

    handle = await env.start(sleeper)
    dead = env.app._runtime.engine.worker_id or ""
    await env.app._runtime.crash()
    await env.app.start()
    engine = env.app._runtime.engine
    mortality, lost = engine.storage.mortality, list[str]()

    async def cut_once() -> Any:
        if not lost:
            lost.append("cut")
            raise TransientError("the connection was cut")
        return await mortality()

    monkeypatch.setattr(engine.storage, "mortality", cut_once)
    await engine.storage.take_over(engine.worker_id or "", [dead])
    engine.kick()
    await until(lambda: lost)
    await env.settle()
    await env.advance(timedelta(seconds=6))
    assert (await env.app.get_instance(handle.instance_id)).status == "completed"


# --- calls that wait for a place ------------------------------------------------------------------------------------
class Queued:
    """Calls of an activity of which one runs at a time. They run until the test lets them end."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.go = asyncio.Event()
        self.fatal: int | None = None


@pytest.fixture
def queued() -> Queued:
    return Queued()


@pytest.fixture
def line(queued: Queued) -> Any:
    @activity(max_per_worker=1)
    async def one_by_one(ctx: ActivityContext, number: int) -> int:
        queued.begun.append(number)
        if number == queued.fatal:
            await asyncio.Event().wait()
        await queued.go.wait()
        return number

    @workflow
    async def line(ctx: WorkflowContext, calls: int) -> list[int]:
        return await asyncio.gather(*(one_by_one(ctx, n) for n in range(calls)))

    return line


async def records(env: Environment, instance: str) -> dict[str, tuple[int, bool]]:
    """How many deaths are counted for each call, and whether it is recorded that it has begun."""
    snapshot = await env.app._runtime.engine.storage.load(instance)
    assert snapshot is not None
    return {a.op: (a.crashes, a.started) for a in snapshot.attempts if a.op != BODY}


async def test_a_call_that_waits_for_a_place_met_no_death(env: Environment, queued: Queued, line: Any) -> None:
    """Nobody knows which of the calls had begun when the worker died, so from now on that is recorded."""
    one = await env.start(line.options(instance_id="one"), 3)
    two = await env.start(line.options(instance_id="two"), 1)
    assert queued.begun == [0]
    await die(env)
    await env.advance(1)
    assert queued.begun == [0, 0]
    first, second, third = "one_by_one:1", "one_by_one:2", "one_by_one:3"
    assert await records(env, "one") == {first: (0, True), second: (0, False), third: (0, False)}
    assert await records(env, "two") == {first: (0, False)}
    await die(env)
    await env.advance(1)
    counted = {**await records(env, "one"), "two": (await records(env, "two"))[first]}
    assert sum(crashes for crashes, _ in counted.values()) == 1, "only the one that ran met the second death"
    assert counted[first][0] == 1
    assert sum(started for _, started in counted.values()) == 1, "only one of them runs"
    queued.go.set()
    assert await one.result(60) == [0, 1, 2]
    assert await two.result(60) == [0]
    assert env.app._runtime.engine.activities.running == 0


async def test_a_call_that_reported_progress_had_a_place(env: Environment) -> None:
    @activity(max_per_worker=1)
    async def slow(ctx: ActivityContext) -> None:
        ctx.progress({"half": True})
        await asyncio.Event().wait()

    @workflow
    async def calling(ctx: WorkflowContext) -> None:
        await slow(ctx)

    await env.start(calling.options(instance_id="one"))
    await die(env)
    assert (await records(env, "one"))["slow:1"][0] == 1


async def test_each_death_counts_only_for_the_call_that_has_the_place(
    env: Environment, queued: Queued, line: Any
) -> None:
    handle = await env.start(line.options(instance_id="line"), 5)
    for _ in range(4):
        await die(env)
        await env.advance(8)
    counted = (await records(env, "line")).values()
    assert sum(crashes for crashes, _ in counted) == 3, "at the first one, nobody knew which call had the place"
    assert [started for _, started in counted].count(True) == 1
    queued.go.set()
    assert await handle.result(60) == [0, 1, 2, 3, 4]


async def test_a_killer_with_a_place_of_its_own_is_found_behind_others(
    env: Environment, queued: Queued, line: Any
) -> None:
    queued.fatal = 2
    queued.go.set()
    await env.start(line.options(instance_id="bad"), 4)
    deaths = await kill_whenever(env, lambda: queued.begun.count(2), "bad", step=0.1)
    assert 3 <= deaths <= 9
    error = (await env.app.get_instance("bad")).error
    assert "activity 'one_by_one:3' was running" in error["message"]


async def test_suspects_that_wait_for_a_place_hold_up_no_others(
    poison: Poison, queued: Queued, line: Any, victim: Any
) -> None:
    """There are more of them than slots."""
    limit = 5
    async with environment(max_activities=limit) as env:
        await env.start(line.options(instance_id="line"), 3 * limit)
        await env.start(victim.options(instance_id="other"))
        await die(env)
        await env.advance(5)
        assert (len(queued.begun), poison.begun) == (2, 2)


async def test_a_suspect_is_cancelled_while_it_waits_for_a_place(env: Environment, queued: Queued, line: Any) -> None:
    await env.start(line.options(instance_id="one"), 1)
    await env.start(line.options(instance_id="two"), 2)
    await die(env)
    await env.advance(1)
    for instance in ("one", "two"):
        await env.app.cancel_workflow(instance)
    await env.settle()
    assert {(await env.app.get_instance(instance)).status for instance in ("one", "two")} == {"cancelled"}
    engine = env.app._runtime.engine
    assert (engine.activities.running, engine.inquest.quarantine.waiting) == (0, 0)
