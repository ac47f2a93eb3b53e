"""Writes and reads what instances emit. Each write is one statement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from romancy.storage.emissions import (
    COLUMNS,
    EmissionRow,
    Place,
    Standing,
    TopicRow,
    Wanted,
    Written,
    standings,
    to_row,
)
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.listener import Announcer, Listener
from romancy.storage.postgres.reads import findable

PIECE = 5_000
"""Rows that are deleted in one statement."""


def parameters(rows: Sequence[EmissionRow]) -> dict[str, Sequence[Any]]:
    """Return rows as parameters."""
    columns = zip(*(row.values for row in rows), strict=True)
    return {f"emit_{name}s": column for name, column in zip(COLUMNS, columns, strict=True)}


class PostgresEmissions:
    """The table of emissions. Processes with readers listen for notices of the others."""

    def __init__(self, connections: Connections, listener: Listener, announcer: Announcer) -> None:
        self._connections, self._listener, self._announcer = connections, listener, announcer

    async def write(self, worker: str, rows: Sequence[EmissionRow]) -> Written:
        given = parameters(rows)
        ids = sorted({row.instance for row in rows})
        [row] = await self._connections.do_timed("emit", worker=worker, ids=ids, **given)
        mine = set(row["mine"])
        strange: set[str] = set()
        if row["stored"] < sum(one.instance in mine for one in rows):  # some were there: they must be the same
            found = await self._connections.ask("strange_emissions", **given)
            strange = {id for (id,) in found} & mine
        if mine:
            self.tell()
        return Written(not row["alive"], mine - strange, strange)

    def tell(self) -> None:
        """Tell other processes that some were stored."""
        self._announcer.tell([self._listener.emitted])

    async def standings(self, instances: Collection[str]) -> dict[str, Standing]:
        ids = list(instances)
        return standings(ids, await self._connections.ask("emission_standings", ids=ids))

    async def read(self, wanted: Sequence[Wanted], limit: int) -> list[list[EmissionRow]]:
        found: list[list[EmissionRow]] = [[] for _ in wanted]
        of_topics = [k for k, one in enumerate(wanted) if one.topic is not None]
        of_all = [k for k, one in enumerate(wanted) if one.topic is None]
        for name, keys in (("emissions_of_topics", of_topics), ("emissions_of_instances", of_all)):
            rows = await self._ask(name, keys, wanted, limit) if keys else ()
            for k, *row in rows:
                found[int(k)].append(to_row(row))
        return found

    async def _ask(self, name: str, keys: list[int], wanted: Sequence[Wanted], limit: int) -> list[Any]:
        given: dict[str, Any] = {"keys": keys, "afters": [wanted[k].after for k in keys], "limit": limit}
        given["instances"] = [findable(wanted[k].instance) for k in keys]
        if name == "emissions_of_topics":
            given["topics"] = [findable(wanted[k].topic) for k in keys]
        return await self._connections.ask(name, **given)

    async def topics(self, instance: str) -> list[TopicRow]:
        rows = await self._connections.ask("emission_topics", instance=findable(instance))
        return [TopicRow(*row) for row in rows]

    async def remove(self, ended_before: int, after: Place, limit: int) -> tuple[Place, bool]:
        since, id = after
        ended = await self._connections.ask("ended_instances", since=since, id=id, before=ended_before, limit=limit)
        ids = [id for _, id in ended]
        if ids:
            await self._connections.do("hollow_emissions", ids=ids, before=ended_before)
            gone = await self._connections.do("remove_emissions", ids=ids, before=ended_before, limit=PIECE)
            if len(gone) >= PIECE:
                return after, True  # these again
        return (tuple(ended[-1]) if ended else after), len(ended) == limit

    def listen(self, heard: Callable[[], None] | None) -> None:
        self._listener.hear_emitted(heard)

    @property
    def is_heard(self) -> bool:
        return self._listener.hears_emitted
