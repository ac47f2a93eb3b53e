"""`romancy replay --all`: replay every unfinished instance with the current code, and sum up what that shows.

Instances are read page by page. Those that have the same entries would mostly replay alike, so only some of them are
replayed. What the others do is inferred from these.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from romancy.cli.differences import difference, instance_of
from romancy.core.inputs import UNBOUND, read_input
from romancy.core.model import FINAL, Status
from romancy.core.operations import EventWait
from romancy.core.registry import WorkflowDefinition
from romancy.core.replay import Replay, replay
from romancy.core.versions import bare_name, split_name
from romancy.storage.batch import STATUS_CODES
from romancy.storage.catalog import Catalog, Position, Search, Summary
from romancy.storage.protocol import Storage
from romancy.storage.records import Snapshot

SAMPLE = 20
"""How many instances with the same entries are replayed."""
_PAGE, _SCAN = 200, 50_000
_UNFINISHED: list[Status] = [status for status in STATUS_CODES if status not in FINAL]
_VALUES = re.compile(r"[({\[].*", re.DOTALL)
"""The arguments in a description of an entry: they differ from instance to instance."""

Told = Callable[[int], None]


@dataclass
class Difference:
    """Instances that leave their history in the same way. Both sides are those of the first one."""

    workflow: str
    example: str
    recorded: str
    asked: str
    count: int = 0


@dataclass
class ChangedWait:
    """Instances of a workflow that are stored as waiting for other events than the code asks for."""

    workflow: str
    example: str
    wait: str
    count: int = 0


@dataclass
class _Alike:
    """Unfinished instances of one workflow with the same entries."""

    count: int = 0
    replayed: int = 0
    old_ways: Counter[str] = field(default_factory=Counter[str])


@dataclass
class OldWay:
    """How many unfinished instances take the old way of a change. `is_exact`: not an estimate."""

    count: int = 0
    is_exact: bool = True


@dataclass
class Survey:
    """The sum of all replays."""

    code: Mapping[str, WorkflowDefinition]
    """The workflows of the current code, by stored name."""
    is_complete: bool = False
    """Replay every instance, however alike they are."""
    replayed: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    """The unfinished instances of each workflow, by stored name."""
    _differences: dict[tuple[str, str, str], Difference] = field(default_factory=dict[tuple[str, str, str], Difference])
    _alike: dict[bytes, _Alike] = field(default_factory=dict[bytes, _Alike])
    _changes: set[str] = field(default_factory=set[str])
    _waits: dict[tuple[str, str], ChangedWait] = field(default_factory=dict[tuple[str, str], ChangedWait])

    @property
    def differences(self) -> Sequence[Difference]:
        return sorted(self._differences.values(), key=lambda found: (found.workflow, -found.count))

    @property
    def changed_waits(self) -> Sequence[ChangedWait]:
        """Waits that take effect in the new way only when their instances are next loaded."""
        return sorted(self._waits.values(), key=lambda found: (found.workflow, found.wait))

    @property
    def missing(self) -> Mapping[str, int]:
        """The workflows that the current code lacks, with the number of their unfinished instances."""
        return {name: count for name, count in sorted(self.counts.items()) if name not in self.code}

    @property
    def removed(self) -> Mapping[str, int]:
        """Those of the `missing` of which the code has other versions: no other app can have them."""
        known = {bare_name(name) for name in self.code}
        return {name: count for name, count in self.missing.items() if bare_name(name) in known}

    @property
    def old_ways(self) -> Mapping[str, OldWay]:
        """How many instances take the old way of each change that the code asks about."""
        found = {change: OldWay() for change in sorted(self._changes)}
        for alike in self._alike.values():
            for change, count in alike.old_ways.items():
                found[change].count += round(count * alike.count / alike.replayed)
                found[change].is_exact &= alike.replayed in (count, alike.count)
        return found

    @property
    def unused(self) -> Sequence[str]:
        """Versions that no unfinished instance uses, by stored name. The highest one is what new instances run."""
        highest = {bare_name(name): 0 for name in self.code}
        for name in self.code:
            highest[bare_name(name)] = max(highest[bare_name(name)], split_name(name)[1])
        return [n for n in self.code if not self.counts[n] and split_name(n)[1] < highest[bare_name(n)]]

    async def run(self, storage: Storage, workflow: str | None, told: Told) -> None:
        """Replay the unfinished instances, of one workflow or of all. `told` is called with the size of each page."""
        async for page in _pages(storage.catalog, workflow):
            known = [row for row in page if row.workflow in self.code]
            self.counts.update(row.workflow for row in page)
            sequences = await storage.catalog.sequences([row.id for row in known]) if known else {}
            for row in known:
                alike = self._alike.setdefault(_key(row.workflow, sequences.get(row.id, ())), _Alike())
                alike.count += 1
                if self.is_complete or alike.replayed < SAMPLE:
                    self._add(await storage.load(row.id), alike)
            told(len(page))

    def _add(self, snapshot: Snapshot | None, alike: _Alike) -> None:
        if snapshot is None or snapshot.row.status in FINAL:  # it has ended meanwhile
            alike.count -= 1
            return
        if snapshot.problem is not None:
            raise snapshot.problem
        alike.replayed += 1
        self.replayed += 1
        found = _replayed(self.code[snapshot.row.workflow], snapshot)
        self._changes.update(found.patches)
        alike.old_ways.update(change for change, is_new in found.patches.items() if not is_new)
        try:
            sides = difference(found, snapshot.row)
        except Exception as error:  # such as a recorded value that the code can no longer read
            sides = f"{len(snapshot.fed)} entries", f"{type(error).__name__}: {error}"
        if sides is not None:
            self._differ(snapshot, *sides)
        else:
            self._compare_waits(snapshot, found)

    def _compare_waits(self, snapshot: Snapshot, found: Replay) -> None:
        """Note waits that other code has stored. Until the instance is loaded, only events that fit those wake it."""
        row = snapshot.row
        for op in found.waiting:
            stored = snapshot.sought.get(op.id) if isinstance(op, EventWait) else None
            if isinstance(op, EventWait) and stored is not None and not op.is_sought_by(stored):
                changed = self._waits.setdefault((row.workflow, op.id), ChangedWait(row.workflow, row.id, op.id))
                changed.count += 1

    def _differ(self, snapshot: Snapshot, recorded: str, asked: str) -> None:
        row = snapshot.row
        key = row.workflow, _VALUES.sub("", recorded), _VALUES.sub("", asked)
        found = self._differences.setdefault(key, Difference(row.workflow, row.id, recorded, asked))
        found.count += 1


async def _pages(catalog: Catalog, workflow: str | None) -> AsyncIterator[Sequence[Summary]]:
    for status in _UNFINISHED:
        search = Search([status], workflow)
        cursor: Position | None = None
        while True:
            found = await catalog.search(search, _PAGE, cursor, _SCAN)
            if found.rows:
                yield found.rows
            cursor = found.reached
            if len(found.rows) == _PAGE:
                cursor = found.rows[-1].created_at, found.rows[-1].id
            if cursor is None:
                break


def _key(workflow: str, sequence: Sequence[tuple[int, str]]) -> bytes:
    """Return a short key of the entries of an instance, of which there can be very many."""
    return hashlib.blake2b(repr((workflow, sequence)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _replayed(definition: WorkflowDefinition, snapshot: Snapshot) -> Replay:
    if snapshot.fed or snapshot.waits:
        return replay(instance_of(definition, snapshot.row), snapshot.fed, observe=False)
    found = Replay()  # its code has not run yet, so that it can't differ; but it must take its input
    if snapshot.row.input_kind != UNBOUND:
        try:
            read_input(definition, snapshot.row.input_kind, snapshot.row.input)
        except Exception as error:
            found.error = error
    return found
