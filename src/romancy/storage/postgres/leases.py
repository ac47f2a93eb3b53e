"""Workers, leases and claims. Each step is one statement."""

from __future__ import annotations

import logging
import socket
from collections.abc import Collection, Sequence
from typing import Any

from romancy.core.admission import Admission, Admitted
from romancy.core.clock import Clock, SystemClock, stopwatch
from romancy.core.model import SECOND
from romancy.core.versions import bare_name
from romancy.errors import Outdated
from romancy.storage.postgres import migrations
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.listener import Listener, lock_key
from romancy.storage.protocol import Trigger
from romancy.storage.records import MOST_COUNTED, Claimed, Shares, Unfit

_logger = logging.getLogger("romancy")
_MISSING = 1.0
"""Seconds the session lock of a worker must be missing before it counts as dead: it may just be reconnecting."""
_LOCKS_EVERY = 0.5


class Owning:
    """The part of the storage that handles workers."""

    def __init__(self, connections: Connections, listener: Listener, clock: Clock) -> None:
        self._connections, self._listener = connections, listener
        self._clock = clock
        self._missing: dict[str, float] = {}
        self._held: set[int] = set()
        self._locks_read = float("-inf")
        self._mine: set[str] = set()
        """Workers of this process."""
        self._lease = 0

    def _now(self) -> int | None:
        """Return None to use the database's clock, or the time of a test's manual clock."""
        return None if isinstance(self._clock, SystemClock) else self._clock.now()

    # --- leases -----------------------------------------------------------------------------------------------------
    async def register(self, worker: str, lease: int, triggers: Sequence[Trigger], workflows: Collection[str]) -> None:
        self._lease = lease
        await self.announce(triggers, workflows)
        self._mine.add(worker)
        session = await self._listener.hold(worker)
        try:
            [row] = await self._connections.do_timed(
                "insert_worker",
                worker=worker,
                host=socket.gethostname(),
                lease=lease,
                session=session,
                now=self._now(),
            )
            _check_version(row)
        except BaseException:
            self.drop_lock(worker)
            raise

    async def announce(self, triggers: Sequence[Trigger], workflows: Collection[str]) -> None:
        """Store which events start which workflows, for every process that accepts events."""
        unique = {(type, workflow): timeout for type, workflow, timeout in triggers}
        await self._connections.do(
            "announce",
            types=[type for type, _ in unique],
            names=[workflow for _, workflow in unique],
            timeouts=list(unique.values()),
            workflows=list({bare_name(name) for name in workflows}),
        )

    async def renew(self, worker: str, lease: int) -> bool:
        session = self._listener.holds(worker)
        given = {"worker": worker, "lease": lease, "session": session, "now": self._now()}
        rows = await self._connections.do_timed("renew_worker", **given)
        for row in rows:
            _check_version(row)
        return bool(rows)

    async def check(self) -> None:
        [row] = await self._connections.ask("schema_version")
        _check_version(row)

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
        """Fence workers whose lease has ended or whose session is gone: nothing they submit is accepted from now on."""
        given = {"lease": self._lease, "trouble": self._connections.since_trouble(), "now": self._now()}
        others: list[Any] = await self._connections.ask("other_workers", worker=worker, **given)
        if any(other["has_session"] for other in others):
            await self._read_locks()
        lost = [*known_dead, *(other["id"] for other in others if self._is_gone(other))]
        # A worker with a session lock is only paused, and one that may be cut off is alive: nothing it ran is to blame.
        dead = {o["id"]: lock_key(o["id"]) in self._held for o in others if o["ended"]} | dict.fromkeys(lost, False)
        dead |= {o["id"]: True for o in others if o["cut_off"] and o["id"] in dead and o["id"] not in known_dead}
        if not dead:
            return []
        gone = await self._bury(dead, lost, worker)
        for other in gone:
            [(n,)] = await self._connections.ask("count_of_worker", worker=other, most=MOST_COUNTED)
            instances = f"its {n} instance{'' if n == 1 else 's'}" if n else "it had no instances"
            _logger.info("worker %s is gone; %s%s", other, instances, " can be taken over now" if n else "")
        await self._connections.do("delete_spent_orphans")
        return gone

    async def _bury(self, dead: dict[str, bool], lost: Sequence[str], by: str) -> list[str]:
        rows = await self._connections.do("bury", **self._burial(dead, lost, by))
        return [id for (id,) in rows]

    def _burial(self, dead: dict[str, bool], lost: Sequence[str], by: str) -> dict[str, Any]:
        given = {"workers": list(dead), "clean": list(dead.values()), "lost": list(lost), "now": self._now()}
        return given | {"by": by, "lease": self._lease, "missed": int(_MISSING * SECOND)}

    async def _read_locks(self) -> None:
        if stopwatch() - self._locks_read > _LOCKS_EVERY:
            rows = await self._connections.ask("session_locks")
            self._held = {high << 32 | low for high, low in rows}
            self._locks_read = stopwatch()

    def _is_gone(self, other: Any) -> bool:
        """Return whether a worker's session has been gone for a while: its process died, and the server noticed."""
        id: str = other["id"]
        if not other["has_session"] or lock_key(id) in self._held:
            self._missing.pop(id, None)
            return False
        return stopwatch() - self._missing.setdefault(id, self._locks_read) >= _MISSING

    async def is_gone(self, worker: str) -> bool:
        """Return whether a worker had a session, and no longer has one."""
        rows = await self._connections.ask("has_session", worker=worker)
        if not rows or not rows[0][0]:
            return False
        locks = await self._connections.ask("session_locks")
        return lock_key(worker) not in {high << 32 | low for high, low in locks}

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


def _check_version(row: Any) -> None:
    """Raise `Outdated` if the schema was migrated meanwhile to a version that is too new."""
    if row["min_reader"] > migrations.LIBRARY_VERSION:
        raise Outdated(row["version"], migrations.LIBRARY_VERSION)
