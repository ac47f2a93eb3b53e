"""The page that shows schedules: in words, with the next times, and what became of the last ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from romancy.core.model import from_us
from romancy.core.schedules import next_ticks, options_in_words
from romancy.http.responses import Response
from romancy.http.routes import Request
from romancy.records import ScheduleRecord, to_schedule_record
from romancy.storage.schedules import ScheduleRow
from romancy.viewer.catalog import Catalog
from romancy.viewer.html import page

SHOWN = 10
"""How many of the next ticks are shown."""


@dataclass(frozen=True, slots=True)
class Line:
    """A schedule as the page shows it."""

    record: ScheduleRecord
    words: str
    ticks: list[datetime]
    """The next ticks, in its own time zone."""
    options: str


async def schedules(request: Request) -> Response:
    """All schedules, with their next ten times."""
    catalog = Catalog(request.app)
    rows = await request.runtime.engine.storage.schedules.all()
    return page(request, "schedules.html", lines=[_line(row) for row in rows], now=catalog.now)


def _line(row: ScheduleRow) -> Line:
    schedule = row.order.schedule
    zone, ticks = _zone(schedule.timezone), list[datetime]()
    if zone is not None and not row.paused:
        ticks = [from_us(tick).astimezone(zone) for tick in next_ticks(row.course, row.next_at, SHOWN)]
    record = to_schedule_record(row)
    return Line(record, str(schedule.times), ticks, options_in_words(record.overlap, record.catch_up, record.spread))


def _zone(name: str) -> tzinfo | None:
    """None: this machine does not know it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
