"""The timetable: changes of schedules, by people and by code that declares them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from romancy.core.clock import Clock
from romancy.core.ids import check_id, new_id
from romancy.core.inputs import declared_by, write_input
from romancy.core.places import place_of
from romancy.core.registry import Registry, WorkflowDefinition
from romancy.core.schedules import Course, Schedule
from romancy.core.versions import bare_name
from romancy.errors import InvalidInput, ScheduleNotFound
from romancy.storage.protocol import Storage
from romancy.storage.schedules import Order, ScheduleRow

_logger = logging.getLogger("romancy")
LONGEST = 200
"""The longest name of a schedule: the ids of its instances begin with it."""


def check_name(name: str) -> str:
    """Check that people can type the name of a schedule and databases can store it."""
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"the name of a schedule must be a non-empty string, got {name!r}")
    if len(name) > LONGEST or not name.isprintable():
        raise InvalidInput(f"the name of a schedule must be at most {LONGEST} printable characters, got {name[:300]!r}")
    return name


def make_order(
    name: str,
    schedule: Schedule,
    definition: WorkflowDefinition | None,
    workflow: str,
    call: tuple[tuple[Any, ...], dict[str, Any]],
    timeout: int | None,
    options: tuple[str | None, int | None] = (None, None),
    *,
    declared: bool = False,
) -> Order:
    """Return what a schedule is to do; raise an error if the workflow can't be called like this.

    `options`: key and priority in the queue of the workflow, if they are not those that it says itself.
    """
    kind, raw = write_input(definition, workflow, *call)
    attributes = declared_by(definition, kind, raw)
    shown = None if attributes is None else json.dumps(attributes, sort_keys=True)
    place = place_of(definition, kind, raw, *options)
    return Order(name, workflow, raw, kind, timeout, shown, schedule, declared, place)


def next_tick(row: ScheduleRow, order: Order, now: int) -> tuple[int | None, Course]:
    """Return the next tick of a schedule after a change, and its ticks from there: none is repeated or skipped.

    Ticks that were due before the change are still to be started: those of the times before it. The new times count
    from now on.
    """
    before, times, after = row.order.schedule.times, order.schedule.times, max(now, row.done_at or 0)
    if row.next_at is not None and row.next_at <= now and not (row.paused and times != before):
        return row.next_at, row.course.changed(times, after)
    if times != before:
        return times.first(after), Course(times)
    if times.every is not None:
        return row.next_at, row.course
    return times.after(after), Course(times)  # the rules of the time zone may be new


class Timetable:
    """Changes schedules. Each change is a write that names what was read, tried again until it succeeds."""

    def __init__(self, storage: Storage, clock: Clock, registry: Registry, kick: Callable[[], None]) -> None:
        self._table, self._clock, self._registry, self._kick = storage.schedules, clock, registry, kick
        self._declared: dict[str, Order] | None = None

    # --- people -----------------------------------------------------------------------------------------------------
    async def put(self, order: Order) -> None:
        """Add a schedule, or replace what it is to do. It stays paused if it is.

        The name of a schedule that code declares is refused: its workers could not store theirs.
        """
        check_name(order.name)
        if order.name in self._registry.scheduled:  # perhaps it is not stored yet
            raise _declared_already(order.name, order.name)
        while not await self._put(order):
            pass
        self._kick()

    async def _put(self, order: Order) -> bool:
        row, now = await self._table.get(order.name), self._clock.now()
        if row is None:
            return await self._table.insert(order, order.schedule.times.first(now))
        if row.order.declared and not order.declared:
            raise _declared_already(order.name, row.order.workflow)
        next_at, course = next_tick(row, order, now)
        if row.order == order and row.next_at == next_at:
            return True
        return await self._table.change(row, order, next_at, course.former_from(next_at))

    async def pause(self, name: str, *, paused: bool) -> None:
        """Pause a schedule or let it go on. Ticks that pass meanwhile are dropped."""
        is_done = False
        while not is_done:
            row = await self._get(name)
            next_at = row.next_at
            if not paused and row.paused and next_at is not None:
                next_at = row.course.past(next_at, self._clock.now())
            is_done = row.paused == paused or await self._table.pause(row, paused, next_at)
        self._kick()

    async def delete(self, name: str, *, even_declared: bool = False) -> None:
        """Delete a schedule. Its instances are left alone.

        One that code declares is refused: it would come back, and not be paused. `even_declared` is for those that are
        left over because their workflow is gone.
        """
        is_deleted = False
        while not is_deleted:
            row = await self._table.get(name) if _is_name(name) else None
            is_declared = name in self._registry.scheduled if row is None else row.order.declared
            if is_declared and not even_declared:
                raise InvalidInput(
                    f"the schedule {name!r} is declared in code and would come back when a worker starts; remove "
                    f"schedule= from its workflow, or stop it with pause_schedule({name!r}); if its workflow is gone "
                    f"from all code, remove the schedule with `romancy schedules delete {name} --declared`"
                )
            if row is None:
                raise ScheduleNotFound(name=name)
            is_deleted = await self._table.delete(name, row)
        if name in self._registry.scheduled:  # it was in the way of the one that code declares
            self._declared = None
            self._kick()

    async def trigger(self, name: str, instance_id: str | None = None, who: str | None = None) -> tuple[str, str]:
        """Start an instance now. Return its id, and the name of its workflow.

        If there is an instance with a given id, nothing happens: the caller tries again.
        """
        now = self._clock.now()
        id = f"{name}/{new_id(now)}" if instance_id is None else check_id(instance_id)
        workflow = await self._table.trigger(name, id, now, who) if _is_name(name) else None
        return id, (await self._get(name)).order.workflow if workflow is None else workflow

    async def _get(self, name: str) -> ScheduleRow:
        row = await self._table.get(name) if _is_name(name) else None
        if row is None:
            raise ScheduleNotFound(name=name)
        return row

    # --- code -------------------------------------------------------------------------------------------------------
    @property
    def is_behind(self) -> bool:
        """Whether code that is registered here declares other schedules than those that were stored."""
        return self._declared is None or {n: o.schedule for n, o in self._declared.items()} != {
            name: schedule for name, (_, schedule) in self._registry.scheduled.items()
        }

    async def declare(self) -> None:
        """Store the schedules that code declares, and delete those that it no longer declares."""
        wanted = {name: _declared(name, *it) for name, it in self._registry.scheduled.items()}
        ours = {bare_name(name) for name in self._registry.names}
        for row in await self._table.declared():
            if row.name not in wanted and bare_name(row.order.workflow) in ours:
                await self._table.delete(row.name, row)
        for order in wanted.values():
            while not await self._declare(order):
                pass
        self._declared = wanted

    async def _declare(self, order: Order) -> bool:
        row = await self._table.get(order.name)
        if row is not None and not row.order.declared:
            _logger.error(
                "workflow %r declares a schedule, but one of that name was set with set_schedule(), and stays; remove "
                "it with delete_schedule(%r), and the declared one takes its place",
                order.name,
                order.name,
            )
            return True
        return await self._put(order)


def _declared_already(name: str, workflow: str) -> InvalidInput:
    return InvalidInput(
        f"the schedule {name!r} is declared in code, at workflow {workflow!r}; change it there, or use another name"
    )


def _declared(name: str, definition: WorkflowDefinition, schedule: Schedule) -> Order:
    check_name(name)
    return make_order(name, schedule, definition, definition.name, ((), {}), definition.timeout, declared=True)


def _is_name(name: str) -> bool:
    return bool(name) and len(name) <= LONGEST and name.isprintable()
