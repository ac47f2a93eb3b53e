"""The table of schedules: reads, and writes that name the stamp of what was read, so that none undoes another."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any, cast

from romancy.core.model import FOREVER_US
from romancy.core.queues import Place
from romancy.core.schedules import CatchUp, Course, Former, Overlap, Schedule, Times, due_at
from romancy.storage.sql import Run

_PLACE = ("queue", "queue_key", "priority")


@dataclass(slots=True, frozen=True)
class Order:
    """What a schedule is to do: everything that people or code say about it."""

    name: str
    workflow: str
    input: bytes
    input_kind: int
    timeout: int | None
    """The time limit of its instances."""
    attributes: str | None
    """The attributes of its instances, as JSON: values as JSON by name."""
    schedule: Schedule
    declared: bool
    """Whether it is in the code: `@workflow(schedule=...)`."""
    place: Place | None = None
    """Where its instances wait, if their workflow has a queue."""

    def columns(self, next_at: int | None) -> dict[str, Any]:
        """Return the columns that hold this."""
        times, schedule = self.schedule.times, self.schedule
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("schedule", "place")}
        when = {f.name: getattr(times, f.name) for f in fields(times)}
        due = None if next_at is None else due_at(self.name, next_at, schedule.spread)
        policy = {"spread": schedule.spread, "catch_up": schedule.catch_up, "overlap": schedule.overlap}
        return {**kept, **when, **policy, **_place(self.place), "next_at": next_at, "due_at": due}


@dataclass(slots=True)
class ScheduleRow:
    """A schedule as it is stored."""

    order: Order
    next_at: int | None
    """The next tick; None if there is none."""
    due_at: int | None
    done_at: int | None
    """Ticks up to this one are taken care of."""
    last_at: int | None
    last_instance: str | None
    paused: bool
    started: int
    skipped: int
    error: str | None
    stamp: bytes
    former: tuple[Former, ...]
    """Times that were changed while ticks were overdue, which are theirs."""
    open_instance: str | None
    """One of the instances that it started and that have not ended."""
    last_ended_at: int | None
    """When an instance that it started ended, the last time."""

    @property
    def name(self) -> str:
        return self.order.name

    @property
    def is_busy(self) -> bool:
        """Whether an instance that it started has not ended."""
        return self.open_instance is not None

    @property
    def held_until(self) -> int | None:
        """When the last instance that it started ended; later than any time if one has not."""
        return FOREVER_US if self.is_busy else self.last_ended_at

    @property
    def course(self) -> Course:
        """Its ticks from the next one on."""
        return Course(self.order.schedule.times, self.former)


@dataclass(slots=True, frozen=True)
class Firing:
    """One write: a schedule goes on to its next tick, and starts an instance for the one it was at."""

    id: str | None
    """The id of the instance, None: start none."""
    tick: int | None
    done_at: int
    next_at: int | None
    skipped: int
    waits: bool
    """Do nothing while an instance that it started is open."""
    at: int
    mine: bool = False
    """Whether the worker that writes wants to run it."""
    place: Place | None = None
    """Where it waits."""


class Schedules:
    """Schedules by name. Nothing is cached."""

    def __init__(self, ask: Run, do: Run) -> None:
        self._ask, self._do = self.runs = ask, do

    async def get(self, name: str) -> ScheduleRow | None:
        rows = await self._ask("schedule", name=name)
        return _row(rows[0]) if rows else None

    async def all(self) -> list[ScheduleRow]:
        return [_row(row) for row in await self._ask("schedules")]

    async def declared(self) -> list[ScheduleRow]:
        """Return those that code declares."""
        return [_row(row) for row in await self._ask("declared_schedules")]

    async def due(self, now: int, after: tuple[int, str], limit: int) -> list[ScheduleRow]:
        """Return schedules whose next tick is due, in order, after a position."""
        place = {"after_due": after[0], "after_name": after[1]}
        return [_row(row) for row in await self._ask("due_schedules", now=now, limit=limit, **place)]

    async def next_due(self, after: int) -> int | None:
        """Return when the next tick after a time is due; None if there is none."""
        [(due,)] = await self._ask("next_schedule", after=after)
        return due

    async def insert(self, order: Order, next_at: int | None) -> bool:
        """Add a schedule. False: its name is taken."""
        return bool(await self._do("insert_schedule", **order.columns(next_at), stamp=_stamp()))

    async def change(
        self, row: ScheduleRow, order: Order, next_at: int | None, former: tuple[Former, ...] = ()
    ) -> bool:
        """Replace what a schedule is to do. False: it is not as it was read."""
        given = order.columns(next_at) | {"former": _write_former(former)}
        return bool(await self._do("change_schedule", **given, seen=row.stamp, stamp=_stamp()))

    async def pause(self, row: ScheduleRow, paused: bool, next_at: int | None) -> bool:
        """Pause a schedule, or let it go on with a tick. False: it is not as it was read."""
        when = {k: v for k, v in row.order.columns(next_at).items() if k in ("name", "next_at", "due_at")}
        when["former"] = _write_former(row.course.former_from(next_at))
        return bool(await self._do("pause_schedule", **when, paused=paused, seen=row.stamp, stamp=_stamp()))

    async def blame(self, row: ScheduleRow, error: str) -> None:
        """Record why a worker could not do anything about a schedule."""
        await self._do("blame_schedule", name=row.name, error=error, seen=row.stamp)

    async def delete(self, name: str, row: ScheduleRow | None = None) -> bool:
        """Delete a schedule, if it is still as it was read. False: nothing was deleted."""
        return bool(await self._do("delete_schedule", name=name, seen=None if row is None else row.stamp))

    async def fire(self, worker: str, row: ScheduleRow, firing: Firing) -> bool | None:
        """Advance a schedule. Return whether an instance was started; None: nothing was written.

        Nothing is written if the schedule is not as it was read, or the worker has lost its lease, or the schedule
        waits for an instance that it started.
        """
        schedule = row.order.schedule
        due = None if firing.next_at is None else due_at(row.name, firing.next_at, schedule.spread)
        given = {f.name: getattr(firing, f.name) for f in fields(firing) if f.name != "place"} | _place(firing.place)
        known = {"name": row.name, "seen": row.stamp, "yields": schedule.overlap == "skip"}
        former = _write_former(row.course.former_from(firing.next_at))
        rows = await self._do(
            "fire_schedule", **given, **known, former=former, worker=worker, due_at=due, stamp=_stamp()
        )
        return bool(rows[0][0]) if rows else None

    async def open_instances(self, name: str, limit: int) -> list[str]:
        """Return ids of instances that a schedule started and that have not ended."""
        return [id for (id,) in await self._ask("open_of_schedule", name=name, limit=limit)]

    async def trigger(self, name: str, id: str, at: int, who: str | None = None) -> str | None:
        """Start an instance now. Return the name of its workflow. `who`: recorded with it.

        None: there is no such schedule, or there is an instance with this id.
        """
        rows = await self._do("trigger_schedule", name=name, id=id, tick=at, at=at, stamp=_stamp(), who=who)
        return rows[0][0] if rows else None


def _place(place: Place | None) -> dict[str, Any]:
    """Return the columns that hold a place."""
    return dict(zip(_PLACE, place or (None, None, None), strict=True))


def _stamp() -> bytes:
    return os.urandom(12)


def _row(row: Any) -> ScheduleRow:
    name, workflow, input, kind, timeout, attributes, queue, key, priority, *rest = row
    cron, every, timezone, starts_at, ends_at, spread, catch_up, overlap, *rest = rest
    next_at, due, done, last_at, last, paused, declared, started, skipped, error, stamp, former, busy, ended = rest
    schedule = stored_schedule(
        Times(cron, every, timezone, starts_at, ends_at), {"spread": spread, "catch_up": catch_up, "overlap": overlap}
    )
    place = None if queue is None else Place(queue, key, priority)
    order = Order(name, workflow, input, kind, timeout, attributes, schedule, bool(declared), place)
    state = next_at, due, done, last_at, last, bool(paused), started, skipped, error, bytes(stamp)
    return ScheduleRow(order, *state, _read_former(former), busy, ended)


def _write_former(former: tuple[Former, ...]) -> str | None:
    return json.dumps([[*astuple(past.times), past.until] for past in former]) if former else None


def _read_former(text: str | None) -> tuple[Former, ...]:
    return () if text is None else tuple(Former(Times(*times), until) for *times, until in json.loads(text))


def stored_schedule(times: Times, policy: Mapping[str, Any]) -> Schedule:
    """Return a schedule as it was stored. It is not checked: this machine may not know its time zone."""
    schedule = Schedule.__new__(Schedule)
    schedule.times, schedule.spread = times, policy["spread"]
    schedule.catch_up = cast("CatchUp", policy["catch_up"])
    schedule.overlap = cast("Overlap", policy["overlap"])
    return schedule
