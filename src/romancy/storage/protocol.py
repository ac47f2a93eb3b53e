"""The storage protocol: one conditional write path, claims, and reads. Typed rows and outcomes, no SQL.

Every change of an instance goes through `commit(batch)`. A batch is one transaction; each item in it is a
compare-and-set with a result of its own. Submitting the same batch again, after a lost connection, gives the same
result. Methods raise `TransientError` while the database is unavailable; the caller tries again.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

from romancy.core.interests import Interest
from romancy.core.model import Status
from romancy.storage.acts import Acts
from romancy.storage.batch import Batch, BatchResult, Commit
from romancy.storage.catalog import Catalog
from romancy.storage.desk import DeskRows
from romancy.storage.emissions import Emissions
from romancy.storage.forks import Fork
from romancy.storage.guests import Inbox
from romancy.storage.inbox_items import InboxItem
from romancy.storage.interests import Cut, Held
from romancy.storage.queues import Queues
from romancy.storage.records import (
    FIRST_MAIL,
    Claimed,
    Due,
    Finished,
    Idle,
    KnownChild,
    Mail,
    MailPlace,
    Mortality,
    Shares,
    Snapshot,
    Unfit,
)
from romancy.storage.schedules import Schedules
from romancy.storage.sessions import Sessions
from romancy.storage.sinks import Sinks

Trigger = tuple[str, str, int | None]
"""(event type, workflow it starts, timeout of that workflow)"""
TAKEN_BACK = "\x1f"
"""Before the type of a stored trigger: workers no longer announce this type for the workflow, given by its bare name.

No event starts anything by it, since no type and no pattern contains a control character.
"""
Answered = Callable[["BatchResult | None", "BaseException | None"], None]
"""Called on the event loop, from a plain callback, with the result or with the error."""


class Transaction(Protocol):
    """An open transaction, in which an activity runs. It ends with `commit` or `abandon`."""

    @property
    def connection(self) -> Any:
        """The driver's connection. It can't be committed or rolled back."""
        ...

    async def commit(self, batch: Batch, waiting: int = 0) -> BatchResult:
        """Store a batch with a single commit of an instance, together with what was written before, and end.

        `waiting`: how many others wait to begin a transaction. One of them can begin in the same round trip.

        If the commit is refused, or if an error is raised, everything is rolled back. If the connection is lost
        meanwhile, this finds out what happened.
        """
        ...

    async def abandon(self) -> None:
        """Roll back, and end, unless it has ended already.

        The connection can't be used any more, even by a thread that is still running.
        """
        ...


class Storage(Protocol):
    """One database, as the engine sees it."""

    is_remote: bool
    """Whether another process stores the batches. It can then work on one batch while we follow up on the last.

    It must not answer before `commit` returns, because answers are followed up in the order of their batches. Otherwise
    an offer made before its wait took the event, but followed up after that was stored, would count as a second event.
    """

    keys: str
    """Part of the name of this build, if values are sealed: a build with other keys may be able to open them."""

    over: int | None
    """Bytes above which values are kept outside the database; None if all of them are kept in it."""

    has_one_writer: bool
    """Whether an open transaction keeps all other writes waiting."""

    def watch(
        self, changed: Callable[[], None], arrived: Callable[[], None] = ..., rescheduled: Callable[[], None] = ...
    ) -> None:
        """Call `changed` on the event loop whenever another process has written something. Replaces an earlier one.

        `arrived` is called if something may have been left in the inbox, `rescheduled` if another process has changed
        a schedule. Not every backend notices the latter.
        """
        ...

    @property
    def catalog(self) -> Catalog:
        """Reads for people: lists and pages."""
        ...

    @property
    def sessions(self) -> Sessions:
        """The viewer's login sessions."""
        ...

    @property
    def schedules(self) -> Schedules:
        """The table of schedules."""
        ...

    @property
    def acts(self) -> Acts:
        """Who did what to instances."""
        ...

    @property
    def sinks(self) -> Sinks:
        """Sinks: how far they have come in the event log."""
        ...

    @property
    def desk(self) -> DeskRows:
        """What operators look at."""
        ...

    @property
    def emissions(self) -> Emissions:
        """What instances emit."""
        ...

    @property
    def queues(self) -> Queues:
        """Queues: what waits in them, and how it is admitted."""
        ...

    async def open(self) -> None:
        """Connect, and bring the schema up to date if that is allowed. A `StorageError` says what to do."""
        ...

    async def close(self) -> None:
        """Disconnect. Batches under way fail with a `TransientError`; whether they were stored is unknown."""
        ...

    def append(self, commit: Commit, worker: str | None) -> bool:
        """Store a commit that only adds one entry, if that is possible without waiting.

        True: it is stored. False: submit it with `commit`, which also finds out whether it was stored after all.
        """
        ...

    def commit(self, batch: Batch, answered: Answered) -> None:
        """Store a batch, and call `answered` with its result, perhaps before this returns."""
        ...

    async def begin(self, lease: int, since: float = math.inf) -> Transaction:
        """Begin a transaction for an activity. `lease`: of this worker, in microseconds.

        `since`: when its caller began to wait for it, by the stopwatch. It can have begun at any time after that.

        If this process is paused during a commit, the transaction must not keep others from taking over.
        """
        ...

    # --- workers ----------------------------------------------------------------------------------------------------
    async def register(
        self, worker: str, lease: int, triggers: Sequence[Trigger], workflows: Collection[str], about: str | None = None
    ) -> None:
        """Add a worker with a lease in microseconds. `triggers` replace those of its workflows, in any version.

        `about`: what the worker says about itself; see `storage/desk.py`.
        """
        ...

    def drop_lock(self, worker: str) -> None:
        """Release what shows that this worker's process is alive, because the worker was taken over."""
        ...

    def stop_waiting(self) -> None:
        """The app is stopping: from now on, wait only a moment if the database is busy, and then fail."""
        ...

    def announce(self, triggers: Sequence[Trigger], workflows: Collection[str]) -> Awaitable[None]:
        """Replace the triggers of every version of these workflows. Then no event is stored without them.

        What is removed stays known as taken back, until it is announced again; see `TAKEN_BACK`.
        """
        ...

    def propose(self, triggers: Sequence[Trigger]) -> Awaitable[None]:
        """Add those of these triggers whose workflow, in any version, has none for the type. Replace nothing.

        What was taken back from the workflow, in any version, is not added: the proposing process may be out of date.
        """
        ...

    async def renew(self, worker: str, lease: int, load: int = 0, about: str | None = None) -> bool:
        """Extend a lease. False: it was lost. Raises `Outdated` after a migration that is too new for this library.

        `load`: how many activities it runs now. `about`: what the worker says about itself, if that has changed.
        """
        ...

    async def check(self) -> None:
        """For processes without a lease: raises `Outdated` as `renew` does. Their writes are refused by then."""
        ...

    async def leave(self, worker: str) -> None:
        """Record that the worker was asked to stop: if its process is killed from now on, that is not a death."""
        ...

    async def release(self, worker: str) -> None:
        """Delete the worker. Its instances are free at once, and no death is counted."""
        ...

    async def take_over(self, worker: str, known_dead: Sequence[str] = ()) -> list[str]:
        """Delete all workers whose lease has ended or whose process is gone, and those in `known_dead`.

        From then on nothing they submit is applied, and their instances are free. Returns the deleted ones.
        """
        ...

    async def is_gone(self, worker: str) -> bool:
        """Return whether the process of a worker seems to have died, though its lease has not ended.

        On PostgreSQL, it may also be reconnecting. False if there is no sign of it.
        """
        ...

    async def gone(self, workers: Collection[str]) -> set[str]:
        """Return those of these workers for which `is_gone` is true."""
        ...

    # --- instances of a worker --------------------------------------------------------------------------------------
    async def claim(self, worker: str, workflows: Collection[str], limit: int, due_before: int) -> list[Claimed]:
        """Own free instances that have something to do: they run, have mail, or have a timer that is due soon."""
        ...

    async def claim_idle(self, worker: str, workflows: Collection[str], limit: int) -> int:
        """Own free instances of these workflows that only wait. Returns how many."""
        ...

    async def unfit(self, workflows: Collection[str], after: tuple[str, str], limit: int) -> list[Unfit]:
        """Return instances of these workflows that are blocked because some builds could not follow their history.

        A page of at most `limit`, in order, after a position; `("", "")` is the beginning.
        """
        ...

    async def claim_unfit(self, worker: str, wanted: Sequence[Unfit]) -> set[str]:
        """Own those of these instances that are still blocked, and for which no other build was added since.

        They run again from now on, and keep their builds until the next commit. Returns the ids.
        """
        ...

    async def mortality(self) -> Mortality:
        """Return worker deaths and what is known about each suspect: the evidence for a verdict."""
        ...

    async def resume(self, instance: str, who: str | None = None) -> Status | None:
        """Let a blocked instance run again, and clear its suspicions. `who`: recorded with it, in the same transaction.

        Returns the status it had: "blocked" if and only if this call resumed it; None if it does not exist.
        """
        ...

    async def resume_all(self, instances: Collection[str], who: str | None = None) -> set[str]:
        """Resume those of these instances that are blocked, in one transaction, as `resume` does. Returns them."""
        ...

    async def reopen(self, instances: Collection[str], at: int, head: bytes, who: str | None = None) -> set[str]:
        """Let those of these instances that failed or were cancelled run again, in one transaction. Returns them.

        Each finds a request to retry: `head`, followed by the error it had ended with. Its time limit begins again.
        Instances that have undone their steps are left as they are.
        """
        ...

    async def fork(self, fork: Fork) -> bool:
        """Copy an instance. False: the id of the copy is taken, or the instance does not exist (any more).

        Also if the instance has undone its steps, and the copy would have entries of its history.
        """
        ...

    async def prune(
        self, finished_before: int, accepted_before: int, limit: int, *, failed_before: int | None = None
    ) -> int:
        """Delete up to `limit` instances that ended before a time, and as many events that no instance can still take.

        Of those events, the ones accepted before a time; see `interests.py`. `failed_before`: the time for failed
        instances, if it differs. Returns how many were deleted.
        """
        ...

    async def cut(self, accepted_before: int, limit: int) -> list[Cut]:
        """Delete up to `limit` events that were accepted before a time, even if an open instance may take them.

        Except those that are being delivered, and those that expire later. Returns what was deleted, by type.
        """
        ...

    async def prepare(self, batch: Batch) -> None:
        """Write the values of a batch that are kept outside the database. Storing it does not wait for that then."""
        ...

    async def sweep(self) -> int:
        """Remove values outside the database that are not needed any more; return how many."""
        ...

    async def expect(self, interests: Sequence[Interest]) -> None:
        """Store which events instances of workflows may take. What was stored before also stays."""
        ...

    async def held(self, before: int, most: int) -> list[Held]:
        """Return which events that were accepted before a time are kept for whom, by type, and by addressee if any.

        Counts up to `most` in all: it takes a second for each million. Of addressed events, counts the oldest 10,000.
        """
        ...

    async def mail(self, worker: str, limit: int, after: MailPlace = FIRST_MAIL) -> Mail:
        """Return unhandled deliveries and requests for the worker's instances, up to `limit` of each, in order.

        `after`: where an earlier reading ended, because there may be many for an instance that can't be fed now.
        """
        ...

    async def due(self, worker: str, before: int, limit: int) -> list[Due]:
        """Return the worker's timers, timeouts and retries that are due before a time, earliest first."""
        ...

    async def unloaded(self, worker: str) -> list[str]:
        """Return the worker's instances that must be in memory: they run, or a look for their events is due."""
        ...

    async def shares(self, workflows: Collection[str], limit: int) -> Shares:
        """Return how many instances each worker owns, and how many (up to `limit`) of these workflows are free."""
        ...

    async def idle(self, worker: str, due_after: int, limit: int) -> list[Idle]:
        """Return the worker's instances that it can give up: waiting, without mail, and not due before then."""
        ...

    # --- the inbox ---------------------------------------------------------------------------------------------------
    @property
    def inbox(self) -> Inbox:
        """Where callers leave starts and events, in transactions of their own."""
        ...

    async def arrivals(self, limit: int, bytes: int, after: int = 0) -> list[InboxItem]:
        """Return what is in the inbox, oldest first, except what was refused: up to `limit`, and about this much.

        Only what has a number above `after`. Rows of a newer library may be `Unreadable`.
        """
        ...

    async def move(self, batch: Batch) -> BatchResult | None:
        """Store the starts and events of a batch, and remove them from the inbox, where its `moved` says they are.

        They are accepted in the order of all moves. None: nothing was stored, because some are not there any more. A
        start stays there, as refused, if another one has its id. No two starts of a batch may have the same id.
        """
        ...

    async def refuse_arrival(self, number: int, reason: str) -> None:
        """Leave something in the inbox for good, because it can't be stored."""
        ...

    async def forget_arrival(self, number: int) -> bool:
        """Remove something that was refused from the inbox. False: there is no such thing."""
        ...

    # --- reads ------------------------------------------------------------------------------------------------------
    async def load(self, instance: str) -> Snapshot | None:
        """Return everything needed to load an instance into memory, from one consistent snapshot."""
        ...

    async def load_many(self, instances: Sequence[str]) -> dict[str, Snapshot | None]:
        """Return the same for many instances, without those that are to be loaded alone because it takes a while."""
        ...

    async def existing(self, instances: Collection[str]) -> set[str]:
        """Return those of the given ids that exist."""
        ...

    async def children(self, parent: str, instances: Collection[str]) -> dict[str, KnownChild]:
        """Return those of the given ids that are children of an instance."""
        ...

    async def finished(self, instances: Collection[str]) -> list[Finished]:
        """Return those of the given instances that have ended or are blocked."""
        ...
