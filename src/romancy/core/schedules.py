"""Schedules: when a workflow is to be started, again and again. Nothing here reads a clock or a database.

A *tick* is a time at which a schedule starts its workflow, its nominal time. It is due then or, with `spread=`, up to
that much later.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import islice
from typing import Literal, TypeAlias, cast, get_args, overload
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from romancy.core.durations import span
from romancy.core.model import FOREVER_US, SECOND, Duration, duration_us, from_us, to_us

CatchUp: TypeAlias = Literal["one", "all", "skip"]
Overlap: TypeAlias = Literal["skip", "allow", "queue", "cancel"]

SHORTEST = SECOND // 100
"""The shortest time between two ticks."""
LATE = 60 * SECOND
"""A tick that is later than this was missed."""
MOST = 500
"""How many ticks are looked at in one go: a schedule by the second may have missed millions."""
_STEPS = re.compile(r"Every \w+ (?P<unit>second|minute) of every (minute|hour)\b")
"""How `*/5` is explained: "Every fifth minute of every hour"."""
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True, slots=True)
class Times:
    """The ticks of a schedule. All times are microseconds since the epoch."""

    cron: str | None
    every: int | None
    timezone: str = "UTC"
    starts_at: int | None = None
    ends_at: int | None = None

    def first(self, now: int) -> int | None:
        """Return the first tick after `now`, of a schedule that is new."""
        return self.after(now)

    def after(self, tick: int) -> int | None:
        """Return the first tick after another one, which may be one of earlier times of the schedule."""
        if self.every is not None:
            if self.starts_at is None:
                return self._until_end(tick + self.every)
            return self._until_end(self.starts_at if self.starts_at > tick else _step(self.starts_at, self.every, tick))
        if self.starts_at is not None:
            tick = max(tick, self.starts_at - 1)
        return self._until_end(_next_match(_expression(self.cron or ""), self.timezone, tick))

    def past(self, tick: int, now: int) -> int | None:
        """Return the first tick after `now`, counted on from an earlier one."""
        if tick > now:
            return tick
        if self.every is None or self.starts_at is not None:
            return self.after(now)
        return self._until_end(_step(tick, self.every, now))

    def _until_end(self, tick: int | None) -> int | None:
        if tick is None or tick >= FOREVER_US // 2:
            return None
        return None if self.ends_at is not None and tick > self.ends_at else tick

    def __str__(self) -> str:
        if self.every is not None:
            return f"every {span(self.every / SECOND)}"
        words = in_words(self.cron or "")
        return words if self.timezone == "UTC" else f"{words} ({self.timezone})"


@dataclass(frozen=True, slots=True)
class Former:
    """Times that a schedule had before they were changed: its ticks up to then are theirs."""

    times: Times
    until: int


@dataclass(frozen=True, slots=True)
class Course:
    """The ticks of a schedule whose times may have been changed while ticks were overdue."""

    times: Times
    former: tuple[Former, ...] = ()
    """The oldest first. Those before the next tick are forgotten."""

    def after(self, tick: int) -> int | None:
        """Return the first tick after another one."""
        for past in self.former:
            if tick <= past.until:
                found = past.times.after(tick)
                if found is not None and found <= past.until:
                    return found
                tick = past.until
        return self.times.after(tick)

    def following(self, tick: int) -> Iterator[int]:
        """Yield a tick, and those after it."""
        at: int | None = tick
        while at is not None:
            yield at
            at = self.after(at)

    def past(self, tick: int, now: int) -> int | None:
        """Return the first tick after `now`, counted on from an earlier one."""
        if tick > now or not self.former:
            return tick if tick > now else self.times.past(tick, now)
        first = self.times.after(self.former[-1].until)
        return None if first is None else self.times.past(first, now)

    def former_from(self, tick: int | None) -> tuple[Former, ...]:
        """Return the former times that still count if a tick is the next one."""
        return () if tick is None else tuple(past for past in self.former if past.until >= tick)

    def changed(self, times: Times, now: int) -> Course:
        """Return the course after a change of the times, while a tick is overdue."""
        return self if times == self.times else Course(times, (*self.former, Former(self.times, now)))


class Schedule:
    """When to start a workflow: by a cron expression, or every so often.

    >>> Schedule("0 9 * * MON-FRI", timezone="Europe/Berlin")
    >>> Schedule(every=timedelta(minutes=5), overlap="allow")

    `cron`: five fields, or six with seconds first; or "@daily" and the like. It is read in `timezone`: a time that
    daylight saving skips is made up for when the clock has been put forward, and one that comes twice counts once.
    `spread`: each start is later by a part of this that differs from tick to tick, so that not all begin at once.
    `catch_up`: what becomes of ticks that were missed, because no worker ran: "one" starts the latest, "all" starts
    every one, "skip" starts none that is more than a minute late. `overlap`: what becomes of a tick if an instance
    that the schedule started before has not ended: "skip" it, "allow" both, "queue" it until the other one ends, or
    "cancel" the other one. There are no ticks before `starts_at`, and none after `ends_at`.
    """

    __slots__ = ("catch_up", "overlap", "spread", "times")

    @overload
    def __init__(
        self,
        cron: str,
        /,
        *,
        timezone: str | ZoneInfo = "UTC",
        spread: Duration = 0,
        catch_up: CatchUp = "one",
        overlap: Overlap = "skip",
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        /,
        *,
        every: Duration,
        spread: Duration = 0,
        catch_up: CatchUp = "one",
        overlap: Overlap = "skip",
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
    ) -> None: ...
    def __init__(
        self,
        cron: str | None = None,
        /,
        *,
        every: Duration | None = None,
        timezone: str | ZoneInfo = "UTC",
        spread: Duration = 0,
        catch_up: CatchUp = "one",
        overlap: Overlap = "skip",
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
    ) -> None:
        if (cron is None) == (every is None):
            raise ValueError('a schedule takes either a cron expression or every=, as in Schedule("0 9 * * *")')
        zone = _zone_name(timezone)
        if every is not None and zone != "UTC":
            raise ValueError("timezone= is for cron expressions; every= counts seconds, whatever the clocks show")
        period = None if every is None else duration_us(every, "every")
        if period is not None and not SHORTEST <= period < FOREVER_US // 2:
            raise ValueError(f"every must be at least {span(SHORTEST / SECOND)}, and finite, not {every!r}")
        _check_choice("catch_up", catch_up, CatchUp)
        _check_choice("overlap", overlap, Overlap)
        begin, end = (None if moment is None else to_us(moment) for moment in (starts_at, ends_at))
        if begin is not None and end is not None and begin > end:
            raise ValueError(f"starts_at {starts_at} is after ends_at {ends_at}")
        self.times = Times(cron, period, zone, begin, end)
        self.spread = duration_us(spread, "spread")
        self.catch_up: CatchUp = catch_up
        self.overlap: Overlap = overlap
        if cron is not None:
            _check_cron(cron, zone)

    @property
    def cron(self) -> str | None:
        """The cron expression, if it has one."""
        return self.times.cron

    @property
    def every(self) -> float | None:
        """Seconds between two ticks, if it has no cron expression."""
        return None if self.times.every is None else self.times.every / SECOND

    @property
    def timezone(self) -> str:
        """The time zone of the cron expression."""
        return self.times.timezone

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return self.times, self.spread, self.catch_up, self.overlap

    def __repr__(self) -> str:
        times, when = self.times, repr(self.cron) if self.cron is not None else f"every={self.every:g}"
        given = {
            "timezone": None if times.timezone == "UTC" else times.timezone,
            "spread": self.spread / SECOND or None,
            "catch_up": None if self.catch_up == "one" else self.catch_up,
            "overlap": None if self.overlap == "skip" else self.overlap,
            "starts_at": None if times.starts_at is None else from_us(times.starts_at),
            "ends_at": None if times.ends_at is None else from_us(times.ends_at),
        }
        return f"Schedule({', '.join([when, *(f'{k}={v!r}' for k, v in given.items() if v is not None)])})"


def to_schedule(given: str | Schedule) -> Schedule:
    """Return a schedule; a string is a cron expression in UTC."""
    if isinstance(given, Schedule):
        return given
    if isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Schedule(given)
    raise TypeError(f"a schedule is a cron expression or Schedule(...), not {given!r}")


def options_in_words(overlap: Overlap, catch_up: CatchUp, spread: float) -> str:
    """Describe the options of a schedule that are not the default. `spread`: in seconds."""
    given = {
        "overlap": None if overlap == "skip" else overlap,
        "catch_up": None if catch_up == "one" else catch_up,
        "spread": span(spread) if spread else None,
    }
    return ", ".join(f"{name}: {value}" for name, value in given.items() if value is not None)


def due_at(name: str, tick: int, spread: int) -> int:
    """Return when a tick is due: the same on every worker."""
    if spread == 0:
        return tick
    digest = hashlib.blake2b(f"{name}:{tick}".encode(), digest_size=8).digest()
    return tick + int.from_bytes(digest, "big") % (spread + 1)


# --- what to do about ticks that are due ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Plan:
    """What one write does with the ticks of a schedule that are due."""

    start: int | None
    """The tick to start, None: start none of them."""
    skipped: int
    """How many others are skipped."""
    done: int
    """The last tick that this takes care of."""
    next: int | None
    """The tick after that."""
    waits: bool
    """Do nothing of this before all instances that the schedule started have ended."""


def due_ticks(
    name: str, schedule: Schedule, course: Course, next_at: int, now: int, held_until: int | None
) -> Iterator[int]:
    """Yield the ticks that are due, at most one more than a plan takes care of; see `plan`."""
    most = 1 if schedule.catch_up == "all" or _was_held(schedule, next_at, held_until) else MOST + 1
    for tick in islice(course.following(next_at), most):
        if due_at(name, tick, schedule.spread) > now:
            return
        yield tick


def plan(name: str, schedule: Schedule, course: Course, due: list[int], now: int, held_until: int | None) -> Plan:
    """Return what to do next about ticks that are due.

    `held_until`: when the last instance that the schedule started ended, later than any time if one has not. Ticks up
    to then that are queued were not missed: they waited.
    """
    spread, queues = schedule.spread, schedule.overlap == "queue"
    missed = due_at(name, due[0], spread) < now - LATE
    if schedule.catch_up == "all" or _was_held(schedule, due[0], held_until):
        # All of them are to be started, and no two at a time: those that were missed can wait a little longer.
        return _plan(course, due[:1], starts=True, waits=queues or (schedule.overlap == "skip" and missed))
    if schedule.catch_up == "one":
        return _plan(course, due[:MOST], starts=len(due) <= MOST, waits=queues)
    old = sum(1 for tick in due[:MOST] if due_at(name, tick, spread) < now - LATE)
    return _plan(course, due[: min(old + 1, MOST)], starts=old < min(len(due), MOST), waits=queues)


def _was_held(schedule: Schedule, tick: int, held_until: int | None) -> bool:
    return schedule.overlap == "queue" and held_until is not None and tick <= held_until


def _plan(course: Course, ticks: list[int], *, starts: bool, waits: bool) -> Plan:
    last = ticks[-1]
    return Plan(last if starts else None, len(ticks) - starts, last, course.after(last), waits and starts)


def next_ticks(course: Course, tick: int | None, count: int) -> list[int]:
    """Return a tick and those after it, up to `count`."""
    return [] if tick is None else list(islice(course.following(tick), count))


# --- cron expressions -------------------------------------------------------------------------------------------------
def in_words(cron: str) -> str:
    """Return a cron expression in English: "At 09:00 on Monday through Friday"."""
    expression = _expression(cron)
    words = CronSim(expression, from_us(0)).explain()
    found = _STEPS.match(words)
    if found is not None:
        fields = expression.split()
        step = (fields[0] if found["unit"] == "second" else fields[-5]).rpartition("/")[2]
        if step.isdigit() and 60 % int(step) == 0:
            return f"Every {int(step)} {found['unit']}s{words[found.end() :]}"
    return words


def _expression(cron: str) -> str:
    return _ALIASES.get(cron.strip().lower(), cron)


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


def _next_match(expression: str, timezone: str, after: int) -> int | None:
    """Return the first match after a time. In an hour that comes twice, a fixed time counts only at first."""
    start = from_us(after)
    try:
        for match in CronSim(expression, start.astimezone(_zone(timezone))):
            found = to_us(match.astimezone(UTC))
            if found > after:
                return found
    except OverflowError:
        pass  # it would be after the year 9999
    return None


def _step(start: int, every: int, now: int) -> int:
    return start + ((now - start) // every + 1) * every


def _check_choice(name: str, given: str, choices: object) -> None:
    allowed = cast("tuple[str, ...]", get_args(choices))
    if given not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {given!r}")


def _zone_name(given: str | ZoneInfo) -> str:
    """Return the name of a time zone. It is stored, so an object without a name is of no use."""
    name = given.key if isinstance(given, ZoneInfo) else given
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"timezone must be a name such as 'Europe/Berlin', or a ZoneInfo of one, not {given!r}")
    return name


def _check_cron(cron: str, timezone: str) -> None:
    if not isinstance(cron, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"a cron expression is a string such as '0 9 * * MON-FRI', not {cron!r}")
    try:
        _zone(timezone)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise ValueError(
            f"the time zone {timezone!r} is not known here ({error}); use a name such as 'Europe/Berlin', and install "
            "the package tzdata if this machine has no time zones"
        ) from None
    try:
        found = _next_match(_expression(cron), timezone, 0)
    except (CronSimError, AssertionError, ValueError) as error:
        raise ValueError(f"{cron!r} is not a cron expression: {error}; one is '0 9 * * MON-FRI'") from None
    if found is None:
        raise ValueError(f"the cron expression {cron!r} never matches a day")
