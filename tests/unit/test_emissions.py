"""The writer of emissions: one write of an instance at a time, so that numbers have no gaps."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from romancy.engine.emission_head import Head, Value, drafts
from romancy.engine.emissions import Emissions
from romancy.engine.items import Done
from romancy.engine.metrics import Metrics
from romancy.engine.outage import Outage
from romancy.errors import EmissionsFull
from romancy.storage.batch import Commit
from romancy.storage.emissions import FIRST, RESTART, EmissionRow, Standing, Written
from romancy.storage.errors import RefusedValue, TransientError
from romancy.testing import ManualClock


class Database:
    """A table whose writes end when told. It checks that numbers have no gaps."""

    def __init__(self) -> None:
        self.rows: list[EmissionRow] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.writes: list[list[EmissionRow]] = []
        self.errors: list[Exception] = []
        self.is_fenced = False
        self.mine = True

    @property
    def emissions(self) -> Database:
        return self

    async def standings(self, instances: Collection[str]) -> dict[str, Standing]:
        found = {id: Standing() for id in instances}
        for row in self.rows:
            standing = found[row.instance]
            standing.last = row.end(None)
            standing.topics[row.topic] = row.n + row.count - 1, row.size
            standing.runs.setdefault(row.op, {})[row.topic] = row.run
        return found

    async def write(self, worker: str, rows: Sequence[EmissionRow]) -> Written:
        self.writes.append(list(rows))
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        if self.is_fenced:
            return Written(True, set(), set())
        if self.mine:
            self.store(rows)
        return Written(False, {row.instance for row in rows} if self.mine else set(), set())

    def store(self, rows: Sequence[EmissionRow]) -> None:
        for row in rows:
            last = max((known.end(None) for known in self.rows if known.instance == row.instance), default=0)
            assert row.seq == last + 1, "a gap, or a number that was given twice"
            self.rows.append(row)


class Case:
    def __init__(self) -> None:
        self.database: Any = Database()
        self.lease = Mock(worker="me")
        self.readers: Any = Mock()
        args = self.database, ManualClock(0), self.lease, Outage(), Metrics(), self.readers
        self.emissions = Emissions(*args)
        self.emissions.pause = 0.0
        self.committed: list[tuple[Commit, Done]] = []
        self.answers: list[bool] = []

    def emit(self, *values: str, op: str = "a:1", author: object = "first", topic: str = "t") -> None:
        for value in values:
            self.emissions.emit("i", Value(op, author, topic, value.encode()))

    def commit(self, *values: str, status: Any = "running") -> None:
        commit = Commit("i", 1, status, 0)
        commit.emitted = drafts("i", [("t", value.encode()) for value in values], 0)
        self.emissions.submit(
            commit, lambda ok, refusal: self.answers.append(ok), lambda c, done: self.committed.append((c, done))
        )

    def store(self) -> None:
        """The database stores the commit that waits for that."""
        commit, done = self.committed.pop(0)
        self.database.store(commit.emitted)
        done(True, None)

    @property
    def lines(self) -> list[str]:
        return [line.decode() for row in self.database.rows for line in row.lines()]


async def turns(n: int = 20) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


async def test_a_commit_waits_for_the_flush_and_the_next_flush_for_the_commit() -> None:
    case = Case()
    case.database.gate.clear()
    case.emit("1")
    await turns()
    case.emit("2")
    case.commit("3")
    case.emit("4")
    await turns()
    assert (len(case.database.writes), case.committed) == (1, [])
    case.database.gate.set()
    await turns()
    assert case.lines[:2] == ["1", "2"]
    assert len(case.committed) == 1
    case.emit("5")
    await turns()
    writes = len(case.database.writes)
    await turns()
    assert len(case.database.writes) == writes  # nothing is written beside the commit
    case.store()
    await turns()
    assert sorted(case.lines) == ["1", "2", "3", "4", "5"]
    assert case.answers == [True]
    assert case.emissions.is_idle


async def test_an_end_waits_for_what_was_emitted_and_nothing_comes_after_it() -> None:
    case = Case()
    case.database.gate.clear()
    case.emit("1")
    await turns()
    case.commit(status="completed")
    assert case.committed == []
    case.database.gate.set()
    await turns()
    case.emit("late")
    await turns()
    assert case.lines == ["1"]
    _, done = case.committed.pop()
    case.emissions.forget("i")  # as the end does
    done(True, None)
    await turns()
    assert case.lines == ["1"]
    assert case.emissions.heads == {}


async def test_what_has_an_unknown_outcome_is_submitted_again_as_it_was() -> None:
    case = Case()
    case.database.errors = [TransientError("gone")]
    case.emit("1")
    await turns()
    case.emit("2")
    async with asyncio.timeout(5):
        await case.emissions.settled("i", "first")
    assert case.database.writes[0] == case.database.writes[1]
    assert case.lines == ["1", "2"]


async def test_nothing_is_shown_that_is_not_stored() -> None:
    case = Case()
    case.database.mine = False
    case.emit("1")
    await turns()
    assert not case.readers.show.called
    case.database.mine = True
    case.emit("2")
    await turns()
    [[shown]] = case.readers.show.call_args_list[0][0]
    assert (shown.seq, shown.data) == (1, b"2")  # the numbers were read again


async def test_a_worker_that_was_taken_over_hears_of_it() -> None:
    case = Case()
    case.database.is_fenced = True
    case.emit("1")
    await turns()
    case.lease.fenced.assert_called_once_with("me")
    assert not case.readers.show.called


async def test_a_value_that_no_database_takes_fails_its_author_only() -> None:
    case = Case()
    case.database.errors = [RefusedValue("no"), RefusedValue("no")]
    case.emit("1")
    case.emissions.emit("j", Value("b:1", "other", "t", b"2"))
    await turns(50)
    with pytest.raises(RefusedValue):
        await case.emissions.settled("i", "first")
    await case.emissions.settled("j", "other")
    assert case.lines == ["2"]


async def test_another_author_begins_anew_on_all_topics_of_the_operation() -> None:
    case = Case()
    case.emit("1")
    case.emit("2", topic="u")
    case.emit("3", op="b:1", author="other")
    await turns()
    case.emissions.forget("i")
    case.emit("4", author="second", topic="u")
    await turns()
    marks = [(row.topic, row.op, row.run) for row in case.database.rows if row.kind == RESTART]
    assert sorted(marks) == [("t", "a:1", 2), ("u", "a:1", 2)]
    assert case.lines[-1] == "4"


async def test_an_attempt_that_emits_nothing_begins_anew_too() -> None:
    case = Case()
    case.emit("1")
    await turns()
    assert case.emissions.has_emitted("i", "a:1")
    case.emissions.forget("i")
    case.emissions.begin("i", "a:1", "second")
    case.emissions.begin("i", "b:1", "other")
    await case.emissions.settled("i", "second")
    assert [(row.topic, row.op, row.run) for row in case.database.rows if row.kind == RESTART] == [("t", "a:1", 2)]
    case.emit("2", author="second")
    await turns()
    assert [row.kind for row in case.database.rows] == [FIRST, RESTART, 0]


def test_rows_have_values_of_one_operation_and_topic_and_are_bounded() -> None:
    head = Head("i")
    head.learn(Standing())
    for n in range(3):
        head.put(Value("a", "x", "t", b"%d" % n))
        head.put(Value("b", "y", "t", b"%d" % n))
    head.put(Value("a", "x", "u", b"u"))
    head.put(Value("a", "x", "t", b"z" * 70_000))
    head.put(Value("a", "x", "t", b"end"))
    rows = head.take(5)
    assert [(row.op, row.topic, row.n, row.count, row.kind == FIRST) for row in rows] == [
        ("a", "t", 1, 3, True), ("a", "u", 1, 1, True), ("a", "t", 4, 1, False), ("a", "t", 5, 1, False),
        ("b", "t", 6, 3, True),
    ]  # fmt: skip
    assert [row.seq for row in rows] == [1, 4, 5, 6, 7]


def test_a_full_topic_is_known_before_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head("i")
    head.learn(Standing(5, {"t": (5, 64 * 1024 * 1024)}, {}))
    assert isinstance(head.check("t"), EmissionsFull)
    assert head.check("u") is None
    head.put(Value("a", "x", "t", b"1"))
    assert head.take(0) == []
    assert isinstance(head.problems["x"], EmissionsFull)


async def test_an_unexpected_error_fails_the_attempt_that_emitted() -> None:
    """Its result must not be recorded as if readers had seen everything."""
    case = Case()
    case.database.errors = [ZeroDivisionError("a fault of ours")]
    case.emit("1")
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(case.emissions.settled("i", "first"), 10)
    case.emit("2", author="second")
    await asyncio.wait_for(case.emissions.settled("i", "second"), 10)
    assert [row.data for row in case.database.rows] == [b"2"]
