"""Random families of workflows, events, clocks and crashes on two workers. See `families.py` for what must be true.

ROMANCY_HYPOTHESIS_HOURS=8 pytest tests/property/test_families.py --timeout 0
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from romancy import App, Database, HistoryEntry, Instance, NotRetryable, WorkerOptions
from romancy.core.model import FOREVER_US, from_us
from romancy.core.retrial import copied
from romancy.testing import replay
from tests.property.families import FINAL, codes, family, has_undone, judge
from tests.property.places import PostgresPlace
from tests.property.test_machine import Machine, events, nobody_kills, picks, play, postgres, quiet, workers
from tests.property.test_machine import _give_up as give_up
from tests.property.test_machine import _perhaps as perhaps

__all__ = ["nobody_kills", "postgres", "quiet"]
MOST = 3
"""Instances in one example, besides children and forks."""
MOST_FORKS = 1


class FamilyMachine(Machine):
    """The same faults as in `Machine`, on families."""

    TestCase: Any

    def make(self, *, worker: bool = True, max_resident: int = 1000) -> App:
        app = App(
            Database(self.place.database, durability="normal", **self.place.options),
            workflows=[family],
            worker=worker and WorkerOptions(max_resident, grace=0.2),
        )
        app._runtime.clock, app._runtime.timer_window = self.clock, FOREVER_US
        return app

    @initialize(code=codes)
    def open(self, code: Any) -> None:
        self.known: dict[str, tuple[Instance, list[HistoryEntry]]] = {}
        self.roots: dict[str, bool] = {}
        self.retried: set[str] = set()
        self.cuts: dict[str, int] = {}
        super().open(code)

    @rule(code=codes, via=workers)
    def start(self, code: Any, via: int) -> None:
        if len(self.roots) < MOST:
            self.do(self._start(code, self.app(via)))

    @rule(event=events, code=codes, via=workers)
    def send_early(self, event: dict[str, Any], code: Any, via: int) -> None:
        if len(self.roots) < MOST:

            async def both() -> None:
                await self._start(code, self.app(via))
                await self._send(event, self.client)

            self.do(both())

    @rule(code=codes, ticks=st.integers(0, 40), which=workers)
    def torn_start(self, code: Any, ticks: int, which: int) -> None:
        if len(self.roots) >= MOST:
            return

        async def torn() -> None:
            work = asyncio.ensure_future(perhaps(self._start(code, self.app(which))))
            for _ in range(ticks):
                await asyncio.sleep(0)
            await self._crash(which)
            await give_up([work])
            await self._start_worker(which)

        self.do(torn())

    @rule(pick=picks, via=workers)
    def cancel(self, pick: int, via: int) -> None:
        if self.known:
            self.do(self._cancel(self.pick(pick), self.app(via)))

    @rule(pick=picks, via=workers)
    def send_awaited(self, pick: int, via: int) -> None:
        if self.awaited:
            event = {"type": self.awaited[pick % len(self.awaited)], "k": 0, "n": 1, "id": None, "to": None}
            self.do(self._send(event, self.app(via)))

    @rule(pick=picks, other=events, via=workers, by=st.sampled_from([3, 20]))
    def send_and_turn(self, pick: int, other: dict[str, Any], via: int, by: float) -> None:
        if not self.awaited:
            return
        event = {"type": self.awaited[pick % len(self.awaited)], "k": 0, "n": 1, "id": None, "to": None}

        async def all_at_once() -> None:
            sending = [asyncio.ensure_future(self._send(e, self.app(via + i))) for i, e in enumerate((event, other))]
            self._turn(self.clock.now() + int(by * 1_000_000))
            await asyncio.gather(*sending)

        self.do(all_at_once())

    @rule(pick=picks, ticks=st.integers(0, 40), which=workers)
    def torn_cancel(self, pick: int, ticks: int, which: int) -> None:
        """Crash while a family is being cancelled."""
        if not self.known:
            return

        async def torn() -> None:
            work = asyncio.ensure_future(perhaps(self._cancel(self.pick(pick), self.app(which))))
            for _ in range(ticks):
                await asyncio.sleep(0)
            await self._crash(which)
            await give_up([work])
            await self._start_worker(which)

        self.do(torn())

    @rule(pick=picks, steps=st.sampled_from([None, "failed"]), via=workers)
    def retry(self, pick: int, steps: Any, via: int) -> None:
        if self.retryable:
            self.do(self._retry(self.retryable[pick % len(self.retryable)], steps, self.app(via)))

    @rule(pick=picks, steps=st.sampled_from([None, "failed"]), ticks=st.integers(0, 40), which=workers)
    def torn_retry(self, pick: int, steps: Any, ticks: int, which: int) -> None:
        """Crash while an instance, perhaps with its children, goes on."""
        if not self.retryable:
            return

        async def torn() -> None:
            id = self.retryable[pick % len(self.retryable)]
            work = asyncio.ensure_future(perhaps(self._retry(id, steps, self.app(which))))
            for _ in range(ticks):
                await asyncio.sleep(0)
            await self._crash(which)
            await give_up([work])
            await self._start_worker(which)

        self.do(torn())

    @rule(pick=picks, cut=st.integers(0, 8), via=workers)
    def fork(self, pick: int, cut: int, via: int) -> None:
        if self.forkable and len(self.cuts) < MOST_FORKS:
            self.do(self._fork(self.forkable[pick % len(self.forkable)], cut, self.app(via)))

    # --- what rules do -----------------------------------------------------------------------------------------------
    @property
    def retryable(self) -> list[str]:
        """Those that failed or were cancelled first. A parent would not hear that its child went on: roots only."""
        roots = [instance for instance, _ in self.known.values() if instance.parent is None]
        return [i.instance_id for i in roots if i.status in ("failed", "cancelled")] or [i.instance_id for i in roots]

    @property
    def forkable(self) -> list[str]:
        """Those that can be forked anywhere, and go on; or those that can; or all."""
        anywhere = {id: i for id, (i, history) in self.known.items() if history and not has_undone(history)}
        return [id for id, i in anywhere.items() if i.status not in FINAL] or list(anywhere) or list(self.known)

    def was_retried(self, id: str) -> bool:
        """Whether it, or an ancestor, was retried."""
        return any(id == other or id.startswith(f"{other}/") for other in self.retried)

    @property
    def awaited(self) -> list[str]:
        return [wait.types[0] for instance, _ in self.known.values() for wait in instance.waits if wait.kind == "event"]

    def pick(self, pick: int) -> str:
        return list(self.known)[pick % len(self.known)]

    async def _start(self, code: Any, app: App) -> None:
        id = f"i{len(self.roots)}"
        self.roots[id] = False
        await app.start_workflow(family, code, instance_id=id)
        self.roots[id] = True

    async def _cancel(self, id: str, app: App) -> None:
        await app.cancel_workflow(id)

    async def _retry(self, id: str, steps: Any, app: App) -> None:
        instance, history = self.known[id]
        is_possible = instance.status in ("failed", "cancelled") and not has_undone(history)
        has_children = any(other.parent == id for other, _ in self.known.values())
        was_retried = self.was_retried(id)
        self.retried.add(id)  # also if the answer is lost
        refusal: str | None = None
        try:
            await app.retry_workflow(id, steps=steps)
        except NotRetryable as error:
            refusal = str(error)
        if refusal is None:
            assert is_possible, f"{id} is {instance.status}, and was retried after {history}"
            return
        assert has_children or not is_possible, f"{id}, which is {instance.status}, was refused: {refusal}"
        if not was_retried:
            self.retried.discard(id)

    async def _fork(self, id: str, cut: int, app: App) -> None:
        history = self.known[id][1]
        numbers = [0, *(entry.n for entry in history)]
        at, new = numbers[cut % len(numbers)], f"f{len(self.cuts)}"
        if at and has_undone(history):
            with pytest.raises(NotRetryable):
                await app.fork_workflow(id, at=at, new_id=new)
        else:
            await app.fork_workflow(id, at=at, new_id=new)
            self.cuts[new] = copied([e._raw for e in history], at)[1] if at else 0

    # --- comparing ---------------------------------------------------------------------------------------------------
    async def _compare(self) -> None:
        assert not self.log.errors, self.log.errors
        await self._compare_log()
        instances = (await self.client.list_instances(limit=1000)).items
        listed = {instance.instance_id for instance in instances}
        assert {id for id, is_there in self.roots.items() if is_there} <= listed, "started, then lost"
        assert set(self.cuts) <= listed, f"forked, then lost: {set(self.cuts) - listed}"
        assert set(self.known) <= listed, f"there, then lost: {set(self.known) - listed}"
        self.known = {id: await self._look(id) for id in sorted(listed)}
        self.was_worked = self.is_worked
        if self.was_worked:
            judge(self.known, self.cuts)
            self._check_waits()
        self.world.settled = max((e.seq for e in self.world.events), default=0)

    async def _look(self, id: str) -> tuple[Instance, list[HistoryEntry]]:
        instance, (_, *history) = await self.client.get_instance(id), await self.client.get_history(id)
        before = self.known.get(id)
        if before is not None and before[0].run_number == instance.run_number:
            old = [e._raw for e in before[1]]
            assert [e._raw for e in history[: len(old)]] == old, f"{id}: its history was rewritten"
            is_over = before[0].status in FINAL and not (self.was_retried(id) and before[0].status != "completed")
            assert not is_over or before[0].status == instance.status, f"{id} went on after its end"
        return instance, history

    def _check_waits(self) -> None:
        """No wait is open though there is an event for it that came after the instance was started."""
        if self.world.stepped_back:
            return
        now = from_us(self.clock.now())
        taken = {(instance, record.event.seq) for record in self.records for instance, _ in record.received_by}
        for id, (instance, _) in self.known.items():
            for wait in instance.waits:
                assert wait.due_at is None or wait.due_at > now, f"{id}: {wait} is overdue"
                fitting = [
                    r.event.seq
                    for r in self.records
                    if wait.kind == "event" and r.event.type in wait.types and r.accepted_at > instance.started_at
                    and r.event.target in (None, id) and (id, r.event.seq) not in taken
                ]  # fmt: skip
                assert not fitting, f"{id}: {wait} is open although there are {fitting}"

    def _finish(self) -> None:
        """Everything replays; then everybody is brought to an end."""
        try:
            if self.broken:
                return
            self._replay_all()
            self.do(self._start_worker(0))
            if self.forkable and not self.cuts:
                self.do(self._fork(self.forkable[-1], -1, self.client))  # up to its last entry
            self.do(self._advance(200))
            for id in list(self.known):
                self.do(self._cancel(id, self.client))
            self.do(self._advance(200))
            ends = {id: instance.status for id, (instance, _) in self.known.items()}
            assert all(status in FINAL for status in ends.values()), ends
            self._replay_all()
        finally:
            self.runner.run(self._close())
        assert not self.log.errors, self.log.errors

    def _replay_all(self) -> None:
        for id, (instance, history) in self.known.items():
            if not history and instance.status in ("cancelled", "running"):
                continue  # it was never begun
            if not self.was_worked and (id in self.cuts or self.was_retried(id)):
                continue  # it goes on when there is a worker
            entries = self.runner.run(self.client.get_history(id))
            assert replay(family, entries) == instance.status, f"{id} does not replay to {instance.status}"


class PostgresFamilyMachine(FamilyMachine):
    Place = PostgresPlace


@pytest.mark.play
@pytest.mark.usefixtures("quiet", "nobody_kills")
def test_random_families_and_faults() -> None:
    play(FamilyMachine, "romancy-ci")


@pytest.mark.play
@pytest.mark.usefixtures("quiet", "nobody_kills", "postgres")
def test_random_families_and_faults_on_postgres() -> None:
    play(PostgresFamilyMachine, "romancy-ci-postgres")
