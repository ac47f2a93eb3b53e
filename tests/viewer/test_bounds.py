"""However many instances there are, a page costs the same: counted in steps of the database, not in seconds."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from romancy.core.clock import SystemClock
from romancy.core.model import SECOND
from romancy.storage.catalog import Catalog, EventSearch, Search
from romancy.storage.sqlite.connection import connect
from romancy.storage.sqlite.statements import run
from tests.viewer.make_many import RARE, make

MANY = 20_000
STEPS = 60_000
"""Steps of SQLite's machine a page may take; to look at all instances would take several times that."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = str(tmp_path_factory.mktemp("many") / "many.db")
    make(path, MANY)
    connection = connect(path, durability="normal")
    yield connection
    connection.close()


class Counted:
    """A catalog whose reads are counted."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection, self.steps = connection, 0
        self.catalog = Catalog(self.read)

    async def read(self, name: str, /, **given: Any) -> list[Any]:
        def count() -> int:
            self.steps += 10
            return 0

        self.connection.set_progress_handler(count, 10)
        try:
            return run(self.connection, name, given)
        finally:
            self.connection.set_progress_handler(None, 10)


@pytest.fixture
async def counted(many: sqlite3.Connection) -> AsyncIterator[Counted]:
    made = Counted(many)
    yield made
    assert 0 < made.steps < STEPS


NOW = SystemClock().now()
SEARCHES = [
    Search(),
    Search(status=("failed",)),
    Search(status=("waiting_for_event", "waiting_for_timer")),
    Search(status=("completed", "failed", "cancelled", "running")),
    Search(workflow="payment"),
    Search(workflow=RARE),
    Search(text="nosuch"),
    Search(text="nosuch", status=("waiting_for_event", "completed")),
    Search(error_type="nosuch"),
    Search(parent="nosuch"),
    Search(started_before=NOW - 1500 * SECOND),
    Search(started_after=NOW - 10 * SECOND),
]


@pytest.mark.parametrize("search", SEARCHES, ids=range(len(SEARCHES)))
async def test_a_page_of_instances(counted: Counted, search: Search) -> None:
    await counted.catalog.search(search, 51, None, 500)


async def test_counts(counted: Counted) -> None:
    assert (await counted.catalog.counts(501))["completed"] == 501


async def test_types_that_are_waited_for(counted: Counted) -> None:
    assert [n for _, n in await counted.catalog.wait_types("", 50, 501)] == [501] * 4


async def test_waits_for_a_type(counted: Counted) -> None:
    first = await counted.catalog.waits_for("payment.completed", 50, None)
    assert len(await counted.catalog.waits_for("payment.completed", 50, first[-1][0])) == 50


async def test_what_falls_due(counted: Counted) -> None:
    assert len(await counted.catalog.coming(NOW, NOW + 86_400 * SECOND, 400)) == 400


@pytest.mark.parametrize("unmatched", [True, False])
@pytest.mark.parametrize("type", [None, "payment.completed", "nosuch"])
async def test_events(counted: Counted, unmatched: bool, type: str | None) -> None:
    await counted.catalog.shown_events(EventSearch(type=type, unmatched=unmatched), None, 51, None, 500)


async def test_events_of_long_ago(counted: Counted) -> None:
    before = SystemClock().now() - 500 * SECOND  # not NOW: the events may have been made long after the tests began
    found, _ = await counted.catalog.shown_events(EventSearch(accepted_before=before), None, 51, None, 500)
    assert len(found) == 51


async def test_rows_again(counted: Counted) -> None:
    ids = [f"order-{n:07}" for n in range(100, 150)]
    assert len(await counted.catalog.summaries(ids)) == 50
    assert len(await counted.catalog.waits_of(ids, 3)) > 20


async def test_a_scan_of_everything_would_be_noticed(many: sqlite3.Connection) -> None:
    counted = Counted(many)
    await counted.catalog.search(Search(text="nosuch"), 51, None, MANY * 2)
    assert counted.steps > STEPS * 3
