"""Writes and reads what instances emit. Each write is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from romancy.storage.emissions import EmissionRow, Place, Standing, TopicRow, Wanted, Written, standings, to_row
from romancy.storage.sqlite.statements import SQL, run

T = TypeVar("T")
PIECE = 2_000
"""Rows that are deleted in one transaction."""


class _Database(Protocol):
    """What runs jobs on the connections of a storage."""

    def write_soon(self, job: Callable[[sqlite3.Connection], T]) -> Awaitable[T]: ...
    def read_now(self, job: Callable[[sqlite3.Connection], T], parts: int) -> Awaitable[T]: ...


class SQLiteEmissions:
    """The table of emissions in a file. Other processes are heard by the file's own sign of change."""

    def __init__(self, database: _Database) -> None:
        self._database = database
        self._heard: Callable[[], None] | None = None

    async def write(self, worker: str, rows: Sequence[EmissionRow]) -> Written:
        return await self._database.write_soon(lambda c: write(c, worker, rows))

    async def standings(self, instances: Collection[str]) -> dict[str, Standing]:
        ids = list(instances)

        def read(c: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return [row for id in ids for row in c.execute(SQL["emission_standing"], (id,))]

        return standings(ids, await self._database.read_now(read, len(ids)))

    async def read(self, wanted: Sequence[Wanted], limit: int) -> list[list[EmissionRow]]:
        return await self._database.read_now(lambda c: [_read(c, one, limit) for one in wanted], len(wanted))

    async def topics(self, instance: str) -> list[TopicRow]:
        rows = await self._database.read_now(lambda c: run(c, "emission_topics", {"instance": instance}), 1)
        return [TopicRow(*row) for row in rows]

    async def remove(self, ended_before: int, after: Place, limit: int) -> tuple[Place, bool]:
        return await self._database.write_soon(lambda c: _remove(c, ended_before, after, limit))

    def listen(self, heard: Callable[[], None] | None) -> None:
        self._heard = heard

    def changed(self) -> None:
        """Another process has written something."""
        if self._heard is not None:
            self._heard()

    @property
    def is_heard(self) -> bool:
        return True


def write(c: sqlite3.Connection, worker: str, rows: Sequence[EmissionRow]) -> Written:
    """Store rows, with the fence of the group commit."""
    if c.execute(SQL["fence"], (worker,)).fetchone() is None:
        return Written(True, set(), set())
    ids = dict.fromkeys(row.instance for row in rows)
    mine = {id for id in ids if c.execute(SQL["may_emit"], (id, worker)).fetchone() is not None}
    ours = [row.values for row in rows if row.instance in mine]
    if not ours or c.executemany(SQL["emit"], ours).rowcount == len(ours):
        return Written(False, mine, set())
    # Some were there: they must be the same.
    strange = {row[0] for row in ours if c.execute(SQL["emission_at"], row[:2]).fetchone() != row}
    return Written(False, mine - strange, strange)


def _read(c: sqlite3.Connection, wanted: Wanted, limit: int) -> list[EmissionRow]:
    given = {"instance": wanted.instance, "topic": wanted.topic, "after": wanted.after, "limit": limit}
    return list(map(to_row, run(c, "emissions_of_instance" if wanted.topic is None else "emissions_of_topic", given)))


def _remove(c: sqlite3.Connection, before: int, after: Place, limit: int) -> tuple[Place, bool]:
    since, id = after
    ended = run(c, "ended_instances", {"since": since, "id": id, "before": before, "limit": limit})
    left, place = PIECE, after
    for finished_at, id in ended:
        c.execute(SQL["hollow_emissions"], (id,))
        left -= c.execute(SQL["remove_emissions"], (id, left)).rowcount
        if left <= 0:
            return place, True  # this one again
        place = finished_at, id
    return place, len(ended) == limit


def delete(c: sqlite3.Connection, instances: Sequence[tuple[str]]) -> list[tuple[str]]:
    """Delete what instances have emitted, up to a limit. Returns those that have none left."""
    left, done = PIECE, list[tuple[str]]()
    for one in instances:
        left -= c.execute(SQL["delete_emissions"], (*one, left)).rowcount
        if left <= 0:
            break
        done.append(one)
    return done
