"""What is emitted, as it is stored: rows of values, where an instance stands, and reads for many readers at once.

This is the only place that writes and reads the column `data`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

DATA, RESTART, FIRST, REMOVED = 0, 1, 2, 3
"""Kinds of rows: values, the mark that an operation begins anew, the first values of an operation, and the last row of
a topic whose values were removed. A number is never used again."""
OF_WORKFLOW = ""
"""Used in place of an operation: the code of the workflow itself."""
Place = tuple[int, str]
"""A position in the order in which instances ended: the time, and the id."""
COLUMNS = ("instance", "seq", "topic", "n", "count", "kind", "op", "run", "at", "size", "data")


@dataclass(slots=True)
class EmissionRow:
    """Values that one operation emitted on one topic: `count` lines of JSON. `seq` and `n` number the first one."""

    instance: str
    seq: int
    """Among all values of the instance."""
    topic: str
    n: int
    """Among those of the topic."""
    count: int
    kind: int
    op: str
    run: int
    """How often the operation has begun to emit; above 1 it was repeated."""
    at: int
    size: int
    """What the topic holds, up to and including this row: see `engine/emission_head.py`."""
    data: bytes

    @property
    def values(self) -> tuple[Any, ...]:
        """The row as it is written."""
        return (
            self.instance, self.seq, self.topic, self.n, self.count, self.kind, self.op, self.run, self.at, self.size,
            self.data,
        )  # fmt: skip

    def lines(self) -> list[bytes]:
        """Return its values, each as JSON."""
        return self.data.split(b"\n")

    def first(self, topic: str | None) -> int:
        """Return the number of its first value, as a reader of one topic, or of all, counts."""
        return self.seq if topic is None else self.n

    def end(self, topic: str | None) -> int:
        """Return the number of its last value."""
        return self.first(topic) + self.count - 1


def joined(lines: Sequence[bytes]) -> bytes:
    """Return the column `data` for these values."""
    return b"\n".join(lines)


def to_row(values: Sequence[Any]) -> EmissionRow:
    """Return a row that was read."""
    return EmissionRow(*values)


@dataclass(slots=True)
class Standing:
    """How much an instance has emitted."""

    last: int = 0
    """The number of its last value."""
    topics: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """The number of the last value, and the size, of each topic."""
    runs: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """By operation: the topics that it has emitted on, and in which run it last did."""


def standings(instances: Collection[str], rows: Sequence[Sequence[Any]]) -> dict[str, Standing]:
    """Return where instances stand, from rows of (instance, topic, op, run, last of the topic, size, last)."""
    found = {id: Standing() for id in instances}
    for instance, topic, op, run, n, size, last in rows:
        standing = found[instance]
        standing.last = last
        standing.topics[topic] = n, size
        standing.runs.setdefault(op, {})[topic] = run
    return found


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reader wants: values after a number, of one topic or of all."""

    instance: str
    topic: str | None
    after: int


@dataclass(slots=True)
class Written:
    """The answer to a write. `is_fenced`: this worker was taken over. Only the rows of `mine` are stored."""

    is_fenced: bool
    mine: set[str]
    strange: set[str]
    """Instances that have other rows in place of these, which must never happen."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic of an instance, for people."""

    topic: str
    count: int
    last_at: int


class Emissions(Protocol):
    """The table of emissions."""

    async def write(self, worker: str, rows: Sequence[EmissionRow]) -> Written:
        """Store rows of instances that this worker owns and that have not ended, those of others not.

        Rows that are already there count as stored: an earlier submission did it. So after a lost connection the same
        rows are submitted again.
        """
        ...

    async def standings(self, instances: Collection[str]) -> dict[str, Standing]:
        """Return where these instances stand."""
        ...

    async def read(self, wanted: Sequence[Wanted], limit: int) -> list[list[EmissionRow]]:
        """Return the next rows for each reader, up to `limit` each, in order. The first may begin before `after`."""
        ...

    async def topics(self, instance: str) -> list[TopicRow]:
        """Return the topics of an instance, by name."""
        ...

    async def remove(self, ended_before: int, after: Place, limit: int) -> tuple[Place, bool]:
        """Remove what instances emitted that ended before a time, those after a position, a part at a time.

        Their numbers are kept, in case that they are retried. Returns where to go on, and whether there may be more.
        """
        ...

    def listen(self, heard: Callable[[], None] | None) -> None:
        """Call `heard` on the event loop when another process has stored some. None: nobody reads any more."""
        ...

    @property
    def is_heard(self) -> bool:
        """Whether `heard` is called. If not, readers have to look from time to time."""
        ...
