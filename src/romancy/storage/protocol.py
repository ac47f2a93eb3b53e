"""What the engine asks of a database: one conditional write path, claims, and reads. Typed rows, outcomes, no SQL.

Everything that changes goes through `commit(batch)`: a batch is one transaction, each item in it a compare-and-set that
is answered on its own. Submitting the same batch again (after a lost connection) gives the same answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from romancy.core.filters import NO_FILTER, Filter
from romancy.core.history import Entry, Kind
from romancy.core.model import Event, Status
from romancy.errors import StorageError

if TYPE_CHECKING:
    from romancy.storage.catalog import Catalog
    from romancy.storage.sessions import SessionStore

STATUS_CODES: Mapping[Status, int] = {
    "running": 1,
    "waiting_for_event": 2,
    "waiting_for_timer": 3,
    "compensating": 4,
    "blocked": 9,
    "completed": 10,
    "failed": 11,
    "cancelled": 12,
}
STATUS_NAMES: Mapping[int, Status] = {code: name for name, code in STATUS_CODES.items()}
BLOCKED, FIRST_FINAL = 9, 10
DEATHS_KEPT = 7 * 24 * 3600 * 1_000_000
"""Microseconds for which worker deaths are remembered."""
MOST_DEATHS = 5_000
POOLED = 600 * 1_000_000
"""Microseconds for which suspects of one name are pooled."""
MOST_COUNTED = 50_000
"""Instances of one worker are not counted beyond this: more is much."""

BODY = ""
"""Stands for the code of the workflow, where attempts have the id of a call."""
CANCEL, RESUME = 1, 2
"""Kinds of requests."""


class TransientError(StorageError):
    """The database can't take it now, but may in a moment: the same batch is submitted again."""


class Unusable(TransientError):
    """It is read-only, damaged, or not what it should be: only people can change that.

    A running app tries again, as in an outage: they may be at it. One that starts tells them at once.
    """


class TookTooLong(TransientError):
    """The database gave up on it: it took too long, waited too long for somebody's lock, or needed too much memory.

    Less at once may do. What was stored, if an earlier submission got through, is known by the batch's token.
    """


class NotThere(StorageError):
    """There is no such database, or nothing of ours in it, and whoever opens it may not make it."""


class RefusedValue(StorageError):
    """The database will never take this."""


# --- a batch --------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Start:
    """A new instance; refused if its id is taken."""

    id: str
    workflow: str
    input: bytes
    input_kind: int
    created_at: int
    deadline: int | None = None
    mine: bool = False
    """The worker that submits it wants to run it."""


@dataclass(slots=True)
class WaitRow:
    """What an instance waits for: an event, a time, or both."""

    op: str
    created_at: int
    due: int | None = None
    types: tuple[str, ...] = ()
    filter: Filter = NO_FILTER
    since: int | str | None = None
    model: str = ""
    spec: bytes = b""
    location: str = ""
    follows: bool = False
    """It was opened while the instance had another wait like it, that also reaches back to the instance's beginning."""


@dataclass(slots=True)
class Consumption:
    """An event this instance took, with the wait that took it."""

    event: int
    type: str
    wait: WaitRow


@dataclass(slots=True)
class Misfit:
    """An event whose data did not fit the model of a wait."""

    op: str
    model: str
    event: int
    error: str


@dataclass(slots=True, frozen=True)
class Suspicion:
    """What speaks for and against something that was running when its worker died. Times in microseconds, at most."""

    since: int
    tried: int = 0
    """How long it ran since."""
    tried_alone: int = 0
    """How long it ran while no other suspect did."""
    alone: int = 0
    """Deaths meanwhile."""
    run: int = 0
    """How much of `tried` belongs to the run under way."""
    is_alone: bool = False
    """Whether it runs while no other suspect does."""


@dataclass(slots=True)
class Attempt:
    """The durable state of an activity that failed, reported progress, or outlived a worker.

    With `op` "": the code of the workflow, which outlived a worker.
    """

    op: str
    n: int
    first_at: int
    next_due: int | None = None
    error: bytes | None = None
    progress: bytes | None = None
    crashes: int = 0
    started: bool = False
    suspicion: Suspicion | None = None
    culprit: str = ""
    """The name under which alike suspects are pooled."""


@dataclass(slots=True)
class Trial:
    """A suspect that ran while no other did, and ended by itself: kept for the tally of its name."""

    culprit: str
    at: int
    since: int
    tried_alone: int
    alone: int


@dataclass(slots=True)
class Commit:
    """Everything that came of one activation. Applied whole if the instance is still at `version`, else not at all."""

    instance: str
    version: int
    status: Status
    at: int
    same_status: bool = False
    """The status is the one stored already: a cheaper write will do."""
    entries: Sequence[Entry] = ()
    opened: Sequence[WaitRow] = ()
    closed: Sequence[str] = ()
    consumed: Sequence[Consumption] = ()
    misfits: Sequence[Misfit] = ()
    seen_deliveries: Sequence[int] = ()
    """Deliveries the owner has seen to."""
    sent: Sequence[Accept] = ()
    looks: Sequence[str] = ()
    """Waits to look for events once more, besides the opened ones."""
    attempts: Sequence[Attempt] = ()
    attempts_done: Sequence[str] = ()
    trials: Sequence[Trial] = ()
    requests_done: Sequence[int] = ()
    output: bytes | None = None
    error: bytes | None = None
    description: str | None = None
    release: bool = False
    """Give the instance up: nobody owns it afterwards."""
    append_only: bool = False
    """It only adds to the history, as most steps do: the instance's row stays as it is, and so does its version.

    That the owner is still the owner, and the next entries not there yet, makes it a compare-and-set all the same. It
    was applied by an earlier submission if the entries are there just as they are in here.
    """

    @property
    def is_final(self) -> bool:
        return STATUS_CODES[self.status] >= FIRST_FINAL


@dataclass(slots=True)
class Accept:
    """An event to be stored; `payload` is the input of workflows it starts, but for those in `unfit`."""

    event: Event
    payload: bytes
    unfit: Collection[str] = ()


@dataclass(slots=True)
class Request:
    """Something asked of an instance from outside."""

    instance: str
    kind: int
    payload: bytes
    at: int


@dataclass(slots=True)
class Batch:
    """One transaction. `token` tells a repeated submission from somebody else's write."""

    worker: str | None
    workflows: Collection[str]
    token: bytes
    at: int
    starts: Sequence[Start] = ()
    commits: Sequence[Commit] = ()
    accepts: Sequence[Accept] = ()
    requests: Sequence[Request] = ()
    looks: Sequence[tuple[str, str | None]] = ()
    """(instance, wait) to look for events; None: every wait of the instance."""
    asked: int = 0
    """How many requests come before these in the batch of which this is a part."""

    def __len__(self) -> int:
        return len(self.starts) + len(self.commits) + len(self.accepts) + len(self.requests) + len(self.looks)


# --- its answer -----------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Offer:
    """The oldest event a wait may take."""

    instance: str
    op: str
    owner: str | None
    event: Event
    group: tuple[bytes, str] | None
    """(spec, model) of a wait that reaches back to the instance's beginning: any open wait like it may take it."""


@dataclass(slots=True)
class Started:
    """An instance that came to be, by a start or by an event."""

    id: str
    workflow: str
    owner: str | None
    created_at: int
    input: bytes
    input_kind: int
    deadline: int | None = None


@dataclass(slots=True)
class StartAnswer:
    """`created`, or else whether the instance that has the id is of the same workflow and input.

    `owned`: it is this worker's to run.
    """

    created: bool
    same: bool = True
    workflow: str = ""
    owned: bool = False


@dataclass(slots=True)
class Matched:
    """Waits of one instance an event may go to, all alike; `op` is one of them, `model` judges the data."""

    instance: str
    op: str
    model: str
    spec: bytes


@dataclass(slots=True)
class AcceptAnswer:
    """What became of an event: the waits it matched, the instances it started."""

    seq: int
    duplicate: bool
    matched: list[Matched]
    started: list[Started]
    differs: bool = False
    """It is a duplicate by source and id only: what is stored says something else."""


@dataclass(slots=True)
class RequestAnswer:
    """Who must act on a request; status None: there is no such instance."""

    status: Status | None
    owner: str | None
    id: int = 0
    took: bool = False
    """Whether the request was recorded or met at once; false if the instance had ended before."""


@dataclass(slots=True)
class BatchResult:
    """Item by item what became of a batch. `fenced`: this worker was taken over, none of its commits count."""

    fenced: bool = False
    starts: list[StartAnswer] = field(default_factory=list[StartAnswer])
    commits: list[bool] = field(default_factory=list[bool])
    accepts: list[AcceptAnswer] = field(default_factory=list[AcceptAnswer])
    sent: list[AcceptAnswer] = field(default_factory=list[AcceptAnswer])
    requests: list[RequestAnswer] = field(default_factory=list[RequestAnswer])
    offers: list[Offer] = field(default_factory=list[Offer])


# --- ownership ------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Claimed:
    """An instance that is this worker's from now on. `crashed`: its former owner died over it.

    `waits`: nothing has happened to it, only a time of its will come soon: it need not be read into memory yet.
    """

    id: str
    crashed: bool
    waits: bool


@dataclass(slots=True, frozen=True)
class Death:
    """A worker that died: it lived from `since` until `at`."""

    since: int
    at: int


@dataclass(slots=True, frozen=True)
class Tally:
    """What is known of all suspects of one name together; see `Suspicion`. `ended`: how many ended by themselves."""

    since: int
    tried_alone: int
    alone: int
    ended: int = 0


@dataclass(slots=True, frozen=True)
class Mortality:
    """The workers that died of late, and what is known of suspects by name."""

    deaths: list[Death]
    tallies: dict[str, Tally]


@dataclass(slots=True)
class Shares:
    """How many unfinished instances each worker owns that holds its lease; empty where there is only one.

    `free`: how many that only wait nobody owns. Neither is counted beyond a limit.
    """

    owned: dict[str, int]
    free: int


@dataclass(slots=True)
class Idle:
    """An instance of this worker's that only waits."""

    id: str
    version: int
    status: Status


@dataclass(slots=True)
class Mail:
    """What others left for this worker's instances."""

    deliveries: list[tuple[str, int]]
    requests: list[tuple[int, str, int, bytes]]
    """(request, instance, kind, payload)"""


@dataclass(slots=True)
class Due:
    """A wait or retry of this worker's that falls due."""

    due: int
    instance: str
    op: str


# --- reads ----------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class InstanceRow:
    id: str
    workflow: str
    status: Status
    owner: str | None
    version: int
    input: bytes
    input_kind: int
    output: bytes | None
    error: bytes | None
    deadline: int | None
    description: str | None
    created_at: int
    updated_at: int
    finished_at: int | None


@dataclass(slots=True)
class WorkerRow:
    """A worker that holds its lease."""

    id: str
    host: str
    until: int
    started_at: int


@dataclass(slots=True)
class StoredWait:
    """A wait as it is listed: `kind` is event, timer or retry."""

    instance: str
    workflow: str
    op: str
    kind: str
    spec: bytes
    created_at: int
    due: int | None
    location: str
    error: bytes | None = None


@dataclass(slots=True)
class Snapshot:
    """All that is needed to bring an instance back to memory."""

    row: InstanceRow
    history: list[Entry]
    waits: dict[str, int | None]
    attempts: list[Attempt]
    requests: list[tuple[int, int, bytes]]
    deliveries: list[int]

    @property
    def unheard(self) -> Entry | None:
        """The result of a suspect that is stored, and that the code has not heard of: its attempts are still recorded.

        It is not to be replayed: what the code does with it was never stored, so it happens for the first time.
        """
        if not self.history or not self.attempts:
            return None
        last = self.history[-1]
        is_result = last.kind in (Kind.ACTIVITY_COMPLETED, Kind.ACTIVITY_FAILED)
        return last if is_result and any(a.op == last.op for a in self.attempts) else None

    @property
    def heard(self) -> list[Entry]:
        """The history as far as the code has heard of it."""
        return self.history if self.unheard is None else self.history[:-1]


@dataclass(slots=True)
class StoredEvent:
    """An event with the instances that took it."""

    event: Event
    receivers: list[tuple[str, str]]
    differed_at: int | None = None
    """When another event with its source and id was first dropped."""


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
