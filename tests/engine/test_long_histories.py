"""A long history is replayed in slices: meanwhile everything else goes on, and nothing reaches the instance."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    NonDeterminismError,
    WorkerOptions,
    WorkflowContext,
    activity,
    sleep,
    wait_event,
    workflow,
)
from romancy.core.history import Entry, Kind
from romancy.core.model import SECOND
from romancy.engine import replays, watchdog
from romancy.engine.evidence import body_run
from romancy.engine.replays import Replays
from romancy.storage.attempts import Attempt
from romancy.storage.batch import BODY, Commit, Start
from romancy.storage.sqlite import inline_reader
from romancy.testing import Environment, environment
from tests.engine.helpers import kinds, until

STEPS, HALF = 200, 100
passed: Counter[str] = Counter()
"""How far the code of each instance has come, in all its replays."""
closed: list[str] = []
touched: list[int] = []
"""Steps that ran in earnest."""


@activity
async def step(ctx: ActivityContext, n: int) -> int:
    touched.append(n)
    return n


@workflow
async def walk(ctx: WorkflowContext, steps: int) -> Any:
    try:
        for n in range(steps):
            await step(ctx, n)
            passed[ctx.instance_id] += 1
        return (await wait_event(ctx, "go")).data
    finally:
        closed.append(ctx.instance_id)


@workflow
async def tick(ctx: WorkflowContext) -> None: ...


@pytest.fixture(autouse=True)
def fresh() -> None:
    passed.clear()
    closed.clear()
    touched.clear()


async def write(env: Environment, id: str, steps: int) -> None:
    """An instance with a long history that is this worker's, and that nobody has read: its workflow is unknown yet."""
    committer, now = env.app._runtime.engine.committer, env.clock.now()
    await committer.start(
        Start(id, walk.name, b'{"steps": %d}' % steps, 0, now, mine=True), env.app._runtime.engine.revival.begin
    )
    entries = [Entry(n + 1, Kind.ACTIVITY_COMPLETED, f"step:{n + 1}", now, None, b"%d" % n) for n in range(steps)]
    stored: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    committer.commit(Commit(id, 0, "running", now, entries=entries), lambda applied, _: stored.set_result(applied))
    assert await stored


def load(env: Environment, *ids: str, wf: Any = walk) -> None:
    env.app.register(wf)
    for id in ids:
        env.app._runtime.engine.loader.load(id)


class Halt:
    """Stops replays that take more than a turn once an instance has come half-way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open = False
        self.stopped: Replays | None = None
        self._turn = turn = Replays._turn

        def wait_here(of: Replays) -> None:
            if self.is_open or max(passed.values(), default=0) < HALF:
                turn(of)
            else:
                self.stopped = of

        monkeypatch.setattr(replays, "SLICE", 0.0)
        monkeypatch.setattr(replays, "REST", 0.0)
        monkeypatch.setattr(Replays, "_turn", wait_here)

    async def reached(self) -> None:
        await until(lambda: self.stopped is not None)

    def go_on(self) -> None:
        assert self.stopped is not None
        self.is_open = True
        self._turn(self.stopped)


@pytest.fixture
def halt(monkeypatch: pytest.MonkeyPatch) -> Halt:
    return Halt(monkeypatch)


# --- others go on -----------------------------------------------------------------------------------------------------
async def test_a_long_replay_leaves_the_loop_to_others(db: str) -> None:
    """Time is that of the thread: how much else this machine has to do is not the question."""
    async with environment(database=db, workflows=[tick]) as env:
        await write(env, "long", 8_000)
        gaps: list[float] = []
        residents = env.app._runtime.engine.scheduler.residents

        async def heartbeat() -> None:
            last = time.thread_time()
            while "long" not in residents:
                await asyncio.sleep(0.001)
                now = time.thread_time()
                gaps.append(now - last)
                last = now

        heart = asyncio.create_task(heartbeat())
        gc.collect()
        gc.disable()  # how long it takes is about all that is in memory, not about the replay
        began = time.thread_time()
        load(env, "long")
        await env.app.start_workflow(tick.options(instance_id="other"))
        await until(lambda: "other" not in residents)
        assert passed["long"] < 8_000, "the other one had to wait"
        await heart
        total = time.thread_time() - began
        gc.enable()
        assert passed["long"] == 8_000
        assert max(gaps) < total / 2, "in one go, it would be all of it"
        assert len(gaps) > 20
        await env.send_event("go", "test", "there")
        assert await env.app.handle("long").result() == "there"


async def test_many_replays_take_turns(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come at once, the loop gets its turn between them, and a short one does not wait for a long one."""
    monkeypatch.setattr(replays, "SLICE", 0.0)
    monkeypatch.setattr(replays, "REST", 0.0)
    await write(env, "long", 300)
    for n in range(20):
        await write(env, f"short{n}", 3)
    residents = env.app._runtime.engine.scheduler.residents
    load(env, "long", *(f"short{n}" for n in range(20)))
    await until(lambda: all(f"short{n}" in residents for n in range(20)))
    assert 3 <= passed["long"] < 150
    await env.settle()
    assert passed["long"] == 300


@pytest.mark.parametrize("moment", [60.0, 0.0])
async def test_short_replays_take_no_turn_until_they_are_many(
    env: Environment, monkeypatch: pytest.MonkeyPatch, moment: float
) -> None:
    monkeypatch.setattr(replays, "SLICE", 60.0)
    monkeypatch.setattr(replays, "MOMENT", moment)
    engine, ids = env.app._runtime.engine, ["one", "two", "three"]
    for id in ids:
        await write(env, id, 20)
    env.app.register(walk)
    snapshots = [await engine.storage.load(id) for id in ids]
    for id, snapshot in zip(ids, snapshots, strict=True):  # they arrive in one turn of the loop
        assert snapshot is not None, id
        engine.loader.take_in(snapshot)
    assert passed == dict.fromkeys(ids if moment else ids[:1], 20)
    await env.settle()
    assert passed == dict.fromkeys(ids, 20)


async def test_reading_a_long_history_leaves_the_loop_to_others(
    db: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows become entries on another thread."""
    monkeypatch.setattr(inline_reader, "_QUICK", 60.0)  # however busy the machine is
    threads: set[int] = set()
    module = f"romancy.storage.{backend}.reads"

    def noting(*values: Any) -> Entry:
        threads.add(threading.get_ident())
        return Entry(*values)

    async with environment(database=db) as env:
        await write(env, "short", 100)
        await write(env, "long", 10_000)
        monkeypatch.setattr(f"{module}.Entry", noting)
        for id, is_elsewhere in (("short", False), ("long", True)):
            threads.clear()
            storage = env.app._runtime.engine.storage
            snapshot = (await storage.load_many([id])).get(id) or await storage.load(id)
            assert snapshot is not None
            assert len(snapshot.history) == (10_000 if is_elsewhere else 100)
            assert (threading.get_ident() not in threads) == is_elsewhere, id


# --- nothing reaches it meanwhile -------------------------------------------------------------------------------------
async def test_an_event_that_comes_meanwhile(env: Environment, halt: Halt) -> None:
    await write(env, "one", STEPS)
    load(env, "one")
    await halt.reached()
    await env.app.send_event("go", "test", "in between")
    assert "one" not in env.app._runtime.engine.scheduler.residents
    assert not env.app._runtime.engine.is_idle
    halt.go_on()
    await env.settle()
    assert await env.app.handle("one").result() == "in between"
    assert passed["one"] == STEPS
    assert not touched


async def test_an_offer_and_a_timer_that_come_meanwhile(env: Environment, halt: Halt) -> None:
    @workflow(name="walk")
    async def walk_for_a_while(ctx: WorkflowContext, steps: int) -> str:
        for n in range(steps):
            await step(ctx, n)
            passed[ctx.instance_id] += 1
        await sleep(ctx, 10)
        return (await wait_event(ctx, "go", timeout=10)).data

    await write(env, "one", STEPS)
    halt.is_open = True
    load(env, "one", wf=walk_for_a_while)
    await env.settle()
    await env.restart()
    await env.settle()
    assert passed["one"] == 0 or passed["one"] % STEPS == 0
    assert [w.kind for w in (await env.app.get_instance("one")).waits] == ["timer"]
    passed.clear()
    halt.is_open = False
    env.clock.turn_to(env.clock.now() + 10 * SECOND)  # its time has come: it is read
    await halt.reached()
    env.clock.turn_to(env.clock.now() + 1)
    await env.app.send_event("go", "test", "early")
    halt.go_on()
    await env.settle()
    assert await env.app.handle("one").result() == "early"
    assert (await kinds(env, "one"))[STEPS + 1 :] == ["timer_fired", "event_received"]


async def test_a_cancel_that_comes_meanwhile(env: Environment, halt: Halt) -> None:
    await write(env, "one", STEPS)
    load(env, "one")
    await halt.reached()
    asked = asyncio.create_task(env.app.cancel_workflow("one", reason="enough"))
    await until(lambda: env.app._runtime.engine.scheduler.residents.loading["one"])
    for _ in range(3):  # sweeps find the request in the mail, again and again
        await env.app._runtime.engine.sweep.round()
    assert not asked.done()
    assert not closed
    halt.go_on()
    await asked
    await env.settle()
    instance = await env.app.get_instance("one")
    assert (instance.status, instance.error["message"]) == ("cancelled", "enough")
    assert (await kinds(env, "one"))[STEPS + 1 :] == ["cancel_requested"]


async def test_a_cancel_that_comes_meanwhile_counts_once(env: Environment, halt: Halt) -> None:
    """The second one ends code that swallows the first: that must be another one, not the same heard of again."""

    @workflow(name="walk")
    async def stubborn(ctx: WorkflowContext, steps: int) -> None:
        for n in range(steps):
            await step(ctx, n)
            passed[ctx.instance_id] += 1
        for _ in range(10):
            with suppress(asyncio.CancelledError):
                await wait_event(ctx, "go")

    await write(env, "one", STEPS)
    load(env, "one", wf=stubborn)
    await halt.reached()
    asked = asyncio.create_task(env.app.cancel_workflow("one"))
    await until(lambda: env.app._runtime.engine.scheduler.residents.loading["one"])
    for _ in range(3):  # sweeps find the request in the mail, again and again
        await env.app._runtime.engine.sweep.round()
    halt.go_on()
    await asked
    await env.settle()
    assert (await env.app.get_instance("one")).status == "waiting_for_event"
    assert (await kinds(env, "one"))[STEPS + 1 :] == ["cancel_requested"]


async def test_it_neither_makes_room_nor_changes_hands(halt: Halt) -> None:
    async with environment(worker=WorkerOptions(max_resident=2, grace=0.1)) as env:
        await write(env, "one", STEPS)
        engine = env.app._runtime.engine
        load(env, "one")
        await halt.reached()
        for n in range(4):
            await env.app.start_workflow(walk.options(instance_id=f"other{n}"), 0)
        await engine.sweep.round()
        snapshot = await engine.storage.load("one")
        assert snapshot is not None
        assert engine.lease.is_mine(snapshot.row.owner)
        assert engine.scheduler.residents.knows("one")
        assert "one" not in closed
        halt.go_on()
        await env.settle()
        assert passed["one"] == STEPS, "it was not read again"


# --- it goes away meanwhile -------------------------------------------------------------------------------------------
def spy_on_instances(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Any]]:
    from romancy.engine import revival

    seen: list[weakref.ref[Any]] = []

    class Watched(revival.Instance):
        __slots__ = ("__weakref__",)

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            seen.append(weakref.ref(self))

    monkeypatch.setattr(revival, "Instance", Watched)
    return seen


@pytest.mark.parametrize("how", ["stop", "crash"])
async def test_an_app_that_ends_meanwhile(
    db: str, halt: Halt, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = spy_on_instances(monkeypatch)
    async with environment(database=db, worker=WorkerOptions(grace=30.0)) as env:
        await write(env, "one", STEPS)
        load(env, "one")
        await halt.reached()
        began = time.monotonic()
        await (env.app.stop() if how == "stop" else env.app._runtime.crash())
        assert time.monotonic() - began < 20, "it waited for the replay"
        halt.go_on()
        for _ in range(10):
            await asyncio.sleep(0)
        assert (passed["one"], closed, touched) == (HALF, ["one"], [])
        halt.stopped = None
        gc.collect()
        assert [ref() for ref in seen] == [None]
        assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
        await env.app.start()
        if how == "crash":
            engine = env.app._runtime.engine
            await engine.storage.take_over(engine.worker_id or "", [])
        passed.clear()


async def test_what_was_read_for_a_worker_that_stops_is_not_replayed(env: Environment) -> None:
    await write(env, "one", STEPS)
    loader = env.app._runtime.engine.loader
    snapshot = await env.app._runtime.engine.storage.load("one")
    load(env, "one")
    read = loader._reading["one"]
    loader.stop()
    loader._arrived(read, snapshot)
    await env.settle()
    assert not passed


async def test_a_worker_that_is_taken_over_meanwhile(db: str, halt: Halt, caplog: pytest.LogCaptureFixture) -> None:
    async with environment(database=db) as env:
        await write(env, "one", STEPS)
        engine = env.app._runtime.engine
        load(env, "one")
        await halt.reached()
        old = engine.worker_id
        assert old is not None
        await engine.storage.take_over("somebody else", [old])
        await engine.lease.round()
        assert closed == ["one"], "what it has in memory is not its own any more"
        halt.go_on()
        await env.settle()
        await env.send_event("go", "test", "once")
        await env.settle()
        assert engine.worker_id not in (None, old)
        assert await env.app.handle("one").result() == "once"
        assert (await kinds(env, "one"))[STEPS + 1 :] == ["event_received"]
        assert passed["one"] == HALF + STEPS, "once in part, and once more from the beginning"
        assert not touched


# --- what is wrong with it --------------------------------------------------------------------------------------------
async def test_code_that_left_its_history_is_found_in_a_late_slice(env: Environment, halt: Halt) -> None:
    @workflow(name="walk")
    async def changed(ctx: WorkflowContext, steps: int) -> None:
        for n in range(steps - 50):
            await step(ctx, n)
            passed[ctx.instance_id] += 1
        await wait_event(ctx, "go")

    await write(env, "one", STEPS)
    load(env, "one", wf=changed)
    await halt.reached()
    cancelling = asyncio.create_task(env.app.cancel_workflow("one"))
    await until(lambda: env.app._runtime.engine.scheduler.residents.loading["one"])
    halt.go_on()
    await cancelling
    await env.settle()
    instance = await env.app.get_instance("one")
    assert (instance.status, instance.error["type"]) == ("blocked", NonDeterminismError.__name__)
    assert f"step:{STEPS - 49}" in instance.error["message"]
    assert not env.app._runtime.engine.scheduler.residents.knows("one")


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the watchdog says, with little patience."""
    monkeypatch.setattr(watchdog, "LIMIT", 0.2)
    monkeypatch.setattr(watchdog, "_LOOK_EVERY", 0.005)
    told: list[str] = []

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "blocked the event loop" in record.getMessage():
                told.append(record.getMessage())

    handler = Told()
    logging.getLogger("romancy").addHandler(handler)
    yield told
    logging.getLogger("romancy").removeHandler(handler)


@pytest.mark.sqlite
async def test_the_watchdog_blames_nobody_for_a_long_replay(warnings: list[str]) -> None:
    async with environment() as env:
        await write(env, "one", 15_000)
        began = time.thread_time()
        load(env, "one")
        await env.settle()
        assert passed["one"] == 15_000
        assert time.thread_time() - began > watchdog.LIMIT, "too short to tell"
    assert not warnings


@pytest.mark.sqlite
async def test_the_watchdog_names_code_that_blocks_between_two_entries(warnings: list[str]) -> None:
    @workflow(name="walk")
    async def dawdle(ctx: WorkflowContext, steps: int) -> None:
        for n in range(steps):
            await step(ctx, n)
            if n == steps // 2:
                until_told(lambda: bool(warnings))
        await wait_event(ctx, "go")

    async with environment() as env:
        await write(env, "one", 2_000)
        load(env, "one", wf=dawdle)
        await env.settle()
    (said,) = warnings
    assert "'one'" in said
    assert "until_told" in said


def until_told(condition: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("nobody noticed")


# --- suspects ---------------------------------------------------------------------------------------------------------
async def die(env: Environment) -> None:
    """The worker dies, and another one takes over."""
    dead = env.app._runtime.engine.worker_id
    await env.app._runtime.crash()
    await env.app.start()
    engine = env.app._runtime.engine
    await engine.storage.take_over(engine.worker_id or "", [dead or ""])
    engine.kick()


async def body_record(env: Environment) -> Attempt:
    snapshot = await env.app._runtime.engine.storage.load("one")
    assert snapshot is not None
    (record,) = snapshot.attempts
    assert record.op == BODY
    return record


async def test_a_suspect_is_inside_while_it_is_replayed(env: Environment, halt: Halt) -> None:
    """Its worker died over it. That it begins is recorded before its replay, with the time that may take."""
    await write(env, "one", STEPS)
    env.app.register(walk)
    await die(env)
    await halt.reached()
    engine, record = env.app._runtime.engine, await body_record(env)
    (suspect,) = engine.scheduler.inquest.quarantine._inside
    assert record.started
    assert record.suspicion is not None
    assert record.suspicion.run == body_run(record, STEPS)
    assert suspect.instance.id == "one"
    assert not suspect.is_gone
    env.clock.turn_to(env.clock.now() + 10 * record.suspicion.run)
    assert not engine.is_idle
    halt.go_on()
    await env.settle()
    assert BODY in engine.scheduler.residents["one"].attempts, "its time begins when its replay has ended"
    await env.advance(1)
    snapshot = await engine.storage.load("one")
    assert snapshot is not None
    assert not snapshot.attempts
    assert not engine.scheduler.inquest.quarantine._inside
    await env.send_event("go", "test", "free")
    assert await env.app.handle("one").result() == "free"


async def test_a_death_in_the_middle_of_a_suspect_s_replay_is_counted(env: Environment, halt: Halt) -> None:
    await write(env, "one", STEPS)
    env.app.register(walk)
    for crashes in (1, 2):
        await die(env)
        while halt.stopped is None:  # it may have to rest first
            await asyncio.sleep(0.001)
            env.clock.turn_to(env.clock.now() + SECOND // 10)
        assert (await body_record(env)).crashes == crashes
        halt.stopped = None
        passed.clear()
    halt.is_open = True
    await die(env)
    await env.advance(60)
    await env.send_event("go", "test", "innocent")
    assert await env.app.handle("one").result() == "innocent"


async def test_a_suspect_that_left_its_history_leaves_the_quarantine(env: Environment, halt: Halt) -> None:
    @workflow(name="walk")
    async def changed(ctx: WorkflowContext, steps: int) -> None:
        for n in range(steps - 50):
            await step(ctx, n)
            passed[ctx.instance_id] += 1

    await write(env, "one", STEPS)
    env.app.register(changed)
    await die(env)
    await halt.reached()
    halt.go_on()
    await env.settle()
    assert (await env.app.get_instance("one")).status == "blocked"
    assert not env.app._runtime.engine.scheduler.inquest.quarantine._inside
