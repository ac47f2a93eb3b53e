"""What people look at: the viewer's reads. Each is bounded, whatever the database holds.

Lists go by an index, newest first, from a cursor. A search that no index answers looks at so many rows and says how far
it got; values are cut short where only their beginning is shown. The same answers from every backend.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from romancy.core.history import Entry
from romancy.core.model import Event, Status
from romancy.storage.records import InstanceRow, StoredWait

WHOLE = 64 * 1024
"""Bytes up to which a value is read whole."""
BEGINNING = 4 * 1024
"""Bytes that are read of a longer one."""

Position = tuple[int, str]
"""(created_at, id): where an instance stands in the lists."""
WaitPosition = tuple[int, str, str, str, str]
"""(shape, key and likeness in hex, instance, op): where a wait stands among those for its type."""


def place_after(position: WaitPosition | None) -> tuple[int, bytes, bool, str, bytes, str]:
    """(shape, key, follows, instance, alike, op) of a position; before the first wait for None."""
    shape, key, alike, instance, op = position or (-1, "", "", "", "")
    return shape, bytes.fromhex(key), alike != "", instance, bytes.fromhex(alike), op


@dataclass(slots=True)
class Summary:
    """An instance as lists show it: without its input and output. An error longer than `WHOLE` is left out."""

    id: str
    workflow: str
    status: Status
    error: bytes | None
    description: str | None
    created_at: int
    finished_at: int | None


@dataclass(slots=True, frozen=True)
class Search:
    """Which instances are wanted."""

    status: Sequence[Status] = ()
    workflow: str | None = None
    text: str | None = None
    started_after: int | None = None
    started_before: int | None = None
    above: Position | None = None
    """Only newer ones than this one."""

    @property
    def is_indexed(self) -> bool:
        """The indexes answer it; else rows have to be looked at one by one."""
        return self.workflow is None and not self.text


@dataclass(slots=True)
class Found:
    """What a search found. `reached`: how far it got, where it did not get to the end."""

    rows: list[Summary]
    reached: Position | None = None


def merged(found: Sequence[Found], limit: int) -> Found:
    """The newest of several searches: an index is in order within one status only, so each is searched by itself."""
    reached = max((each.reached for each in found if each.reached is not None), default=None)
    rows = sorted((row for each in found for row in each.rows), key=lambda row: (row.created_at, row.id), reverse=True)
    sure = [row for row in rows if reached is None or (row.created_at, row.id) >= reached]
    return Found(sure[:limit], reached if len(sure) < limit else None)


@dataclass(slots=True)
class Whole:
    """An instance with the sizes of what may have been cut short."""

    row: InstanceRow
    input_size: int
    output_size: int
    length: int
    """Entries of its history."""


@dataclass(slots=True)
class ShownEntry:
    """A history entry with the sizes of what may have been cut short."""

    entry: Entry
    input_size: int
    payload_size: int

    @property
    def is_whole(self) -> bool:
        return self.input_size <= WHOLE and self.payload_size <= WHOLE


@dataclass(slots=True)
class ShownEvent:
    """An event with the size of its data, which may have been cut short, and the instances that took it."""

    event: Event
    size: int
    receivers: list[tuple[str, str]]
    differed_at: int | None = None
    """When another event with its source and id was first dropped."""


@dataclass(slots=True)
class Rates:
    """How much happened since some time; each at most the cap."""

    started: int
    finished: int
    accepted: int


class Catalog(Protocol):
    """One database, as people look at it."""

    async def counts(self, cap: int) -> dict[Status, int]:
        """Instances by status, each counted up to `cap`."""
        ...

    async def search(self, search: Search, limit: int, cursor: Position | None, scan: int) -> Found:
        """Newest first. Where no index helps, at most `scan` instances (of each status) are looked at."""
        ...

    async def summaries(self, ids: Collection[str]) -> list[Summary]:
        """Those of these instances that exist, without input and output."""
        ...

    async def waits_of(self, ids: Collection[str], each: int) -> list[StoredWait]:
        """A few waits and retries of each of these instances."""
        ...

    async def whole(self, instance: str) -> Whole | None:
        """One instance; values longer than `WHOLE` are cut to their beginning."""
        ...

    async def entries(self, instance: str, after: int, limit: int) -> list[ShownEntry]:
        """Entries of a history from number `after` on, in order; long values are cut to their beginning."""
        ...

    async def wait_types(self, after: str, limit: int, cap: int) -> list[tuple[str, int]]:
        """Types that are waited for, in order, and how many waits each has, counted up to `cap`."""
        ...

    async def waits_for(
        self, type: str, limit: int, after: WaitPosition | None
    ) -> list[tuple[WaitPosition, StoredWait]]:
        """Waits for a type of event, in the order of their index, each with its position."""
        ...

    async def coming(self, after: int, before: int, limit: int) -> list[StoredWait]:
        """Sleeps, timeouts and retries by when they fall due."""
        ...

    async def events(
        self, *, type: str | None, instance: str | None, unmatched: bool, limit: int, before: int | None, scan: int
    ) -> tuple[list[ShownEvent], int | None]:
        """Newest first; and how far it got, where it looked at `scan` events without getting to the end."""
        ...

    async def event(self, source: str, id: str) -> ShownEvent | None:
        """One event with the instances that took it."""
        ...

    async def triggers(self, types: Collection[str]) -> Mapping[str, Sequence[str]]:
        """The workflows that events of these types start."""
        ...

    async def rates(self, since: int, cap: int) -> Rates:
        """What was started, finished and accepted since a time, each counted up to `cap`."""
        ...
