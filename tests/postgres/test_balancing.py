"""Load spreads over workers: when one joins, those that own much more let go of what only waits, and it takes that."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from romancy import App, ReceivedEvent, WorkerOptions, WorkflowContext, activity, sleep, wait_event, workflow
from romancy.api.context import ActivityContext
from romancy.core.clock import stopwatch
from romancy.core.model import SECOND
from romancy.engine import balancing
from romancy.engine.balancing import CHUNK, SLACK, SOON, URGENT
from romancy.engine.resident import Looked, State
from romancy.engine.timers import WINDOW
from romancy.storage.records import Idle
from tests.postgres.conftest import Place
from tests.postgres.test_many_workers import running

pytestmark = pytest.mark.play


@workflow
async def order(ctx: WorkflowContext, n: int) -> int:
    return (await wait_event(ctx, "paid", where={"order": n})).data["amount"]


@workflow
async def nap(ctx: WorkflowContext, seconds: float) -> float:
    await sleep(ctx, seconds)
    return (ctx.now() - ctx.started_at).total_seconds()


@activity
async def hang(ctx: ActivityContext) -> None:
    await asyncio.sleep(3600)


@workflow
async def busy(ctx: WorkflowContext, n: int) -> None:
    await asyncio.gather(hang(ctx), wait_event(ctx, "nothing"))


@workflow
async def two(ctx: WorkflowContext, n: int) -> str:
    one = await wait_event(ctx, "one", subject=str(n))
    return f"{one.id} {(await wait_event(ctx, 'two', subject=str(n))).id}"


@workflow
async def other(ctx: WorkflowContext) -> ReceivedEvent[Any]:
    return await wait_event(ctx, "nothing")


class Town:
    """Apps on one schema, and who owns what."""

    def __init__(self, place: Place, stack: AsyncExitStack) -> None:
        self._place, self._stack = place, stack
        self.apps: list[App] = []

    async def join(self, *workflows: Any, **options: Any) -> App:
        app = await running(self._stack, self._place.schema, *(workflows or (order, nap)), **options)
        self.apps.append(app)
        self._raw = await self._place.raw() if len(self.apps) == 1 else self._raw
        return app

    async def fill(self, app: App, wf: Any, count: int) -> list[Any]:
        """Many instances that wait, all of them this app's."""
        starts = (app.start_workflow(wf.options(instance_id=f"i{n}"), n) for n in range(count))
        handles = await asyncio.gather(*starts)
        query = "SELECT count(*) FROM waits"
        async with asyncio.timeout(10):
            while await self._raw.fetchval(query) < count:  # noqa: ASYNC110 - what is waited for belongs to others
                await asyncio.sleep(0.01)
            while not app._runtime.engine.is_idle_but_for_activities:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return handles

    async def rounds(self, count: int) -> None:
        """Everybody looks so many times whether something is to be given or taken; nobody on their own any more."""
        for app in self.apps:
            await app._runtime.engine._balance.stop()
        for _ in range(count):
            for app in self.apps:
                await app._runtime.engine.balancing.round()

    async def owned(self) -> dict[App | None, int]:
        rows = await self._raw.fetch("SELECT owner, count(*) FROM instances WHERE status < 9 GROUP BY owner")
        by_id = {app._runtime.engine.worker_id: app for app in self.apps}
        return {by_id.get(owner): n for owner, n in rows}

    async def waiting_for(self, type: str, count: int) -> None:
        query = "SELECT count(*) FROM wait_keys WHERE type = $1"
        async with asyncio.timeout(10):
            while await self._raw.fetchval(query, type) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def versions(self) -> dict[str, int]:
        return dict(map(tuple, await self._raw.fetch("SELECT id, version FROM instances")))

    async def until(
        self, condition: Callable[[dict[App | None, int]], bool], within: float = 15
    ) -> dict[App | None, int]:
        async with asyncio.timeout(within):
            while not condition(owned := await self.owned()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return owned

    async def balanced(self, share: int, within: float = 15) -> None:
        """Everybody owns about a share, and nothing is on its way."""
        slack = max(SLACK, share // 4)
        await self.until(
            lambda owned: None not in owned and all(abs(owned.get(a, 0) - share) <= slack for a in self.apps), within
        )


@pytest.fixture
async def town(place: Place) -> AsyncIterator[Town]:
    async with AsyncExitStack() as stack:
        yield Town(place, stack)


async def test_both_own_a_fair_share_soon_after_the_second_joins(town: Town) -> None:
    first = await town.join()
    await town.fill(first, order, 200)
    assert (await town.owned())[first] == 200
    began = stopwatch()
    await town.join()
    await town.balanced(100)
    assert stopwatch() - began < 12


async def test_nothing_goes_back_and_forth(town: Town) -> None:
    first = await town.join()
    await town.fill(first, order, 200)
    before = await town.versions()
    await town.join()
    await town.balanced(100)
    versions = await town.versions()
    moved = [id for id, version in versions.items() if version != before[id]]
    assert len(moved) == 100
    assert {versions[id] - before[id] for id in moved} == {2}, "let go of once, taken once"
    await town.rounds(5)
    assert await town.versions() == versions


async def test_more_than_a_round_can_move_is_spread_over_three(town: Town) -> None:
    first = await town.join()
    await town.fill(first, order, 3 * CHUNK)
    await town.join()
    await town.join()
    await town.balanced(CHUNK, within=30)


async def test_events_reach_their_instances_while_they_change_hands(town: Town) -> None:
    first = await town.join()
    handles = await town.fill(first, order, 250)
    senders = [first]

    async def pay(n: int) -> float:
        await asyncio.sleep(n % 200 * 0.03)
        began = stopwatch()
        await senders[n % len(senders)].send_event("paid", "test", {"order": n, "amount": n}, id=f"p{n}")
        assert await handles[n].result(30) == n
        return stopwatch() - began

    usual = median(await asyncio.gather(*(pay(n) for n in range(200, 250))))
    senders.append(await town.join())
    lag = median(await asyncio.gather(*(pay(n) for n in range(200))))
    assert lag < max(0.2, 4 * usual), "they waited for sweeps"


async def test_timers_are_not_late_because_of_it(town: Town) -> None:
    """Timers due at any time from now on, all at first with one worker; the window is what is claimed ahead."""
    first = await town.join()
    starts = (first.start_workflow(nap.options(instance_id=f"n{n}"), 4 + n * 0.05) for n in range(150))
    handles = await asyncio.gather(*starts)
    await town.until(lambda owned: owned.get(first) == 150)
    second = await town.join()
    await town.until(lambda owned: owned.get(second, 0) >= 20)
    slept = await asyncio.gather(*(handle.result(30) for handle in handles))
    late = [s - (4 + n * 0.05) for n, s in enumerate(slept)]
    assert min(late) >= 0
    assert sorted(late)[-5] < 0.9, f"they waited for a sweep: {sorted(late)[-10:]}"  # a machine may pause
    ended = Counter(
        app for app in town.apps for _ in range(app._runtime.engine.metrics.workflows_ended["nap", "completed"])
    )
    assert ended[second] >= 20


async def test_who_awaits_a_result_hears_of_it_wherever_the_instance_went(town: Town) -> None:
    first = await town.join()
    handles = await town.fill(first, order, 100)
    results = [asyncio.ensure_future(handle.result(20)) for handle in handles]
    second = await town.join()
    await town.balanced(50)
    for n in range(100):
        await second.send_event("paid", "test", {"order": n, "amount": n})
    assert await asyncio.gather(*results) == list(range(100))


async def test_cancelling_reaches_those_that_changed_hands(town: Town) -> None:
    first = await town.join()
    await town.fill(first, order, 100)
    await town.join()
    await town.balanced(50)
    for n in range(100):
        await first.cancel_workflow(f"i{n}")
    await town.until(lambda owned: not owned)


async def test_what_runs_stays_where_it_runs(town: Town) -> None:
    first = await town.join(busy, max_activities=200, worker=WorkerOptions(grace=0))
    await town.fill(first, busy, 60)
    before = await town.versions()
    await town.join(busy, worker=WorkerOptions(grace=0))
    await town.rounds(3)
    assert await town.versions() == before


async def test_few_are_not_worth_it(town: Town) -> None:
    first = await town.join()
    await town.fill(first, order, 2 * SLACK)
    await town.join()
    await town.rounds(3)
    assert (await town.owned()) == {first: 2 * SLACK}


async def test_what_something_happens_to_at_the_last_moment_is_not_let_go_of(town: Town) -> None:
    """Between being seen to be idle and the commit that lets go of it, an instance takes an event."""
    first = await town.join(two)
    handles = await town.fill(first, two, 60)
    await first._runtime.engine._balance.stop()  # no rounds but the one below
    storage: Any = first._runtime.engine.storage
    idle = storage.idle

    async def slow_idle(*asked: Any) -> Any:
        rows = await idle(*asked)
        for n in range(60):
            await first.send_event("one", "test", subject=str(n), id=f"one{n}")
        await town.waiting_for("two", 60)
        return rows

    storage.idle = slow_idle
    second = await town.join(two)
    await first._runtime.engine.balancing.round()
    storage.idle = idle
    assert await town.owned() == {first: 60}, "none was let go of"
    for n in range(60):
        await second.send_event("two", "test", subject=str(n), id=f"two{n}")
    assert await asyncio.gather(*(handle.result(20) for handle in handles)) == [f"one{n} two{n}" for n in range(60)]


class Held:
    """The commits of an app wait for a sign; remembers instances that are in one batch twice."""

    def __init__(self, app: App) -> None:
        self._storage: Any = app._runtime.engine.storage
        self._commit = self._storage.commit
        self._storage.commit = self._hold
        self._sign = asyncio.Event()
        self._engine = app._runtime.engine
        self.twice: list[str] = []

    def _hold(self, batch: Any, answered: Any) -> None:
        counts = Counter(item.instance for item in batch.commits)
        self.twice += [id for id, count in counts.items() if count > 1]
        waiting = asyncio.ensure_future(self._sign.wait())
        waiting.add_done_callback(lambda _: self._commit(batch, answered))

    async def queued(self, count: int) -> None:
        async with asyncio.timeout(10):
            while self._engine.committer.queued < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def go(self) -> None:
        self._sign.set()


residency = pytest.mark.parametrize("max_resident", [10_000, 1], ids=["in memory", "evicted"])


@residency
async def test_events_that_reach_an_instance_on_its_way_out_are_not_lost(town: Town, max_resident: int) -> None:
    """They are being stored when it is seen to be idle, and offered when the commit that lets go of it waits."""
    first = await town.join(worker=WorkerOptions(max_resident))
    handles = await town.fill(first, order, 60)
    held = Held(first)
    sending = [first.send_event("paid", "test", {"order": n, "amount": n}, id=f"p{n}") for n in range(60)]
    everything = asyncio.gather(*sending)
    await asyncio.sleep(0)
    await town.join(other)  # nobody else could run them: this worker has to claim them again
    await held.queued(30)
    held.go()
    await everything
    assert await asyncio.gather(*(handle.result(20) for handle in handles)) == list(range(60))
    assert not held.twice


@residency
async def test_timers_that_ring_on_the_way_out_are_not_lost(
    town: Town, max_resident: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database takes its time over the commit that lets go of them: so long that they fall due meanwhile."""
    monkeypatch.setattr(balancing, "URGENT", 0)
    first = await town.join(worker=WorkerOptions(max_resident))
    handles = await asyncio.gather(*(first.start_workflow(nap, 2.0) for _ in range(60)))
    await town.until(lambda owned: owned.get(first) == 60)
    held = Held(first)
    sending = asyncio.ensure_future(first.send_event("unrelated", "test"))
    await asyncio.sleep(0)
    await town.join(other)
    await held.queued(30)
    await asyncio.sleep(2.5)
    held.go()
    await sending
    assert min(await asyncio.gather(*(handle.result(20) for handle in handles))) >= 2.0
    assert not held.twice, "one commit of an instance at a time"


async def test_only_who_is_idle_in_memory_may_leave(town: Town) -> None:
    first = await town.join()
    await town.fill(first, order, 1)
    engine = first._runtime.engine
    resident = engine.scheduler.residents["i0"]
    idle = Idle("i0", resident.version, "waiting_for_event")
    may_leave = engine.balancing._may_leave
    assert may_leave(idle)
    assert not may_leave(replace(idle, version=idle.version + 1))
    resident.state = State.COMMITTING
    assert not may_leave(idle)
    resident.state = State.IDLE
    resident.inbox.append(Looked([]))
    assert not may_leave(idle)
    engine.scheduler.residents.loading["i1"] = []
    assert not may_leave(replace(idle, id="i1"))
    del engine.scheduler.residents.loading["i1"]


async def test_who_lets_go_leaves_what_is_not_urgent_to_others(town: Town) -> None:
    first = await town.join()
    assert first._runtime.engine.balancing.look_ahead(WINDOW) == WINDOW
    await town.fill(first, order, 100)
    second = await town.join()
    await town.balanced(50)
    assert first._runtime.engine.balancing.look_ahead(WINDOW) == SOON < URGENT
    assert second._runtime.engine.balancing.look_ahead(WINDOW) == WINDOW


async def test_what_falls_due_in_a_moment_stays_where_it_is(town: Town) -> None:
    first = await town.join()
    starts = (first.start_workflow(nap, URGENT / SECOND - 0.5) for _ in range(60))
    handles = await asyncio.gather(*starts)
    await town.join()
    await town.rounds(3)
    assert await town.owned() == {first: 60}
    await asyncio.gather(*(handle.cancel() for handle in handles))


async def test_a_worker_that_could_not_run_them_gets_none_and_most_stay(town: Town) -> None:
    first = await town.join(order)
    handles = await town.fill(first, order, 2 * CHUNK + 200)
    await town.join(other)
    await town.rounds(10)
    owned = await town.owned()
    assert set(owned) <= {first, None}
    assert owned[first] >= CHUNK + 200, "as long as nobody wants them, no more are let go of"
    for n in range(0, 2 * CHUNK + 200, 10):
        await first.send_event("paid", "test", {"order": n, "amount": n})
        assert await handles[n].result(10) == n


async def test_evicted_ones_change_hands_too(town: Town) -> None:
    first = await town.join(worker=WorkerOptions(20))
    handles = await town.fill(first, order, 200)
    second = await town.join()
    await town.balanced(100)
    for n in range(200):
        await second.send_event("paid", "test", {"order": n, "amount": n})
    assert await asyncio.gather(*(handle.result(20) for handle in handles)) == list(range(200))


async def test_when_one_leaves_the_other_goes_on_with_everything(town: Town) -> None:
    first = await town.join()
    handles = await town.fill(first, order, 100)
    second = await town.join()
    await town.balanced(50)
    town.apps.remove(first)
    await first.stop()
    for n in range(100):
        await second.send_event("paid", "test", {"order": n, "amount": n})
    for n in range(100):
        assert await second.handle(handles[n].instance_id, order).result(20) == n
