"""Where the emissions of one instance stand: what waits to be stored, and the numbers that it gets then.

Numbers are given when rows are written, by the owner of the instance, while no other write of its emissions is under
way. So they have no gaps, and an order that everybody sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast

from romancy.core.sequences import added
from romancy.errors import EmissionsFull
from romancy.storage.emissions import DATA, FIRST, OF_WORKFLOW, RESTART, EmissionRow, Standing, joined

K = TypeVar("K")
MAX_ROW = 64 * 1024
"""Bytes of values after which a row is full. A larger value has a row of its own."""
ROW_COST = 670
"""What a row counts in addition to its values: so a topic has at most 100,000 rows."""
MAX_SIZE = 64 * 1024 * 1024
"""What the rows of a topic may count."""
MAX_TOPICS = 100
"""Topics of one instance."""


NO_TOPIC = ""
"""The topic of a value that is none: an attempt has begun, and emits nothing."""


class Value(NamedTuple):
    """A value that waits to be stored. `author`: the attempt that emitted it; another one begins the operation anew."""

    op: str
    author: object
    topic: str
    raw: bytes


def drafts(instance: str, emitted: Iterable[tuple[str, bytes]], at: int) -> list[EmissionRow]:
    """Return rows for what the code of a workflow emits, without numbers. See `Head.number`."""
    return [
        EmissionRow(instance, 0, topic, 0, len(lines), DATA, OF_WORKFLOW, 1, at, 0, joined(lines))
        for topic, lines in _groups(emitted)
    ]


def _groups(values: Iterable[tuple[K, bytes]]) -> Iterator[tuple[K, list[bytes]]]:
    """Yield consecutive values with the same key together, as many as fit into a row."""
    lines: list[bytes] = []
    last, size = None, 0
    for key, raw in values:
        if lines and (key != last or size + len(raw) > MAX_ROW):
            yield cast("K", last), lines
            lines, size = [], 0
        lines.append(raw)
        last, size = key, size + len(raw) + 1
    if lines:
        yield cast("K", last), lines


class Head:
    """The emissions of one instance of this worker. `is_busy`: a write of them is under way."""

    __slots__ = (
        "_runs", "_standing", "_waiting", "authors", "buffer", "instance", "is_busy", "is_known", "is_stale",
        "problems", "queued", "size", "stored",
    )  # fmt: skip

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.is_busy = self.is_stale = False
        self.is_known = False
        """Whether it is known how much the instance has emitted."""
        self._standing = Standing()
        self.authors: dict[str, object] = {}
        """By operation: the attempt whose values were numbered last."""
        self._runs: dict[str, int] = {}
        """By operation: the number of the current run."""
        self.buffer: list[Value] = []
        self.size = 0
        """Bytes that are not stored yet."""
        self.queued = self.stored = 0
        """How many values were ever put into the buffer, and how many of these are stored or were given up."""
        self.problems: dict[object, Exception] = {}
        """By author: why values can't be stored."""
        self._waiting: Sequence[tuple[int, bool, Callable[[], None]]] = ()

    def __repr__(self) -> str:
        return f"<Head {self.instance!r} buffered={len(self.buffer)} busy={self.is_busy}>"

    @property
    def is_idle(self) -> bool:
        return not (self.is_busy or self.buffer or self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether there is something to store, or to find out."""
        return not self.is_busy and bool(self.buffer or self._waiting)

    def put(self, value: Value) -> None:
        self.buffer.append(value)
        self.size += len(value.raw)
        self.queued += 1

    def has_emitted(self, op: str) -> bool:
        """Return whether an operation is known to have emitted something, in any attempt."""
        return op in self.authors or op in self._standing.runs or any(value.op == op for value in self.buffer)

    def learn(self, standing: Standing) -> None:
        self._standing, self.is_known = standing, True

    def forget(self) -> None:
        """Give up what waits: the instance leaves this worker. A write that is under way goes on."""
        self.size -= sum(len(value.raw) for value in self.buffer)
        self.stored += len(self.buffer)
        self.buffer = []
        self.authors, self.problems = {}, {}
        self.is_known, self.is_stale = False, self.is_busy

    # --- waiting ----------------------------------------------------------------------------------------------------
    def wait(self, call: Callable[[], None], *, needs_numbers: bool = False) -> None:
        """Call something when all that is queued now is stored, or given up, and no write is under way."""
        self._waiting = added(self._waiting, (self.queued, needs_numbers, call))

    def due(self) -> Callable[[], None] | None:
        """Return what is to be called now, and remove it. It may begin a write."""
        if self.is_busy or not self._waiting:
            return None
        (target, needs_numbers, call), *rest = self._waiting
        if target > self.stored or (needs_numbers and not self.is_known):
            return None
        self._waiting = rest
        return call

    def land(self) -> int:
        """End a write. Returns how many bytes wait no longer."""
        before, self.size = self.size, sum(len(value.raw) for value in self.buffer)
        self.stored = self.queued - len(self.buffer)
        self.is_busy = False
        if self.is_stale:
            self.is_stale = self.is_known = False
        return before - self.size

    # --- limits -----------------------------------------------------------------------------------------------------
    def check(self, topic: str) -> EmissionsFull | None:
        """Return why nothing more can be emitted on a topic, if it is known that it can't."""
        known = self._standing.topics.get(topic)
        if known is None:
            if len(self._standing.topics) < MAX_TOPICS:
                return None
            what = f"instance {self.instance!r} has emitted on {MAX_TOPICS} topics, and can't use {topic!r} as well"
        elif known[1] < MAX_SIZE:
            return None
        else:
            what = (
                f"instance {self.instance!r} has emitted as much on topic {topic!r} as it may: {MAX_SIZE:,} bytes, or "
                "100,000 rows"
            )
        return EmissionsFull(f"{what}; keep large results elsewhere", instance_id=self.instance, topic=topic)

    # --- numbers ----------------------------------------------------------------------------------------------------
    def take(self, now: int) -> list[EmissionRow]:
        """Return rows, with their numbers, for everything in the buffer. Values over the limits are left out."""
        by_op: dict[str, list[tuple[tuple[object, str], bytes]]] = {}
        for op, author, topic, raw in self.buffer:  # each operation in its order; they run side by side
            by_op.setdefault(op, []).append(((author, topic), raw))
        self.buffer = []
        rows: list[EmissionRow] = []
        for op, values in by_op.items():
            for (author, topic), lines in _groups(values):
                if self.authors.get(op) is not author:
                    rows += self._begin(op, author, now)
                if topic == NO_TOPIC:
                    continue
                problem = self.check(topic)
                if problem is not None:
                    self.problems[author] = problem
                    continue
                run = self._runs[op]
                row = EmissionRow(self.instance, 0, topic, 0, len(lines), DATA, op, run, now, 0, joined(lines))
                self.number([row])
                rows.append(row)
        return rows

    def _begin(self, op: str, author: object, now: int) -> list[EmissionRow]:
        """Begin a run of an operation. If it is repeated, readers of its topics are told to drop what it emitted."""
        before = self._standing.runs.setdefault(op, {})
        run = self._runs[op] = max(before.values(), default=0) + 1
        self.authors[op] = author
        for topic in before:
            before[topic] = run
        restarts = [EmissionRow(self.instance, 0, topic, 0, 1, RESTART, op, run, now, 0, b"") for topic in before]
        self.number(restarts)
        return restarts

    def number(self, rows: Sequence[EmissionRow]) -> None:
        """Give the next numbers to rows."""
        for row in rows:
            runs = self._standing.runs.setdefault(row.op, {})
            if row.kind == DATA and row.topic not in runs:
                runs[row.topic] = row.run
                row.kind = FIRST
            n, size = self._standing.topics.get(row.topic, (0, 0))
            row.seq, row.n, row.size = self._standing.last + 1, n + 1, size + len(row.data) + ROW_COST
            self._standing.last += row.count
            self._standing.topics[row.topic] = n + row.count, row.size
