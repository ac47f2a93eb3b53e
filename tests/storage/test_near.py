"""Reads on the event loop's own thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from romancy.storage.sqlite import inline_reader
from romancy.storage.sqlite.inline_reader import NearReader


@pytest.fixture
def reader() -> Iterator[NearReader]:
    reader = NearReader(sqlite3.connect(":memory:"))
    yield reader
    reader.close()


def one(connection: sqlite3.Connection) -> int:
    return connection.execute("SELECT 1").fetchone()[0]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads take no time, however busy the machine is."""
    monkeypatch.setattr(inline_reader, "stopwatch", lambda: 0.0)


def test_what_is_quick_is_read(reader: NearReader) -> None:
    assert [reader.read(one) for _ in range(100)] == [1] * 100


def test_while_the_disk_is_slow_it_is_left_to_others(reader: NearReader, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(1000))
    with monkeypatch.context() as slow:
        slow.setattr(inline_reader, "stopwatch", lambda: next(seconds))  # a second each
        assert reader.read(one) == 1
    answers = [reader.read(one) for _ in range(100)]
    assert answers[:50] == [None] * 50
    assert answers[-1] == 1, "it is tried again after some"


def test_what_is_wrong_is_said_elsewhere(reader: NearReader) -> None:
    assert reader.read(lambda c: c.execute("SELECT * FROM nowhere").fetchone()) is None
