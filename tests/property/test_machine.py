"""Random workflows, events, clocks and crashes on two workers, held against a model (`model.py`).

In CI it runs a fixed budget, the same examples every time. To leave it running for hours with fresh examples:

    ROMANCY_HYPOTHESIS_HOURS=8 pytest tests/property --timeout 0

A failure prints the steps that led there, ready to be pasted into a test; with the hours set, failing examples are also
kept in `.hypothesis/` and tried first on the next run.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Collection, Coroutine, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from romancy import App, Database, WorkerOptions
from romancy.core.model import FOREVER_US
from romancy.engine import evidence
from romancy.errors import RomancyError
from romancy.testing import ManualClock, replay
from tests import pg_server
from tests.property.model import SECOND, Accepted, Run, Wait, World
from tests.property.places import Place, PostgresPlace, SQLitePlace
from tests.property.programs import codes, keys, program, types

HOURS = float(os.environ.get("ROMANCY_HYPOTHESIS_HOURS", "0"))
_BASE = {"deadline": None, "suppress_health_check": list(HealthCheck), "report_multiple_bugs": False}
THOROUGH = bool(os.environ.get("ROMANCY_TEST_THOROUGH"))
settings.register_profile(
    "romancy-ci", max_examples=30 if THOROUGH else 20, stateful_step_count=30, derandomize=True, database=None, **_BASE
)
_FEW = 10 if THOROUGH else 7
settings.register_profile(
    "romancy-ci-postgres", max_examples=_FEW, stateful_step_count=25, derandomize=True, database=None, **_BASE
)
settings.register_profile("romancy-soak", max_examples=200, stateful_step_count=60, **_BASE)
NOON = 1_800_000_000 * SECOND
MOST = 5
"""Instances in one example."""
PATIENCE = 60.0
"""Real seconds after which something that does not come to rest is a failure."""

events = st.fixed_dictionaries(
    {
        "type": types,
        "k": keys,
        "n": st.sampled_from([1, 1, 1, "text"]),
        "id": st.none() | st.integers(0, 5),
        "to": st.sampled_from([None, None, None, "i0", "i1", "nobody"]),
    }
)
workers = st.integers(0, 1)
picks = st.integers(0, 5)


class Machine(RuleBasedStateMachine):
    """Every rule does something, lets all come to rest, and compares.

    A rule that has nothing to do returns: no preconditions, since what the engine did (threads, two workers) must not
    decide what hypothesis draws next.
    """

    Place: type[Place] = SQLitePlace

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.place = self.Place()
        self.clock = ManualClock(NOON)
        self.latest = NOON
        self.world = World()
        self.runs: dict[str, Run] = {}
        self.histories: dict[str, list[Any]] = {}
        self.acked: dict[tuple[str, str], dict[str, Any]] = {}
        self.tried: dict[tuple[str, str], dict[str, Any]] = {}
        self.first: set[tuple[str, str]] = set()
        self.numbers = self.starts = 0
        self.workers: list[App | None] = [None, None]
        self.broken = False
        self.log = _Log()
        self.log.attach()

    @initialize(code=codes)
    def open(self, code: Any) -> None:
        self.client = self.make(worker=False)
        self.runner.run(self.client.start())
        self.runner.run(self.place.open())
        self.do(self._start_worker(0))
        self.do(self._start(code, self.client))

    def make(self, *, worker: bool = True, max_resident: int = 1000) -> App:
        app = App(
            Database(self.place.database, durability="normal", **self.place.options),
            workflows=[program],
            worker=worker and WorkerOptions(max_resident, grace=0.2),
        )
        app._runtime.clock, app._runtime.timer_window = self.clock, FOREVER_US
        return app

    # --- rules -------------------------------------------------------------------------------------------------------
    @rule(code=codes, via=workers)
    def start(self, code: Any, via: int) -> None:
        if len(self.runs) < MOST:
            self.do(self._start(code, self.app(via)))

    @rule(event=events, via=workers)
    def send(self, event: dict[str, Any], via: int) -> None:
        self.do(self._send(event, self.app(via)))

    @rule(pick=picks, to_it=st.booleans(), via=workers)
    def send_awaited(self, pick: int, to_it: bool, via: int) -> None:
        """An event that somebody waits for."""
        if not self.open_waits:
            return
        wait = self.open_waits[pick % len(self.open_waits)]
        event = {"type": wait.types[-1], "k": wait.k or 0, "n": 1, "id": None, "to": wait.run.id if to_it else None}
        self.do(self._send(event, self.app(via)))

    @rule(pick=picks, other=events, via=workers, by=st.sampled_from([3, 20]))
    def send_and_turn(self, pick: int, other: dict[str, Any], via: int, by: float) -> None:
        """An awaited event, another one and the deadline, all at once: one of them wins."""
        if not self.open_waits:
            return
        wait = self.open_waits[pick % len(self.open_waits)]
        event = {"type": wait.types[0], "k": wait.k or 0, "n": 1, "id": None, "to": None}

        async def all_at_once() -> None:
            sending = [asyncio.ensure_future(self._send(e, self.app(via + i))) for i, e in enumerate((event, other))]
            self._turn(self.clock.now() + int(by * SECOND))
            await asyncio.gather(*sending)

        self.do(all_at_once())

    @rule(event=events, code=codes, via=workers)
    def send_early(self, event: dict[str, Any], code: Any, via: int) -> None:
        """Started, and at once an event for it, before it can have got to its wait."""
        if len(self.runs) < MOST:

            async def both() -> None:
                await self._start(code, self.app(via))
                await self._send(event, self.client)

            self.do(both())

    @rule(burst=st.lists(events, min_size=2, max_size=5), via=workers)
    def send_many(self, burst: list[dict[str, Any]], via: int) -> None:
        self.do(_together(self._send(event, self.app(via + i)) for i, event in enumerate(burst)))

    @rule(pick=picks, via=workers)
    def send_again(self, pick: int, via: int) -> None:
        if not self.acked:
            return
        key = list(self.acked)[pick % len(self.acked)]

        async def again() -> None:
            event = self.acked[key]
            receipt = await self.app(via).send_event(
                event["type"], key[0], {"k": event["k"], "n": event["n"]}, id=key[1], to=event["to"]
            )
            assert receipt.duplicate, f"{key} was there already"
            assert receipt.delivered == 0

        self.do(again())

    @rule(pick=picks, via=workers)
    def cancel(self, pick: int, via: int) -> None:
        if self.runs:
            self.do(self._cancel(self.pick(pick), self.app(via)))

    @rule(by=st.sampled_from([0.5, 1, 3, 7, 30, 100]))
    def advance(self, by: float) -> None:
        self.do(self._advance(by))

    @rule(by=st.sampled_from([1, 5, 20, 3600]))
    def jump(self, by: float) -> None:
        """The machine was asleep, or its clock was set: no stops on the way."""
        self.do(self._jump(by))

    @rule(by=st.sampled_from([1, 10, 300]))
    def step_back(self, by: float) -> None:
        self.world.stepped_back = True
        self.do(self._jump(-by))

    @rule(which=workers)
    def crash(self, which: int) -> None:
        self.do(self._crash(which))

    @rule(which=workers)
    def stop(self, which: int) -> None:
        async def stop() -> None:
            app, self.workers[which] = self.workers[which], None
            if app is not None:
                await app.stop()

        self.do(stop())

    @rule(which=workers)
    def start_worker(self, which: int) -> None:
        self.do(self._start_worker(which))

    @rule(which=workers)
    def crash_and_restart(self, which: int) -> None:
        async def both() -> None:
            await self._crash(which)
            await self._start_worker(which)

        self.do(both())

    @rule(
        burst=st.lists(events, min_size=1, max_size=3),
        cancel=st.none() | picks,
        by=st.sampled_from([0, 0, 2, 5, 30]),
        ticks=st.integers(0, 25),
        which=workers,
    )
    def torn(self, burst: list[dict[str, Any]], cancel: int | None, by: float, ticks: int, which: int) -> None:
        """Crash in the middle of things: somewhere between the request, its commits and what follows them."""

        async def torn() -> None:
            app = self.app(which)
            work = [asyncio.ensure_future(_perhaps(self._send(event, app))) for event in burst]
            if cancel is not None and self.runs:
                work.append(asyncio.ensure_future(_perhaps(self._cancel(self.pick(cancel), app))))
            self._turn(self.clock.now() + int(by * SECOND))
            for _ in range(ticks):
                await asyncio.sleep(0)
            await self._crash(which)
            await _give_up(work)
            await self._start_worker(which)

        self.do(torn())

    @rule(code=codes, ticks=st.integers(0, 25), which=workers)
    def torn_start(self, code: Any, ticks: int, which: int) -> None:
        if len(self.runs) >= MOST:
            return

        async def torn() -> None:
            work = asyncio.ensure_future(_perhaps(self._start(code, self.app(which))))
            for _ in range(ticks):
                await asyncio.sleep(0)
            await self._crash(which)
            await _give_up([work])
            await self._start_worker(which)

        self.do(torn())

    # --- what rules do -----------------------------------------------------------------------------------------------
    def app(self, via: int) -> App:
        """A worker that is up, or the client."""
        return self.workers[via % 2] or self.client

    def pick(self, pick: int) -> str:
        return list(self.runs)[pick % len(self.runs)]

    @property
    def open_waits(self) -> list[Wait]:
        return [leaf for run in self.runs.values() for leaf in run.ops.values() if isinstance(leaf, Wait)]

    async def _start(self, code: Any, app: App) -> None:
        self.starts += 1
        id = f"i{self.starts - 1}"
        run = self.runs[id] = Run(self.world, id, code, self.world.settled, self.clock.now())
        await app.start_workflow(program, code, instance_id=id)
        run.started = True

    async def _send(self, event: dict[str, Any], app: App) -> None:
        self.numbers += 1
        given = event["id"]
        key = ("test", f"fresh-{self.numbers}" if given is None else f"given-{given}")
        self.tried.setdefault(key, event)
        known = key in self.acked
        receipt = await app.send_event(
            event["type"], key[0], {"k": event["k"], "n": event["n"]}, id=key[1], to=event["to"]
        )
        assert receipt.duplicate or not known, f"{key} was there already"
        assert receipt.duplicate or key not in self.first, f"{key} was accepted twice"
        if not receipt.duplicate:
            self.first.add(key)
        self.acked.setdefault(key, event)

    async def _cancel(self, id: str, app: App) -> None:
        run = self.runs[id]
        ended = run.status is not None
        run.cancel_tried = True
        await app.cancel_workflow(id)
        run.cancel_asked = run.cancel_asked or not ended

    def _turn(self, moment: int) -> None:
        self.clock.turn_to(moment)
        self.latest = max(self.latest, moment)

    async def _advance(self, by: float) -> None:
        goal = self.clock.now() + int(by * SECOND)
        while (due := self.clock.next_alarm()) is not None and due <= goal:
            self._turn(max(due, self.clock.now()))
            await self._settle()
        self._turn(goal)

    async def _jump(self, by: float) -> None:
        self._turn(self.clock.now() + int(by * SECOND))

    async def _crash(self, which: int) -> None:
        app, self.workers[which] = self.workers[which], None
        if app is not None:
            await app._runtime.crash()

    async def _start_worker(self, which: int) -> None:
        if self.workers[which] is None:
            app = self.make(max_resident=2 if which else 1000)
            await app.start()
            self.workers[which] = app

    # --- coming to rest ----------------------------------------------------------------------------------------------
    def do(self, work: Awaitable[None]) -> None:
        async def step() -> None:
            self.stage = "doing it"
            try:
                async with asyncio.timeout(PATIENCE):
                    await work
                    await self._settle()
                    await self._let_suspects_begin()
                    self.stage = "comparing"
                    await self._compare()
            except TimeoutError:
                raise AssertionError(f"no rest in {PATIENCE:g} s: {await self._who_is_busy()}") from None

        self.broken = True
        self.runner.run(step())
        self.broken = False

    async def _settle(self) -> None:
        """Until another round of everybody's duties changes nothing."""
        self.stage = "coming to rest"
        calm, before = 0, None
        while calm < 2:
            engines = [app._runtime.engine for app in (*self.workers, self.client) if app is not None]
            for engine in engines:
                engine.kick()
                if engine.is_worker:
                    engine._renewal.kick()
            quiet = 0
            while quiet < 3:
                await asyncio.sleep(0 if quiet else 0.0002)
                busy = any(not e.is_idle or (e.is_worker and not e._renewal.is_idle) for e in engines)
                quiet = 0 if busy else quiet + 1
            after = await self.place.fingerprint()
            calm, before = (calm + 1 if after is not None and after == before else 0), after

    async def _let_suspects_begin(self) -> None:
        """What ran when its worker died may have to rest first, or to wait for others; for that, time must pass."""
        while any(w is not None and w._runtime.engine.scheduler.inquest.quarantine.waiting for w in self.workers):
            await self._advance(1)
            await self._settle()

    async def _who_is_busy(self) -> str:
        apps = [app._runtime.engine for app in (*self.workers, self.client) if app is not None]
        engines = [
            f"{e!r} {e.scheduler!r} {e.committer!r} activities={e.activities.running} sweep={e._sweep.is_idle} "
            f"worker={e.worker_id} renewal={not e.is_worker or e._renewal.is_idle}"
            for e in apps
        ]
        return "\n".join([self.stage, *engines, *await self.place.activity()])

    # --- comparing ---------------------------------------------------------------------------------------------------
    @property
    def is_worked(self) -> bool:
        """Somebody is there who has room: activities that rest between attempts keep their instance in memory."""
        return any(w is not None and w._runtime.engine.scheduler.residents.has_room for w in self.workers)

    async def _compare(self) -> None:
        assert not self.log.errors, self.log.errors
        await self._compare_log()
        for run in list(self.runs.values()):
            await self._compare_run(run)
        self._compare_sent()
        self._compare_receivers()
        for run in self.runs.values():
            run.end_step()
        self.world.settled = max((e.seq for e in self.world.events), default=0)

    async def _compare_log(self) -> None:
        """The log holds what was accepted, in order, each once; nothing else."""
        records = (await self.client.list_events(limit=1000)).items
        self.records = sorted(records, key=lambda r: r.event.seq)
        known, transactions = len(self.world.events), await self.place.transactions()
        for index, record in enumerate(self.records):
            event = record.event
            if index < known:
                assert self.world.events[index].seq == event.seq, "the log changed"
                continue
            data = _json(event.data)
            self.world.events.append(
                Accepted(
                    event.seq,
                    event.id,
                    event.source,
                    event.type,
                    data["k"],
                    isinstance(data["n"], int),
                    event.target,
                    event.accepted_at,
                    transactions[event.seq],
                    self.world.settled,
                )
            )
        stored = [(e.source, e.id) for e in self.world.events]
        assert len(stored) == len(set(stored)), "an event was accepted twice"
        assert set(self.acked) <= set(stored), f"accepted, then lost: {set(self.acked) - set(stored)}"
        assert {key for key in stored if key[0] == "test"} <= set(self.tried), "an event nobody sent"

    async def _compare_run(self, run: Run) -> None:
        try:
            shown = await self.client.get_instance(run.id)
        except LookupError:
            assert not run.started, f"{run.id} was started, then lost"
            del self.runs[run.id]  # the crash came before its commit
            return
        history = await self.client.get_history(run.id)
        if run.root is None and run.cancel_tried and shown.status == "cancelled":
            assert len(history) == 1, f"{run.id} was cancelled before it began, and then it ran"
            run.status = "cancelled"
            return
        await self._feed(run, history[1:])
        if run.root is None:
            assert not self.is_worked, f"{run.id} was never begun"
            assert shown.status == "running"
            return
        assert shown.status == run.shown_status, f"{run.id}: {shown.status}, not {run.shown_status}; {run.ops}"
        if run.status is not None:
            assert shown.output == run.output, f"{run.id}: {shown.output} is not {run.output}"
        self._compare_waits(run, shown.waits)
        if self.is_worked:
            run.check_idle(self.clock.now())

    async def _feed(self, run: Run, history: list[Any]) -> None:
        old = self.histories.setdefault(run.id, [])
        assert [e._raw for e in history[: len(old)]] == [e._raw for e in old], f"{run.id}: history was rewritten"
        self.histories[run.id] = history
        if run.root is None and (history or self.is_worked or await self.place.has_waits(run.id)):
            run.begin()
        for entry in history[len(old) :]:
            if entry.kind == "attempt_failed":
                act = run.ops.get(entry.operation)
                assert getattr(act, "is_repeated", False), f"{run.id}: {entry} can't have been tried"
            elif entry.kind != "event_sent":
                run.feed(entry, self.latest)
                assert entry._raw.at <= self.latest, f"{run.id}: {entry} is from the future"

    def _compare_waits(self, run: Run, waits: Iterable[Any]) -> None:
        rows = [w for w in waits if w.kind in ("event", "timer")]
        stored = sorted(
            ((w.kind, None if w.wait_id.startswith("timer:") else w.wait_id, _us(w.due_at)) for w in rows),
            key=repr,
        )
        assert stored == run.rows, f"{run.id} waits for {stored}, not {run.rows}"
        if self.is_worked and run.status is None:
            resting = {w.wait_id for w in waits if w.kind == "retry"}
            acts = {op for op, leaf in run.ops.items() if leaf.kind == "activity"}
            assert acts <= resting, f"{run.id}: nobody runs {acts - resting}"

    def _compare_sent(self) -> None:
        stored = {(e.id, e.type, e.k, e.target) for e in self.world.events if e.source == "program"}
        sent = {sent for run in self.runs.values() for sent in run.sent}
        assert stored == sent, f"sent by programs: {stored ^ sent}"

    def _compare_receivers(self) -> None:
        for record in self.records:
            stored = {instance for instance, _ in record.received_by}
            taken = {run.id for run in self.runs.values() if record.event.seq in run.consumed}
            assert stored == taken, f"event {record.event.seq} was taken by {stored}, not {taken}"

    # --- the end -----------------------------------------------------------------------------------------------------
    def teardown(self) -> None:
        try:
            if getattr(self, "client", None) is not None:
                self._finish()
        finally:
            self.log.detach()
            self.runner.run(self.place.close())
            self.runner.close()

    def _finish(self) -> None:
        """Everything replays; then everybody is brought to an end."""
        try:
            if self.broken:
                return  # the step that failed is the one to tell of
            self._replay_all()
            self.do(self._start_worker(0))
            for _ in range(3):
                self.do(self._advance(200))
            for id in list(self.runs):
                self.do(self._cancel(id, self.client))
            self.do(self._advance(200))
            ends = {run.id: run.status for run in self.runs.values()}
            assert all(status in ("completed", "cancelled") for status in ends.values()), ends
            self._replay_all()
        finally:
            self.runner.run(self._close())
            gc.collect()
        assert not self.log.errors, self.log.errors

    async def _close(self) -> None:
        for app in (*self.workers, self.client):
            if app is not None:
                await app.stop()

    def _replay_all(self) -> None:
        async def replay_all() -> None:
            for run in self.runs.values():
                history = await self.client.get_history(run.id)
                if run.root is not None:
                    status = replay(program, history)
                    assert status == run.shown_status, f"{run.id} replays to {status}, not {run.shown_status}"

        self.runner.run(replay_all())


class _Log(logging.Handler):
    """Nothing in here is an error: neither for the engine nor for asyncio."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def _unraisable(self, args: Any) -> None:
        self.errors.append(f"{args.err_msg} {args.object!r}: {args.exc_value!r}")

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(record.getMessage() + (f": {record.exc_info[1]!r}" if record.exc_info else ""))

    def attach(self) -> None:
        self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        for name in ("romancy", "asyncio"):
            logging.getLogger(name).addHandler(self)

    def detach(self) -> None:
        sys.unraisablehook = self._hook
        for name in ("romancy", "asyncio"):
            logging.getLogger(name).removeHandler(self)


async def _together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*work)


async def _give_up(work: Collection[asyncio.Future[None]]) -> None:
    """Whoever asked dies with the process; what was answered before counts."""
    await asyncio.sleep(0)
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)


async def _perhaps(work: Awaitable[None]) -> None:
    """In a crash nobody promises an answer."""
    with contextlib.suppress(RomancyError):
        await work


def _us(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1e6)


def _json(data: bytes | None) -> Any:
    return json.loads(data or b"null")


@pytest.fixture
def quiet() -> Iterable[None]:
    """Attempts that fail are part of the game."""
    logger = logging.getLogger("romancy")
    level, logger.level = logger.level, logging.ERROR
    yield
    logger.level = level


@pytest.fixture
def nobody_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that met every crash are convicted of none: the clock stands still, so they seem to run at each."""
    monkeypatch.setattr(evidence, "GUILTY", 0)
    monkeypatch.setattr(evidence, "GUILTY_IF_KNOWN", 0)


class PostgresMachine(Machine):
    Place = PostgresPlace


@pytest.fixture
def postgres(monkeypatch: pytest.MonkeyPatch) -> Iterable[None]:
    """A schema; and nobody waits before taking over from the dead, since nobody is only slow here."""
    for constant in ("leases._MISSING", "leases._ALL_MISSING", "leases._LOCKS_EVERY", "dispatch.STALE", "_SWEEP"):
        monkeypatch.setattr(f"romancy.storage.postgres.{constant}", 0)
    with asyncio.Runner() as runner:
        making = pg_server.schema()
        PostgresPlace.schema = runner.run(making.__aenter__())
        yield
        runner.run(making.__aexit__(None, None, None))


@pytest.mark.usefixtures("quiet", "nobody_kills")
def test_random_workflows_and_faults_against_the_model() -> None:
    play(Machine, "romancy-ci")


@pytest.mark.play
@pytest.mark.usefixtures("quiet", "nobody_kills", "postgres")
def test_random_workflows_and_faults_against_the_model_on_postgres() -> None:
    play(PostgresMachine, "romancy-ci-postgres")


def play(machine: type[Machine], profile: str) -> None:
    if not HOURS:
        gc.freeze()  # what is there already is not ours, and takes long to look through after each example
        try:
            run_state_machine_as_test(machine, settings=settings.get_profile(profile))
        finally:
            gc.unfreeze()
        return
    end = time.monotonic() + HOURS * 3600
    while time.monotonic() < end:
        run_state_machine_as_test(machine, settings=settings.get_profile("romancy-soak"))
