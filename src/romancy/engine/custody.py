"""Custody: holds code that may have killed its worker. It is replayed only after its turn has come and is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from romancy.core.clock import Clock
from romancy.engine.committer import Committer
from romancy.engine.evidence import begun, body_run
from romancy.engine.resident import GONE, Input, Resident
from romancy.engine.residents import Residents
from romancy.storage.batch import BODY, Commit
from romancy.storage.errors import RefusedValue
from romancy.storage.records import Snapshot


@dataclass(slots=True, eq=False)
class Held:
    """Everything needed to continue an instance at its turn. `begins_alone` is set when its turn has come."""

    snapshot: Snapshot
    inputs: list[Input]
    go_on: Callable[[Resident, Snapshot, list[Input]], None]
    refused: Callable[[Resident, Snapshot, list[Input]], None]
    """Called if another process wrote to the instance."""
    is_storing: bool = False
    begins_alone: bool | None = None


class Custody:
    """Instances that have been read, and are held until their turn comes."""

    def __init__(self, clock: Clock, committer: Committer, residents: Residents) -> None:
        self._clock, self._committer, self._residents = clock, committer, residents
        self._held: dict[Resident, Held] = {}

    def __repr__(self) -> str:
        return f"<Custody held={len(self._held)}>"

    def __contains__(self, resident: object) -> bool:
        return resident in self._held

    def hold(self, resident: Resident, held: Held) -> None:
        self._residents.hold(held.snapshot.row.id, held.inputs)
        self._held[resident] = held

    def record(self, resident: Resident) -> None:
        """Record the death now, so that a death of this worker before its turn is not counted against it."""
        held = self._held[resident]
        if not held.is_storing:
            self._store(resident, held, partial(self._counted, resident, held))

    def _counted(self, resident: Resident, held: Held) -> None:
        if held.begins_alone is not None:
            self.begin(resident, held.begins_alone)

    def begin(self, resident: Resident, is_alone: bool) -> None:
        """Record that its turn has come, then run its code."""
        held = self._held[resident]
        if held.is_storing:
            held.begins_alone = is_alone
            return
        run = body_run(resident.attempts[BODY], len(held.snapshot.history))
        resident.attempts[BODY] = begun(resident.attempts[BODY], is_alone, run)
        self._store(resident, held, partial(self._begun, resident, held))

    def _begun(self, resident: Resident, held: Held) -> None:
        self.let_go(resident)
        held.go_on(resident, held.snapshot, held.inputs)

    def _store(self, resident: Resident, held: Held, then: Callable[[], None]) -> None:
        """Store the record of a held body. `then` runs in its own loop callback, because it may run user code."""
        row, records = held.snapshot.row, [resident.attempts[BODY]]
        now = self._clock.now()
        commit = Commit(row.id, resident.version, resident.status, now, same_status=True, attempts=records)
        held.is_storing = True

        def done(applied: bool, refusal: RefusedValue | None) -> None:
            if self._held.get(resident) is not held:
                return  # this worker was taken over, or is stopping
            if applied:
                resident.version += 1
                asyncio.get_running_loop().call_soon(stored)
            else:
                self.let_go(resident)
                resident.state = GONE
                held.refused(resident, held.snapshot, held.inputs)

        def stored() -> None:
            if self._held.get(resident) is held:
                held.is_storing = False
                then()

        self._committer.commit(commit, done)

    def let_go(self, resident: Resident) -> None:
        held = self._held.pop(resident, None)
        if held is not None:
            self._residents.let_in(held.snapshot.row.id)

    def clear(self) -> None:
        for resident in self._held:
            resident.state = GONE
        self._held.clear()
