"""Workers, leases and claims. Each step is one statement."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Sequence
from typing import Any

from romancy.core.admission import Admission
from romancy.core.clock import Clock, SystemClock, stopwatch
from romancy.core.model import SECOND
from romancy.core.versions import bare_name
from romancy.errors import Outdated
from romancy.storage.instances import Admitted
from romancy.storage.opener import SEALED, can_read
from romancy.storage.postgres import migrations
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.listener import Listener, lock_key, pool_key, signed
from romancy.storage.protocol import Trigger
from romancy.storage.records import MOST_COUNTED, Claimed, Shares, Unfit

_logger = logging.getLogger("romancy")
_MISSING = 1.0
"""Seconds a worker's listening session must be gone before the worker counts as dead: it may be reconnecting."""
_ALL_MISSING = 0.25
"""The same if all its sessions are gone at once, although nothing is wrong with our own connections or the server."""
_LOCKS_EVERY = 0.5
"""Seconds between two looks at the sessions of workers, unless one of them is missing."""


class Owning:
    """The part of the storage that handles workers."""

    def __init__(
        self, connections: Connections, listener: Listener, clock: Clock, look_again: Callable[[], None], level: int
    ) -> None:
        """`look_again`: called when `take_over` may find that a worker is dead, whose session is missing now."""
        self._connections, self._listener, self._level = connections, listener, level
        self._clock = clock
        self._look_again = look_again
        self._looking: asyncio.TimerHandle | None = None
        self._missing: dict[str, float] = {}
        """Workers whose listening session is gone, and when that was first seen."""
        self._held: set[int] = set()
        self._locks_read = float("-inf")
        self._mine: set[str] = set()
        """Workers of this process."""
        self._lease = 0

    def _now(self) -> int | None:
        """Return None to use the database's clock, or the time of a test's manual clock."""
        return None if isinstance(self._clock, SystemClock) else self._clock.now()

    # --- leases -----------------------------------------------------------------------------------------------------
    async def register(
        self, worker: str, lease: int, triggers: Sequence[Trigger], workflows: Collection[str], about: str | None
    ) -> None:
        self._lease = lease
        await self.announce(triggers, workflows)
        self._mine.add(worker)
        session = await self._listener.hold(worker)
        await self._see_others(worker)  # the sooner a session is missed, the sooner its worker counts as dead
        try:
            [row] = await self._connections.do_timed(
                "insert_worker",
                worker=worker,
                host=socket.gethostname(),
                lease=lease,
                session=session,
                about=about,
                key=self._pool_key(worker),
                now=self._now(),
            )
            self._check_version(row)
        except BaseException:
            self.drop_lock(worker)
            raise

    async def announce(self, triggers: Sequence[Trigger], workflows: Collection[str]) -> None:
        """Store which events start which workflows, for every process that accepts events."""
        ours = list({bare_name(name) for name in workflows})
        await self._connections.do("announce", **_columns(triggers), workflows=ours)

    async def propose(self, triggers: Sequence[Trigger]) -> None:
        """Add the triggers whose type no version of the workflow has, and that was not taken back from it."""
        await self._connections.do("propose", **_columns(triggers))

    async def renew(self, worker: str, lease: int, load: int, about: str | None) -> bool:
        session = self._listener.holds(worker)
        given = {"worker": worker, "lease": lease, "session": session, "key": self._pool_key(worker)}
        rows = await self._connections.do_timed("renew_worker", **given, load=load, about=about, now=self._now())
        for row in rows:
            self._check_version(row)
        return bool(rows)

    def _pool_key(self, worker: str) -> int | None:
        """Return the lock that the connection takes which registers a worker or renews its lease.

        None if the connections lead to a pooler: its sessions live on when this process dies.
        """
        return signed(pool_key(worker)) if self._connections.is_direct else None

    async def check(self) -> None:
        [row] = await self._connections.ask("schema_version")
        self._check_version(row)

    def _check_version(self, row: Any) -> None:
        """Raise `Outdated` if the schema was migrated meanwhile to a version that is too new."""
        if not can_read(row["min_reader"], migrations.LIBRARY_VERSION, self._level):
            is_sealed = row["min_reader"] > SEALED and not self._level
            raise Outdated(row["version"], migrations.LIBRARY_VERSION, sealed=is_sealed)

    async def leave(self, worker: str) -> None:
        await self._connections.do("leave_worker", worker=worker)

    async def release(self, worker: str) -> None:
        """Give up all instances at once, however many there are; others claim what they need when they need it."""
        await self._bury({worker: True}, [worker], worker)
        self.drop_lock(worker)

    def drop_lock(self, worker: str) -> None:
        self._mine.discard(worker)
        self._listener.drop(worker)

    async def step_down(self, connection: Any) -> None:
        """Delete the workers of this process on the server of this connection."""
        mine = list(self._mine)
        bury = self._connections.statements.get("bury")
        await connection.fetch(bury.sql, *bury.values(self._burial(dict.fromkeys(mine, True), mine, "")))

    # --- dead workers -----------------------------------------------------------------------------------------------
    async def take_over(self, worker: str, known_dead: Sequence[str]) -> list[str]:
        """Fence workers whose lease has ended or whose sessions are gone: nothing they submit is accepted any more."""
        others = await self._see_others(worker)
        lost = [*known_dead, *(other["id"] for other in others if self._is_gone(other))]
        # A worker with a session lock is only paused, and one that may be cut off is alive: nothing it ran is to blame.
        dead = {o["id"]: lock_key(o["id"]) in self._held for o in others if o["ended"]} | dict.fromkeys(lost, False)
        dead |= {o["id"]: True for o in others if o["cut_off"] and o["id"] in dead and o["id"] not in known_dead}
        self._look_soon([other for other in others if other["id"] in self._missing.keys() - dead.keys()])
        if not dead:
            return []
        gone = await self._bury(dead, lost, worker)
        for other in gone:
            [(n,)] = await self._connections.ask("count_of_worker", worker=other, most=MOST_COUNTED)
            instances = f"its {n} instance{'' if n == 1 else 's'}" if n else "it had no instances"
            _logger.info("worker %s is gone; %s%s", other, instances, " can be taken over now" if n else "")
        await self._connections.do("delete_spent_orphans")
        return gone

    async def _see_others(self, worker: str) -> list[Any]:
        """Return the other workers, and note whose listening sessions are missing."""
        given = {"lease": self._lease, "trouble": self._connections.since_trouble(), "now": self._now()}
        others: list[Any] = await self._connections.ask("other_workers", worker=worker, **given)
        with_session = [other["id"] for other in others if other["has_session"]]
        if with_session:
            await self._read_locks()
        missing = [id for id in with_session if lock_key(id) not in self._held]
        self._missing = {id: self._missing.get(id, self._locks_read) for id in missing}
        return others

    async def _bury(self, dead: dict[str, bool], lost: Sequence[str], by: str) -> list[str]:
        rows = await self._connections.do("bury", **self._burial(dead, lost, by))
        return [id for (id,) in rows]

    def _burial(self, dead: dict[str, bool], lost: Sequence[str], by: str) -> dict[str, Any]:
        now = stopwatch()
        missed = [int((now - self._missing.get(id, now)) * SECOND) for id in dead]
        given = {"workers": list(dead), "clean": list(dead.values()), "missed": missed, "lost": list(lost)}
        return given | {"by": by, "lease": self._lease, "now": self._now()}

    async def _read_locks(self) -> None:
        if self._missing or stopwatch() - self._locks_read > _LOCKS_EVERY:
            begun = stopwatch()
            rows = await self._connections.ask("session_locks")
            self._held = {high << 32 | low for high, low in rows}
            self._locks_read = begun

    def _is_gone(self, other: Any) -> bool:
        """Return whether a worker's sessions have been gone for a while: its process died, and the server noticed."""
        since = self._missing.get(other["id"])
        return since is not None and self._locks_read - since >= self._patience(other)

    def _patience(self, other: Any) -> float:
        """Return how long to wait for a worker to reconnect.

        A process that dies loses all its sessions at once. A living one does so when the server, a proxy or the network
        fails, which we notice as well. If only the listening session is missing, the connection was lost, or another
        session has not noticed the death because it is busy.
        """
        is_alone = self._connections.is_direct and pool_key(other["id"]) not in self._held
        return _ALL_MISSING if is_alone and not other["cut_off"] else _MISSING

    def _look_soon(self, missing: Sequence[Any]) -> None:
        """Look again as soon as one of the missing workers can count as dead."""
        self.close()
        if missing:
            due = min(self._missing[other["id"]] + self._patience(other) for other in missing)
            pause = max(0.0, due - stopwatch())
            self._looking = asyncio.get_running_loop().call_later(pause, self._look_again)

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def gone(self, workers: Collection[str]) -> set[str]:
        """Return those of these workers that had a session, and no longer have one."""
        rows = await self._connections.ask("with_session", workers=list(workers))
        if not rows:
            return set()
        locks = {high << 32 | low for high, low in await self._connections.ask("session_locks")}
        return {id for (id,) in rows if lock_key(id) not in locks}

    # --- claims -----------------------------------------------------------------------------------------------------
    async def claim(self, worker: str, workflows: Collection[str], limit: int, due_before: int) -> list[Claimed]:
        """Claim what needs to run: running instances, waiting ones with mail or a request, and those due soon."""
        given: dict[str, Any] = {"workflows": sorted(workflows), "due": due_before}
        [(worth_it,)] = await self._connections.ask("is_claimable", **given)
        if not worth_it:
            return []
        share = max(1, limit // max(1, len(workflows)))
        rows = await self._connections.do("claim", worker=worker, limit=limit, share=share, **given)
        return [Claimed(*row) for row in rows]

    async def admit(
        self, admission: Admission, worker: str, at: int, workflows: Collection[str]
    ) -> list[Admitted] | None:
        """Admit instances, unless another admission of their queue came first. Own those whose workflows are given."""
        rows = await self._connections.do(
            "admit",
            worker=worker,
            queue=admission.queue,
            version=admission.version,
            turn=admission.turn,
            reserved=admission.reserved,
            keys=list(admission.keys),
            reservations=list(admission.keys.values()),
            ids=admission.ids,
            at=at,
            workflows=list(workflows),
        )
        return [Admitted(id, name, owner == worker) for _, id, name, owner in rows if id is not None] if rows else None

    async def unfit(self, workflows: Collection[str], after: tuple[str, str], limit: int) -> list[Unfit]:
        """Return a page of the instances that some builds of their code could not follow, in order."""
        workflow, id = after
        given = {"workflows": list(workflows), "after_workflow": workflow, "after_id": id, "limit": limit}
        return [Unfit(*row) for row in await self._connections.ask("unfit", **given)]

    async def claim_unfit(self, worker: str, wanted: Sequence[Unfit]) -> set[str]:
        """Claim the wanted instances, except any that were taken, resumed or cancelled since they were listed."""
        given = {"ids": [one.id for one in wanted], "builds": [one.builds for one in wanted]}
        return {id for (id,) in await self._connections.do("claim_unfit", worker=worker, **given)}

    # --- balancing --------------------------------------------------------------------------------------------------
    async def shares(self, workflows: Collection[str], limit: int) -> Shares:
        given = {"workflows": list(workflows), "limit": limit, "most": MOST_COUNTED, "now": self._now()}
        counts: dict[str | None, int] = dict(map(tuple, await self._connections.ask("shares", **given)))
        return Shares({id: n for id, n in counts.items() if id is not None}, counts[None])

    async def claim_idle(self, worker: str, workflows: Collection[str], limit: int) -> int:
        """Claim free instances that only wait."""
        return len(await self._connections.do("claim_idle", worker=worker, workflows=list(workflows), limit=limit))


def _columns(triggers: Sequence[Trigger]) -> dict[str, Any]:
    unique = {(type, workflow): timeout for type, workflow, timeout in triggers}
    types, names = [type for type, _ in unique], [workflow for _, workflow in unique]
    return {"types": types, "names": names, "timeouts": list(unique.values())}
