"""What the engine asks of a database: one conditional write path, claims, and reads. Typed rows, outcomes, no SQL.

Everything that changes goes through `commit(batch)`: a batch is one transaction, each item in it a compare-and-set that
is answered on its own. Submitting the same batch again (after a lost connection) gives the same answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

from romancy.core.history import Entry
from romancy.core.model import Status
from romancy.storage.batch import Batch, BatchResult, Commit
from romancy.storage.catalog import Catalog
from romancy.storage.records import (
    Claimed,
    Due,
    Idle,
    InstanceRow,
    Mail,
    Mortality,
    Shares,
    Snapshot,
    StoredEvent,
    StoredWait,
    WorkerRow,
)
from romancy.storage.sessions import SessionStore

Trigger = tuple[str, str, int | None]
"""(event type, workflow it starts, timeout of that workflow)"""
Answered = Callable[["BatchResult | None", "BaseException | None"], None]
"""Called on the event loop, from a plain callback: the answer, or what went wrong."""


class Storage(Protocol):
    """One database, as the engine sees it."""

    on_foreign_change: Callable[[], None] | None
    """Called on the event loop when another process wrote something."""

    is_remote: bool
    """Whether a process of its own stores batches: then it can work on the next while we follow up on the last.

    It must not answer before `commit` returns: answers are followed up in the order of their batches. An offer that was
    made before its wait took the event, and is heard of after that is stored, would be taken for another one.
    """

    @property
    def catalog(self) -> Catalog:
        """What people look at."""
        ...

    @property
    def sessions(self) -> SessionStore:
        """Who is logged in to the viewer."""
        ...

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    def append(self, commit: Commit, worker: str | None) -> bool:
        """Store a commit that is nothing but one entry, if that needs no waiting.

        True: it is stored. False: whatever became of it, `commit` finds out.
        """
        ...

    def commit(self, batch: Batch, answered: Answered) -> None:
        """Store a batch; `answered` is called when it is, perhaps before this returns."""
        ...

    async def register(
        self, worker: str, lease: int, triggers: Sequence[Trigger], workflows: Collection[str]
    ) -> None: ...
    def drop_lock(self, worker: str) -> None: ...
    def stop_waiting(self) -> None: ...
    def announce(self, triggers: Sequence[Trigger], workflows: Collection[str]) -> Awaitable[None]: ...
    async def renew(self, worker: str, lease: int) -> bool:
        """Hold the lease for longer; false: it is lost. Raises `Outdated` after a migration too new for us."""
        ...

    async def check(self) -> None:
        """For those without a lease: raises `Outdated` after a migration too new for us, as their writes do then."""
        ...

    async def leave(self, worker: str) -> None:
        """It was asked to stop: whatever becomes of it from here on, it is not a death."""
        ...

    async def release(self, worker: str) -> None: ...
    async def take_over(self, worker: str, known_dead: Sequence[str] = ()) -> list[str]: ...
    async def claim(self, worker: str, workflows: Collection[str], limit: int, due_before: int) -> list[Claimed]: ...
    async def mortality(self) -> Mortality:
        """What a suspect is judged by."""
        ...

    async def claim_idle(self, worker: str, workflows: Collection[str], limit: int) -> int:
        """Own instances of these workflows that only wait and that nobody owns; returns how many."""
        ...

    async def resume(self, instance: str) -> Status | None:
        """Let a blocked instance run again, without what was held against it.

        The status it had: "blocked" if, and only if, this call resumed it; None: there is no such instance.
        """
        ...

    async def prune(self, finished_before: int, accepted_before: int, limit: int) -> int: ...

    async def mail(self, worker: str, limit: int) -> Mail: ...
    async def due(self, worker: str, before: int, limit: int) -> list[Due]: ...
    async def existing(self, instances: Collection[str]) -> set[str]:
        """Those of them that there are."""
        ...

    async def unloaded(self, worker: str) -> list[str]:
        """Its instances that ought to be in memory: they run, or nobody has looked for events for their waits yet."""
        ...

    async def shares(self, workflows: Collection[str], limit: int) -> Shares:
        """Who owns how many; up to `limit` of these workflows that are free."""
        ...

    async def idle(self, worker: str, due_after: int, limit: int) -> list[Idle]:
        """What this worker could let go of: it only waits, has no mail, and nothing of it falls due before then."""
        ...

    async def worker(self, worker: str) -> WorkerRow | None: ...
    async def misfits(self, instance: str) -> list[tuple[int, str, str]]: ...
    async def load(self, instance: str) -> Snapshot | None: ...
    async def instance(self, instance: str) -> InstanceRow | None: ...
    async def finished(self, instances: Collection[str]) -> list[InstanceRow]: ...
    async def instances(
        self,
        *,
        status: Collection[Status] = (),
        workflow: str | None = None,
        text: str | None = None,
        started_after: int | None = None,
        limit: int = 50,
        cursor: tuple[Any, ...] | None = None,
    ) -> list[InstanceRow]: ...
    async def waits(
        self,
        *,
        instance: str | None = None,
        type: str | None = None,
        limit: int = 50,
        cursor: tuple[Any, ...] | None = None,
    ) -> list[StoredWait]: ...
    async def events(
        self,
        *,
        type: str | None = None,
        instance: str | None = None,
        unmatched: bool = False,
        limit: int = 50,
        before: int | None = None,
    ) -> list[StoredEvent]: ...
    async def history(self, instance: str) -> list[Entry]: ...
