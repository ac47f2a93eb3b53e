"""The catalog: lists and pages for people. Each read is bounded, whatever the size of the database.

Lists follow an index, newest first, from a cursor. A search without a suitable index reads a limited number of rows and
reports how far it got. Values are cut where only their beginning is shown. Every backend gives the same answers,
because each runs statements with the same names.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from romancy.core.failure import Failure
from romancy.core.history import Entry
from romancy.core.model import Status
from romancy.core.patterns import patterns_of
from romancy.core.versions import SIGN, bare_name, split_name, stored_name
from romancy.storage.batch import STATUS_CODES, STATUS_NAMES, UNKNOWN
from romancy.storage.event_catalog import EventCatalog as EventCatalog
from romancy.storage.event_catalog import EventSearch as EventSearch
from romancy.storage.event_catalog import ShownEvent as ShownEvent
from romancy.storage.inbox_items import InboxRow
from romancy.storage.instances import InstanceRow
from romancy.storage.records import ShownAttempt, StoredWait, WorkerRow
from romancy.storage.rows import to_instance

WHOLE = 64 * 1024
"""The size in bytes up to which a value is read completely."""
BEGINNING = 4 * 1024
"""The number of bytes that are read of a longer value."""

_WITH_ERROR: tuple[Status, ...] = ("failed", "cancelled", "blocked", "compensating")
"""The statuses of instances that can have an error."""
MOST_QUEUES = 1_000
MOST_IN_QUEUE = 100_000
"""Up to this many instances of a queue are counted."""
FEW = 1_000
"""Up to this many instances are counted for each attribute and status, to find what the fewest have."""
_FIRST, _LAST = -(2**63), 2**63 - 1
"""Bounds that lie before and after all times and numbers."""

Position = tuple[int, str]
"""(created_at, id): the position of an instance in the lists."""
WaitPosition = tuple[int, str, str, str, str]
"""(shape, key and likeness in hex, instance, op): the position of a wait among those for its type."""


def place_after(position: WaitPosition | None) -> tuple[int, bytes, bool, str, bytes, str]:
    """Return (shape, key, follows, instance, alike, op) of a position; for None, a place before the first wait."""
    shape, key, alike, instance, op = position or (-1, "", "", "", "")
    return shape, bytes.fromhex(key), alike != "", instance, bytes.fromhex(alike), op


@dataclass(slots=True)
class Summary:
    """An instance as lists show it: without its input. An error longer than `WHOLE` is left out."""

    id: str
    workflow: str
    status: Status
    error: bytes | None
    description: str | None
    created_at: int
    finished_at: int | None
    output: bytes | None = None
    """The beginning of it."""


@dataclass(slots=True, frozen=True)
class Search:
    """The criteria of a search for instances."""

    status: Sequence[Status] = ()
    workflow: str | None = None
    text: str | None = None
    started_after: int | None = None
    started_before: int | None = None
    above: Position | None = None
    """Only instances newer than this one."""
    error_type: str | None = None
    parent: str | None = None
    queue: str | None = None
    key: str | None = None
    """The key in the queue."""
    where: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """Attributes with their values as JSON; None: it has no such attribute."""
    driver: str | None = None
    """The attribute whose index is read; the others are checked row by row."""

    @property
    def is_indexed(self) -> bool:
        """Whether the indexes answer it; otherwise rows must be checked one by one."""
        others = self.workflow is None and not self.text and self.error_type is None and self.parent is None
        others = others and self.queue is None and self.key is None
        return others and not self.where

    @property
    def ranges(self) -> tuple[Status | None, ...]:
        """The statuses to search, each a range of an index; (None,) if there is one range for all.

        Only some statuses have an error, so a search for an error reads no others: most instances have completed.
        """
        if self.error_type is None:
            return tuple(dict.fromkeys(self.status)) or (None,)
        return tuple(status for status in _WITH_ERROR if not self.status or status in self.status)

    def statement(self, name: str, status: Status | None) -> str:
        """Return the name of the statement that reads one range by the best index."""
        if self.parent is not None:
            return f"{name}_of_parent"
        if self.driver is not None:
            return f"{name}_of_attribute"
        return name if status is None else f"{name}_of_status"

    def given(self, status: Status | None, cursor: Position | None) -> dict[str, Any]:
        """Return the parameters of its statements: the tightest bounds, and what rows must match."""
        low, high = (_FIRST, ""), (_LAST, "") if cursor is None else cursor
        if self.started_after is not None:
            low = (self.started_after + 1, "")
        if self.above is not None:
            low = max(low, (self.above[0], self.above[1] + "\1"))  # just after it: ids are printable
        if self.started_before is not None:
            high = min(high, (self.started_before + 1, ""))
        text = self.text.encode("utf-8", "surrogatepass").lower() if self.text else None
        bounds = dict(zip(("low_at", "low_id", "high_at", "high_id"), (*low, *high), strict=True))
        code = None if status is None else STATUS_CODES[status]
        error = None if self.error_type is None else Failure.beginning(self.error_type)
        others = {"parent": self.parent, "error": error, "text": text, "queue": self.queue, "queue_key": self.key}
        return {**bounds, "status": code, **_workflow(self.workflow), **others, **self._attributes()}

    def _attributes(self) -> dict[str, Any]:
        present = {name: value for name, value in self.where.items() if value is not None}
        absent = [name for name in self.where if name not in present]
        driver = {} if self.driver is None else {"name": self.driver, "value": present.pop(self.driver)}
        pairs = [f"{name}={value}" for name, value in present.items()]
        return {**driver, "pairs": pairs or None, "wanted": len(pairs), "absent": absent or None}


def _workflow(name: str | None) -> dict[str, str | None]:
    """A bare name means every version, `payment@2` only that one."""
    if name is None or bare_name(name) != name:
        return {"workflow": None if name is None else stored_name(*split_name(name)), "versions": None}
    return {"workflow": name, "versions": f"{name}{SIGN}"}


_ANY = Search()


@dataclass(slots=True)
class Found:
    """The result of a search. `reached`: how far it got, if it did not reach the end."""

    rows: list[Summary]
    reached: Position | None = None


def merged(found: Sequence[Found], limit: int) -> Found:
    """Merge searches, newest first: the index is ordered only within one status, so each is searched separately."""
    reached = max((each.reached for each in found if each.reached is not None), default=None)
    rows = sorted((row for each in found for row in each.rows), key=lambda row: (row.created_at, row.id), reverse=True)
    sure = [row for row in rows if reached is None or (row.created_at, row.id) >= reached]
    return Found(sure[:limit], reached if len(sure) < limit else None)


@dataclass(slots=True)
class Shown:
    """What an instance shows of itself. The values of attributes are JSON."""

    view: bytes | None = None
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class Whole:
    """An instance, with the full sizes of values that may have been cut."""

    row: InstanceRow
    input_size: int
    output_size: int
    length: int
    """The number of its last entry, counted over all runs."""


@dataclass(slots=True)
class ShownEntry:
    """A history entry, with the full sizes of values that may have been cut."""

    entry: Entry
    input_size: int
    payload_size: int

    @property
    def is_whole(self) -> bool:
        return self.input_size <= WHOLE and self.payload_size <= WHOLE


@dataclass(slots=True)
class Rates:
    """How much happened since a given time; each count is limited to the cap."""

    started: int
    finished: int
    accepted: int


class Catalog(EventCatalog):
    """Reads for people from one database."""

    @property
    def exact(self) -> Catalog:
        """The same, but a value that can't be opened is an error."""
        return self

    async def counts(self, cap: int) -> dict[Status, int]:
        """Return the number of instances by status, each counted up to `cap`."""
        found = dict(map(tuple, await self._ask("count_statuses", codes=list(STATUS_CODES.values()), cap=cap)))
        return {name: found[code] for name, code in STATUS_CODES.items()}

    async def rates(self, since: int, cap: int) -> Rates:
        """Return how much was started, finished and accepted since a time, each counted up to `cap`."""
        [row] = await self._ask("rates", since=since, cap=cap)
        return Rates(*row)

    # --- instances --------------------------------------------------------------------------------------------------
    async def instances(
        self, search: Search = _ANY, limit: int = 50, cursor: Position | None = None
    ) -> list[InstanceRow]:
        """Return complete instances, newest first, after a cursor."""
        found: list[InstanceRow] = []
        search = await self._driven(search)
        for status in search.ranges:
            rows = await self._ask(search.statement("instances", status), limit=limit, **search.given(status, cursor))
            found += map(to_instance, rows)
        return sorted(found, key=lambda row: (row.created_at, row.id), reverse=True)[:limit]

    async def search(self, search: Search, limit: int, cursor: Position | None, scan: int) -> Found:
        """Search for instances, newest first. Without an index, read at most `scan` instances of each status."""
        search = await self._driven(search)
        each = [await self._search(search, status, limit, cursor, scan) for status in search.ranges]
        return merged(each, limit)

    async def _driven(self, search: Search) -> Search:
        """Choose the attribute whose index is read: the one that the fewest instances have.

        If many instances have it, and few have the status, the index of the status is read.
        """
        present = [(name, value) for name, value in search.where.items() if value is not None]
        codes = [STATUS_CODES[status] for status in search.ranges if status is not None]
        if not present or search.parent is not None:
            return search
        if len(present) == 1 and not codes:
            return replace(search, driver=present[0][0])
        counts = [await self._few(name, value) for name, value in present]
        if codes and min(counts) == FEW and await self._are_rare(codes):
            return search
        return replace(search, driver=present[counts.index(min(counts))][0])

    async def _are_rare(self, codes: list[int]) -> bool:
        """Whether few instances have one of these statuses."""
        return sum([n for _, n in await self._ask("count_statuses", codes=codes, cap=FEW)]) < FEW

    async def _few(self, name: str, value: str) -> int:
        """Count the instances that have an attribute, up to a limit."""
        [(count,)] = await self._ask("count_attribute", name=name, value=value, cap=FEW)
        return count

    async def _search(
        self, search: Search, status: Status | None, limit: int, cursor: Position | None, scan: int
    ) -> Found:
        given = search.given(status, cursor)
        reached: Position | None = None
        if not search.is_indexed:
            for at, id in await self._ask(search.statement("search_bound", status), skip=scan - 1, **given):
                reached = given["low_at"], given["low_id"] = at, id
        rows = [_summary(*row) for row in await self._ask(search.statement("search", status), limit=limit, **given)]
        return Found(rows, reached if len(rows) < limit else None)

    async def count(self, search: Search, scan: int) -> int:
        """Return the number of matching instances. No statement reads more than `scan` of them."""
        search = await self._driven(search)
        return sum([await self._count(search, status, scan) for status in search.ranges])

    async def _count(self, search: Search, status: Status | None, scan: int) -> int:
        given = search.given(status, None)
        low, n, is_last = {name: given[name] for name in ("low_at", "low_id")}, 0, False
        while not is_last:
            is_last = True
            for at, id in await self._ask(search.statement("search_bound", status), skip=scan - 1, **given):
                given |= {"low_at": at, "low_id": id}
                is_last = False
            [(counted,)] = await self._ask(search.statement("count", status), limit=scan, **given)
            n += counted
            given |= {"high_at": given["low_at"], "high_id": given["low_id"], **low}
        return n

    async def summaries(self, ids: Collection[str]) -> list[Summary]:
        """Return those of these instances that exist, without input and output."""
        return [_summary(*row) for row in await self._ask("summaries", listed=list(ids))]

    async def instance(self, id: str) -> InstanceRow | None:
        """Return one instance, without its waits and history."""
        return next(map(to_instance, await self._ask("instance", id=id)), None)

    async def shown(self, ids: Collection[str]) -> dict[str, Shown]:
        """Return what these instances show of themselves; those that show nothing are left out."""
        found: dict[str, Shown] = {}
        for id, view, headers in await self._ask("views", listed=list(ids)):
            found[id] = Shown(view, headers={} if headers is None else json.loads(headers))
        for id, attributes in (await self.attributes(ids)).items():
            found.setdefault(id, Shown()).attributes = attributes
        return found

    async def attributes(self, ids: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the attributes of these instances, with their values as JSON."""
        found: dict[str, dict[str, str]] = {}
        for id, name, value in await self._ask("attributes", listed=list(ids)):
            found.setdefault(id, {})[name] = value
        return found

    async def view(self, id: str) -> tuple[bytes | None] | None:
        """Return the view of one instance; None if there is no such instance."""
        return next(((view,) for (view,) in await self._ask("view", id=id)), None)

    async def whole(self, instance: str) -> Whole | None:
        """Return one instance; values longer than `WHOLE` are cut to their beginning."""
        rows = await self._ask("whole", id=instance)
        return Whole(to_instance(rows[0][:-3]), *rows[0][-3:]) if rows else None

    async def history(self, instance: str) -> list[Entry]:
        """Return all entries of an instance, in order."""
        return [Entry(*row) for row in await self._ask("history", instance=instance)]

    async def sequences(self, ids: Collection[str]) -> dict[str, list[tuple[int, str]]]:
        """Return (kind, op) of all entries of these instances, in order, without failed attempts."""
        found: dict[str, list[tuple[int, str]]] = {}
        for instance, kind, op in await self._ask("sequences", listed=list(ids)):
            found.setdefault(instance, []).append((kind, op))
        return found

    async def undone(self, ids: Collection[str]) -> set[str]:
        """Return those of these instances that have undone steps in their current run. They can't be retried."""
        return {id for (id,) in await self._ask("undone_instances", listed=list(ids))}

    async def started_children(self, parent: str) -> dict[str, str]:
        """Return the ids of the children of an instance, by the operations that started them."""
        return dict(await self._ask("started_children_of_parent", parent=parent))

    async def parents_of_unsuccessful(self, ids: Collection[str]) -> list[str]:
        """Return those of these instances that have children that have not completed."""
        return [id for (id,) in await self._ask("parents_of_unsuccessful", listed=list(ids))]

    async def entries(self, instance: str, after: int, limit: int) -> list[ShownEntry]:
        """Return entries with numbers above `after`, in order; long values are cut to their beginning."""
        rows = await self._ask("shown_entries", instance=instance, after=after, limit=limit)
        return [ShownEntry(Entry(*row[:-2]), *row[-2:]) for row in rows]

    async def retries(self, instance: str, after: int) -> list[tuple[int, int, bytes | None]]:
        """Return (number, time, input) of the marks of retries with numbers above `after`; long inputs are cut."""
        return [tuple(row) for row in await self._ask("retries", instance=instance, after=after)]

    async def attempts(self, instance: str, limit: int) -> list[ShownAttempt]:
        """Return the activities of an instance that failed, reported progress, or outlived a worker."""
        return [ShownAttempt(*row) for row in await self._ask("shown_attempts", instance=instance, limit=limit)]

    async def worker(self, worker: str) -> WorkerRow | None:
        """Return one worker; None if it was released or taken over."""
        rows = await self._ask("worker", worker=worker)
        return WorkerRow(*rows[0]) if rows else None

    async def live_workers(self, now: int, limit: int) -> list[tuple[str, str | None]]:
        """Return (id, about) of workers whose lease has not ended. The processes of some may be gone."""
        return [(id, about) for id, about in await self._ask("live_workers", now=now, limit=limit)]

    async def misfits(self, instance: str) -> list[tuple[int, str, str]]:
        """Return (event, wait, problem) of each event whose data did not fit a wait of the instance."""
        return [tuple(row) for row in await self._ask("misfits", instance=instance)]

    async def queues(
        self, known: Collection[str], after: str = "", limit: int = MOST_QUEUES
    ) -> list[tuple[str, int, int, int | None]]:
        """Return (name, running, waiting, start of the oldest that waits) of stored and known queues, by name."""
        stored = await self._ask("queue_names", after=after, limit=limit)
        names = sorted({*(name for name in known if name > after), *(name for (name,) in stored)})[:limit]
        return [tuple(row) for row in await self._ask("queue_counts", listed=names, cap=MOST_IN_QUEUE)]

    async def ahead(self, row: InstanceRow) -> int:
        """Return how many instances with the key of a queued one come before it, counted up to a limit."""
        given = {"queue": row.queue, "key": row.queue_key, "priority": row.priority, "cap": MOST_IN_QUEUE}
        [(n,)] = await self._ask("count_ahead", at=row.created_at, id=row.id, **given)
        return n

    # --- waits ------------------------------------------------------------------------------------------------------
    async def waits(
        self, *, instance: str | None = None, type: str | None = None, limit: int = 50, cursor: Any = None
    ) -> list[StoredWait]:
        """Return open waits, timers and retries, by instance and operation, after a cursor `(instance, op)`."""
        name = "waits" if instance is None else "waits_of_instance"
        after_instance, after_op = cursor or ("", "")
        given = {"instance": instance, "type": type, "after_instance": after_instance, "after_op": after_op}
        return [StoredWait(*row) for row in await self._ask(name, limit=limit, **given)]

    async def all_waits(
        self, instance: str, limit: int, after: Position | tuple[str, str] | None = None
    ) -> list[StoredWait]:
        """Return the waits of one instance, as `waits` does, then those for its unfinished children, oldest first.

        `after`: the `position` of a wait.
        """
        at, id = (_FIRST, "") if after is None or isinstance(after[0], str) else after
        found = [] if at != _FIRST else await self.waits(instance=instance, limit=limit, cursor=after)
        if len(found) < limit:
            given = {"instance": instance, "limit": limit - len(found), "after_at": at, "after_id": id}
            found += [StoredWait(*row) for row in await self._ask("waits_for_children", **given)]
        return found

    async def waits_of(self, ids: Collection[str], each: int) -> list[StoredWait]:
        """Return up to `each` waits and retries of each of these instances."""
        return [StoredWait(*row) for row in await self._ask("few_waits", listed=list(ids), each=each)]

    async def types_of_waits(self, ids: Collection[str]) -> dict[tuple[str, str], list[str]]:
        """Return the event types that these instances wait for, by instance and operation."""
        found: dict[tuple[str, str], list[str]] = {}
        for instance, op, type in await self._ask("types_of_waits", listed=list(ids)):
            found.setdefault((instance, op), []).append(type)
        return found

    async def wait_types(self, after: str, limit: int, cap: int) -> list[tuple[str, int]]:
        """Return the event types that have waits, in order, with the number of waits, counted up to `cap`."""
        return [(type, n) for type, n in await self._ask("wait_types", after=after, limit=limit, cap=cap)]

    async def waits_for(
        self, type: str, limit: int, after: WaitPosition | None
    ) -> list[tuple[WaitPosition, StoredWait]]:
        """Return waits for an event type, in index order, each with its position."""
        place = dict(zip(("shape", "key", "follows", "instance", "alike", "op"), place_after(after), strict=True))
        rows = await self._ask("waits_for_type", type=type, limit=limit, **place)
        return [((row[0], row[1].hex(), row[2].hex(), row[3], row[5]), StoredWait(*row[3:])) for row in rows]

    async def coming(self, after: int, before: int, limit: int) -> list[StoredWait]:
        """Return sleeps, timeouts and retries in the order in which they fall due."""
        return [StoredWait(*row) for row in await self._ask("coming", after=after, before=before, limit=limit)]

    # --- inbox and types --------------------------------------------------------------------------------------------
    async def inbox(self, after: int, limit: int) -> list[InboxRow]:
        """Return what is in the inbox after a number, oldest first: what is to be moved, and what was refused."""
        return [InboxRow(*row) for row in await self._ask("inbox_list", after=after, limit=limit)]

    async def inbox_counts(self, cap: int) -> tuple[int, int]:
        """Return how much in the inbox is to be moved, and how much was refused, each counted up to `cap`."""
        [(waiting, refused)] = await self._ask("inbox_counts", cap=cap)
        return waiting, refused

    async def cuts(self, types: Collection[str]) -> dict[str, int]:
        """Return up to when events of these types were removed although open instances might have taken them."""
        return dict(map(tuple, await self._ask("cuts_of_types", listed=list(types))))

    async def triggers(self, types: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return the workflows that events of these types start."""
        listed = sorted({pattern for type in types for pattern in patterns_of(type)})
        stored = [tuple(row) for row in await self._ask("triggers_of_types", listed=listed)]
        return {type: sorted({wf for pattern, wf in stored if pattern in patterns_of(type)}) for type in types}


def _summary(id: str, workflow: str, status: int, *rest: Any) -> Summary:
    return Summary(id, workflow, STATUS_NAMES.get(status, UNKNOWN), *rest)
