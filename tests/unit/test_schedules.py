"""When schedules tick, over changes of the clock too, and what becomes of ticks that were missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from romancy import Schedule, WorkflowContext, workflow
from romancy.core.model import FOREVER_US, SECOND, from_us, to_us
from romancy.core.schedules import LATE, MOST, Course, Plan, Times, due_at, due_ticks, next_ticks, to_schedule
from romancy.core.schedules import plan as plan_ticks

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
HOUR = 3600 * SECOND
NOW = to_us(datetime(2027, 1, 4, 12, 0, tzinfo=UTC))


def ticks(schedule: Schedule, after: datetime, count: int) -> list[datetime]:
    return [from_us(t) for t in next_ticks(Course(schedule.times), schedule.times.after(to_us(after)), count)]


def local(schedule: Schedule, after: datetime, count: int, zone: ZoneInfo = BERLIN) -> list[str]:
    return [f"{t.astimezone(zone):%m-%d %H:%M}" for t in ticks(schedule, after, count)]


def test_a_cron_expression_is_read_in_its_time_zone() -> None:
    schedule = Schedule("0 9 * * MON-FRI", timezone="Europe/Berlin")
    found = ticks(schedule, datetime(2027, 1, 8, 9, 0, tzinfo=BERLIN), 2)  # a Friday
    assert found == [datetime(2027, 1, 11, 8, 0, tzinfo=UTC), datetime(2027, 1, 12, 8, 0, tzinfo=UTC)]


def test_a_time_that_the_clock_skips_is_made_up_for_once() -> None:
    schedule = Schedule("30 2 * * *", timezone="Europe/Berlin")
    assert local(schedule, datetime(2027, 3, 27, 0, tzinfo=BERLIN), 3) == ["03-27 02:30", "03-28 03:00", "03-29 02:30"]


@pytest.mark.parametrize(
    ("zone", "day", "cron"), [(BERLIN, (2027, 10, 31), "30 2 * * *"), (NEW_YORK, (2027, 11, 7), "30 1 * * *")]
)
def test_a_time_that_comes_twice_counts_once(zone: ZoneInfo, day: tuple[int, int, int], cron: str) -> None:
    schedule = Schedule(cron, timezone=zone.key)
    hour = int(cron.split()[1])
    first = datetime(*day, hour, 30, tzinfo=zone)
    assert ticks(schedule, datetime(*day, tzinfo=zone), 1) == [first.astimezone(UTC)]
    # Also if asked from within the hour that comes again, where the wall clock shows an earlier time.
    again = datetime(*day, hour, 10, fold=1, tzinfo=zone)
    [found] = ticks(schedule, again, 1)
    assert found.astimezone(zone).date() == datetime(*day).date() + timedelta(days=1)


def test_a_schedule_by_the_hour_goes_through_both_changes_of_the_clock() -> None:
    schedule = Schedule("0 * * * *", timezone="Europe/Berlin")
    for day in (datetime(2027, 3, 28, tzinfo=BERLIN), datetime(2027, 10, 31, tzinfo=BERLIN)):
        found = ticks(schedule, day, 6)
        assert {b - a for a, b in pairwise(found)} == {timedelta(hours=1)}


@pytest.mark.parametrize("cron", ["30 2 * * *", "*/20 * * * *", "0 2,3 * * *", "15 1-3 * * *", "*/30 * * * * *"])
@pytest.mark.parametrize("day", [datetime(2027, 3, 27, 22, tzinfo=UTC), datetime(2027, 10, 30, 22, tzinfo=UTC)])
def test_ticks_are_the_same_wherever_one_begins_to_count(cron: str, day: datetime) -> None:
    times = Schedule(cron, timezone="Europe/Berlin").times
    begin, end = to_us(day), to_us(day + timedelta(hours=8))
    listed = [t for t in next_ticks(Course(times), times.after(begin), 2000) if t <= end]
    assert listed == sorted(set(listed))
    for at in range(begin, end, 7 * 60 * SECOND):
        following = next((t for t in listed if t > at), None)
        assert following is None or times.after(at) == following


def test_an_interval_counts_seconds() -> None:
    schedule = Schedule(every=timedelta(minutes=90))
    assert schedule.times.first(NOW) == NOW + 90 * 60 * SECOND
    assert schedule.times.after(NOW) == NOW + 90 * 60 * SECOND


def test_a_schedule_has_a_beginning_and_an_end() -> None:
    begin = datetime(2027, 1, 5, 0, 0, tzinfo=UTC)
    cron = Schedule("@daily", starts_at=begin, ends_at=begin + timedelta(days=1)).times
    assert next_ticks(Course(cron), cron.first(NOW), 5) == [to_us(begin), to_us(begin) + 24 * HOUR]
    every = Schedule(every=3600, starts_at=begin, ends_at=begin + timedelta(hours=1)).times
    assert next_ticks(Course(every), every.first(NOW), 5) == [to_us(begin), to_us(begin) + HOUR]
    late = Schedule(every=3600, starts_at=from_us(NOW - 90 * 60 * SECOND)).times
    assert late.first(NOW) == NOW + 30 * 60 * SECOND


@pytest.mark.parametrize(
    ("alias", "cron"),
    [("@hourly", "0 * * * *"), ("@daily", "0 0 * * *"), ("@weekly", "0 0 * * 0"), ("@monthly", "0 0 1 * *"),
     ("@yearly", "0 0 1 1 *"), ("@midnight", "0 0 * * *")],
)  # fmt: skip
def test_names_for_common_expressions(alias: str, cron: str) -> None:
    assert to_schedule(alias).times.after(NOW) == Schedule(cron).times.after(NOW)


def test_schedules_say_what_they_mean() -> None:
    assert str(Schedule("0 9 * * MON-FRI", timezone="Europe/Berlin").times) == (
        "At 09:00 on Monday through Friday (Europe/Berlin)"
    )
    assert str(Schedule(every=5400).times) == "every 1 h 30 min"
    assert str(Schedule("*/2 * * * * *").times) == "Every 2 seconds"
    assert str(Schedule("0 */15 * * * MON").times) == "Every 15 minutes on Monday"
    assert str(Schedule("*/5 * * * *").times) == "Every 5 minutes"
    assert str(Schedule("*/7 * * * *").times) == "Every seventh minute of every hour", "not every 7 minutes: 56, 0, 7"
    assert repr(Schedule("@daily", spread=300, overlap="allow")) == "Schedule('@daily', spread=300.0, overlap='allow')"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Schedule("0 9 * *"), "not a cron expression"),
        (lambda: Schedule("61 * * * *"), "not a cron expression"),
        (lambda: Schedule("0 0 30 2 *"), "not a cron expression"),
        (lambda: Schedule("0 9 * * *", timezone="Europe/Atlantis"), "Europe/Atlantis"),
        (lambda: Schedule("0 9 * * *", timezone="/etc/passwd"), "time zone"),
        (lambda: Schedule(every=0), "every must be at least"),
        (lambda: Schedule(every=float("inf")), "every must be at least"),
        (lambda: Schedule(every=60, timezone="Europe/Berlin"), "timezone= is for cron"),  # pyright: ignore
        (lambda: Schedule(), "either a cron expression or every="),  # pyright: ignore
        (lambda: Schedule("@daily", every=60), "either a cron expression or every="),  # pyright: ignore
        (lambda: Schedule("@daily", overlap="maybe"), "skip, allow, queue, cancel"),  # pyright: ignore
        (lambda: Schedule("@daily", catch_up="some"), "one, all, skip"),  # pyright: ignore
        (lambda: Schedule("@daily", spread=-1), "spread must not be negative"),
        (lambda: Schedule("@daily", starts_at=datetime(2027, 1, 1)), "no time zone"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


def test_spread_is_the_same_everywhere_and_differs_from_tick_to_tick() -> None:
    later = [due_at("report", NOW + n * HOUR, 300 * SECOND) - NOW - n * HOUR for n in range(50)]
    assert later == [due_at("report", NOW + n * HOUR, 300 * SECOND) - NOW - n * HOUR for n in range(50)]
    assert all(0 <= each <= 300 * SECOND for each in later)
    assert len(set(later)) == 50
    assert due_at("report", NOW, 0) == NOW


# --- plans ------------------------------------------------------------------------------------------------------------
def plan(name: str, schedule: Schedule, next_at: int, now: int, held_until: int | None) -> Plan | None:
    course = Course(schedule.times)
    due = list(due_ticks(name, schedule, course, next_at, now, held_until))
    return plan_ticks(name, schedule, course, due, now, held_until) if due else None


def test_nothing_is_planned_before_a_tick_is_due() -> None:
    assert plan("x", Schedule(every=60), NOW + 1, NOW, None) is None


def run(schedule: Schedule, next_at: int, now: int, held: int | None = None) -> tuple[list[int], int, int | None]:
    """Carry out plans until nothing is due: what was started, how many were skipped, the next tick."""
    started: list[int] = []
    skipped, at = 0, next_at
    while (step := plan("x", schedule, at, now, held)) is not None:
        started += [] if step.start is None else [step.start]
        skipped += step.skipped
        assert step.next is not None
        assert at <= step.done < step.next
        at = step.next
    return started, skipped, at


@pytest.mark.parametrize("missed", [0, 1, 7, MOST - 1, MOST, MOST + 1, 3 * MOST])
@pytest.mark.parametrize("catch_up", ["one", "all", "skip"])
def test_every_tick_is_started_or_skipped(catch_up: Any, missed: int) -> None:
    schedule = Schedule(every=60, catch_up=catch_up, overlap="allow")
    last = NOW + missed * 60 * SECOND
    started, skipped, following = run(schedule, NOW, last + SECOND)
    assert len(started) + skipped == missed + 1
    assert following == last + 60 * SECOND
    if catch_up == "all":
        assert started == [NOW + n * 60 * SECOND for n in range(missed + 1)]
    else:
        assert started == [last]


def test_ticks_that_are_over_a_minute_late_can_be_skipped() -> None:
    schedule = Schedule("*/1 * * * *", catch_up="skip", overlap="allow")
    assert run(schedule, NOW, NOW + LATE) == ([NOW, NOW + 60 * SECOND], 0, NOW + 120 * SECOND)
    assert run(schedule, NOW, NOW + LATE + 1)[:2] == ([NOW + 60 * SECOND], 1)
    hourly = Schedule("@hourly", catch_up="skip")
    assert run(hourly, NOW, NOW + 600 * SECOND) == ([], 1, NOW + HOUR)


def test_a_queued_tick_that_waited_was_not_missed() -> None:
    schedule = Schedule(every=60, overlap="queue")
    now = NOW + 300 * SECOND
    started, skipped, _ = run(schedule, NOW, now, held=NOW + 120 * SECOND)
    assert started == [NOW, NOW + 60 * SECOND, NOW + 120 * SECOND, now]
    assert skipped == 2
    step = plan("x", schedule, NOW, now, FOREVER_US)
    assert step is not None
    assert step.waits


# --- declarations -----------------------------------------------------------------------------------------------------
def test_a_workflow_with_a_schedule_takes_ctx_alone() -> None:
    with pytest.raises(TypeError, match="takes ctx alone, not region"):

        @workflow(schedule="@daily")  # pyright: ignore
        async def report(ctx: WorkflowContext, region: str) -> None: ...

    @workflow(schedule="@daily")
    async def fine(ctx: WorkflowContext, region: str = "eu") -> None: ...

    with pytest.raises(ValueError, match="not a cron expression"):

        @workflow(schedule="daily")
        async def wrong(ctx: WorkflowContext) -> None: ...


def test_no_tick_comes_before_the_start_even_if_the_times_were_others_before() -> None:
    start = 1_000 * 3600 * SECOND
    times = Times(None, 3600 * SECOND, starts_at=start)
    early = start - 5_000_000_001  # a tick that was due when the times were changed
    assert times.after(early) == times.past(early, early + 1) == start
    assert times.after(start + 7) == times.past(start - 1, start + 7) == start + 3600 * SECOND


@pytest.mark.parametrize("timezone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_there_are_no_ticks_after_the_last_year(timezone: str) -> None:
    last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    assert Schedule("0 9 * * *", timezone=timezone, starts_at=last).times.first(0) is None


# --- times that change ------------------------------------------------------------------------------------------------
def test_ticks_before_a_change_are_those_of_the_times_before_it() -> None:
    day = 24 * HOUR
    daily, hourly = Times(None, day), Times(None, HOUR)
    course = Course(daily).changed(hourly, NOW + 3 * day + 5)
    days, hours = [NOW + n * day for n in range(4)], [NOW + 3 * day + 5 + n * HOUR for n in (1, 2)]
    assert next_ticks(course, NOW, 6) == days + hours
    twice = course.changed(daily, NOW + 3 * day + HOUR + 10)
    last = NOW + 3 * day + HOUR
    assert next_ticks(twice, NOW + 3 * day, 4) == [NOW + 3 * day, last + 5, last + 10 + day, last + 10 + 2 * day]
    assert twice.changed(daily, last + 20) == twice
    assert [past.times for past in twice.former_from(last)] == [hourly]
    assert twice.former_from(None) == ()


def test_former_times_without_further_ticks_lead_to_the_new_ones() -> None:
    ended, hourly = Times(None, HOUR, ends_at=NOW), Times(None, HOUR, starts_at=NOW + 10 * HOUR)
    course = Course(ended).changed(hourly, NOW + 2 * HOUR)
    assert next_ticks(course, NOW, 2) == [NOW, NOW + 10 * HOUR]
    assert course.past(NOW, NOW + 12 * HOUR) == NOW + 13 * HOUR
    assert Course(Times(None, HOUR)).past(NOW, NOW + 90 * 60 * SECOND) == NOW + 2 * HOUR


def test_a_time_zone_is_a_name_or_a_zone_info() -> None:
    schedule = Schedule("0 9 * * *", timezone=ZoneInfo("Europe/Berlin"))
    assert schedule == Schedule("0 9 * * *", timezone="Europe/Berlin")
    assert schedule.timezone == "Europe/Berlin"
    assert Schedule(every=5, timezone=ZoneInfo("UTC")) == Schedule(every=5)  # type: ignore[call-overload]
    for wrong in (UTC, timezone(timedelta(hours=1)), None, 1):
        with pytest.raises(ValueError, match="timezone must be a name such as 'Europe/Berlin', or a ZoneInfo"):
            Schedule("0 9 * * *", timezone=wrong)  # type: ignore[call-overload]
