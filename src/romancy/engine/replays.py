"""Replays: run the code of instances over their history, in slices.

A replay of a long history takes seconds. Between two slices the event loop has its turn: leases are renewed, other
instances continue, requests are answered. A replay that fits into one slice runs at once. Longer ones, and those that
come when enough was replayed in this turn of the loop, take turns, so that a short one need not wait for a long one.

A half-replayed instance is not resident. Its inputs wait in the same place as those of instances that are being read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass

from romancy import hooks as h
from romancy.core.clock import Clock, stopwatch
from romancy.core.model import WAITING, from_us
from romancy.core.operations import ActivityCall
from romancy.engine.hook_runner import HookRunner
from romancy.engine.resident import GONE, Resident
from romancy.engine.watchdog import Watchdog
from romancy.storage.records import Snapshot

SLICE = 0.005
"""Seconds of replay in one turn of the loop. Entries are not interrupted."""
REST = 0.001
"""Seconds between two slices. Without them, other threads, such as one that commits, would hardly get the GIL."""
MOMENT = 0.002
"""Seconds of immediate replays, one or many, after which further replays wait for the next turn."""

Done = Callable[["Exception | None"], None]


@dataclass(slots=True, eq=False)
class _Replay:
    resident: Resident
    entries: Generator[None]
    done: Done


class Replays:
    """All replays in progress. `done(error)` is called when a replay has ended, but not if it was dropped."""

    def __init__(self, clock: Clock, hooks: HookRunner, watchdog: Watchdog) -> None:
        self._clock, self._hooks, self._watchdog = clock, hooks, watchdog
        self._queue: deque[_Replay] = deque()
        self._spent = 0.0
        self._has_turn = False
        """A turn of the loop is scheduled."""

    def __repr__(self) -> str:
        return f"<Replays under_way={len(self._queue)}>"

    def begin(self, resident: Resident, snapshot: Snapshot, done: Done) -> None:
        """Run the code over its history: at once if that is quick, otherwise in slices."""
        replay = _Replay(resident, self._entries(resident, snapshot), done)
        if self._has_turn:
            self._queue.append(replay)
            return
        began = stopwatch()
        self._run(replay, began + SLICE)
        self._spent += stopwatch() - began
        if self._queue or self._spent > MOMENT:
            self._has_turn = True
            asyncio.get_running_loop().call_soon(self._turn)

    def drop_all(self) -> None:
        """Drop half-replayed instances. Their code must not act any more."""
        dropped = list(self._queue)
        self._queue.clear()
        for replay in dropped:
            replay.resident.state = GONE
            replay.resident.instance.evict()
            replay.entries.close()

    def _turn(self) -> None:
        """Run one slice, of one or more replays. A plain callback of the loop: user code must not run inside a task."""
        until = stopwatch() + SLICE
        try:
            for _ in range(len(self._queue)):
                self._run(self._queue.popleft(), until)
                if stopwatch() > until:
                    break
        finally:
            self._has_turn, self._spent = bool(self._queue), 0.0
            if self._has_turn:
                asyncio.get_running_loop().call_later(REST, self._turn)

    def _run(self, replay: _Replay, until: float) -> None:
        try:
            if not self._is_through(replay, until):
                self._queue.append(replay)
                return
        except Exception as error:
            replay.done(error)
        else:
            replay.done(None)

    def _is_through(self, replay: _Replay, until: float) -> bool:
        """Continue until `until`. The watchdog times each slice, so it reports only code slow within an entry."""
        self._watchdog.begin(replay.resident.instance)
        try:
            return all(stopwatch() <= until for _ in replay.entries)
        finally:
            self._watchdog.end()

    def _entries(self, resident: Resident, snapshot: Snapshot) -> Generator[None]:
        """Replay, with a pause after each entry."""
        instance, length = resident.instance, len(snapshot.history)
        info = {"instance_id": instance.id, "workflow": instance.definition.name, "entries": length}
        if resident.retrial is not None:
            instance = resident.instance = yield from resident.retrial.prepare(snapshot.history)
            resident.begun = True
        elif snapshot.history:
            self._hooks.tell(h.ReplayStartedInfo, at=from_us(self._clock.now()), **info)
            yield from instance.replay_by_entry(snapshot.history)
            self._hooks.tell(h.ReplayCompletedInfo, at=from_us(self._clock.now()), **info)
        elif snapshot.waits or snapshot.row.status in WAITING:
            instance.replay([])  # no history yet, but it is stored what it waits for
            resident.begun = True
        if resident.begun:
            stale = instance.reconcile(snapshot.waits, is_reopened=resident.retrial is not None)
            resident.outdated = instance.ops.outdated(snapshot.sought)
            resident.stale_waits = [*stale, *(op.id for op in resident.outdated)]
            resident.is_unsure = instance.ops.children > 0 and resident.retrial is None
            if instance.ops.activities:
                resident.reopened = {op.id for op in instance.ops.values() if isinstance(op, ActivityCall)}
