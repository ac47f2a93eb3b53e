"""Retention: deletes old instances and events, and stores what keeps events. Each step is one statement."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from romancy.core.clock import Clock
from romancy.storage.batch import Commit
from romancy.storage.interests import Cut, Keeping, Known, Plan, Row, cuts_of
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.emissions import PIECE
from romancy.storage.records import DEATHS_KEPT

_COLUMNS = "workflows", "types", "nexts", "kinds"


def _columns(rows: Collection[Row]) -> dict[str, list[Any]]:
    """Return rows of interests as parameters."""
    return {name: [row[n] for row in rows] for n, name in enumerate(_COLUMNS)}


class Pruning:
    """The part of the storage that deletes what is old."""

    def __init__(self, connections: Connections, keeping: Keeping, clock: Clock) -> None:
        self._connections, self._keeping, self._clock = connections, keeping, clock

    async def prune(self, ended: Mapping[str, int], accepted_before: int, limit: int) -> int:
        """Delete old events, and instances that ended before a time (its own for failed ones); return how many.

        What was refused in the inbox is kept as long as ended instances.
        """
        now = self._clock.now()
        plan = await self._keeping.plan(ended, accepted_before, limit)
        for workflow in plan.settled:
            await self._connections.do("settle_interest", workflow=workflow)
        for workflow in plan.opened:
            await self._connections.do("open_interest", workflow=workflow)
        emitted = 0
        instances = await self._connections.ask("prunable_instances", latest=max(ended.values()), limit=limit, **ended)
        if instances:
            ids = [id for (id,) in instances]
            emitted = len(await self._connections.do("delete_emissions", ids=ids, limit=PIECE, **ended))
            instances = await self._connections.do("prune_instances", ids=ids, **ended)
        refused = await self._connections.do("prune_refused", before=ended["before"], limit=limit)
        await self._connections.do("forget_expired_data", at=now)
        gone = await self._events(plan, limit)
        await self._connections.do("delete_spent_mail")
        await self._connections.do("orphan_unknown", at=now)
        for name in ("forget_deaths", "forget_trials"):
            await self._connections.do(name, before=now - DEATHS_KEPT)
        await self._connections.do("delete_spent_orphans")
        return len(instances) + len(refused) + gone + (limit if emitted >= PIECE else 0)

    async def _events(self, plan: Plan, limit: int) -> int:
        gone = await self._delete(plan.seqs[:limit]) if plan.seqs else 0
        if plan.types and len(plan.seqs) < limit:
            types, befores = map(list, zip(*plan.types, strict=True))
            given = {"types": types, "befores": befores, "limit": limit - len(plan.seqs)}
            old = await self._connections.ask("prunable_events", **given)
            gone += await self._delete([seq for (seq,) in old], plan.interests) if old else 0
        return gone

    async def _delete(self, seqs: list[int], interests: set[Row] | None = None) -> int:
        """Delete events, unless there are other interests than these; return how many."""
        given = _columns(interests) if interests is not None else dict.fromkeys(_COLUMNS)
        return len(await self._connections.do("prune_events", seqs=seqs, **given))

    async def cut(self, before: int, limit: int) -> list[Cut]:
        """Delete events that were accepted before a time, whoever may want them. That is stored first."""
        rows = await self._connections.ask("cuttable_events", before=before, limit=limit)
        cuts = cuts_of([(seq, type, accepted) for seq, type, accepted in rows])
        if cuts:
            uptos = [cut.upto for cut in cuts]
            await self._connections.do("insert_cuts", types=[cut.type for cut in cuts], uptos=uptos)
            await self._delete([seq for seq, _, _ in rows])
        return cuts


class Interests:
    """Stores the interest of workflows: as registered, and in what their instances begin to wait for."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._known = Known()
        """Rows that are stored: they are never deleted."""

    def forget(self) -> None:
        self._known.clear()

    async def learn(self, commits: Sequence[Commit], at: int) -> None:
        """Before waits are stored, store the interest in their types."""
        rows = self._known.new(commits)
        if rows:
            await self.store(rows, at, learned=True)

    async def store(self, rows: Sequence[Row], at: int, *, learned: bool = False) -> None:
        await self._connections.do("insert_interests", at=at, learned=learned, **_columns(rows))
        self._known.add(*rows)
