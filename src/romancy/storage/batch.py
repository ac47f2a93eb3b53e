"""Batches: what the engine writes in one transaction, item by item, and the answer to each item."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from romancy.core.actor import sent_by
from romancy.core.admission import Admission
from romancy.core.continuation import NextRun
from romancy.core.failure import Failure
from romancy.core.history import Entry
from romancy.core.model import Event, Status
from romancy.core.operations import WaitRow
from romancy.core.published import Publication
from romancy.core.questions import ANSWERED
from romancy.core.queues import Place
from romancy.storage.attempts import Attempt, Trial
from romancy.storage.emissions import EmissionRow
from romancy.storage.instances import Admitted

STATUS_CODES: Mapping[Status, int] = {
    "running": 1,
    "waiting_for_event": 2,
    "waiting_for_timer": 3,
    "waiting_for_child": 4,
    "compensating": 0,
    "queued": 8,
    "blocked": 9,
    "completed": 10,
    "failed": 11,
    "cancelled": 12,
}
"""Below 2 an instance has work to do, below 8 it waits: two ranges, so that an index finds either in order.

At 8 it is queued. No worker claims it: only its admission makes it run, or its cancellation ends it.
"""
STATUS_NAMES: Mapping[int, Status] = {code: name for name, code in STATUS_CODES.items()}
UNKNOWN: Status = "blocked"
"""A status that this version does not know was written by a newer one: the instance can't run here."""
FIRST_FINAL = 10
BODY = ""
"""Used in place of a call id in attempts: the code of the workflow itself."""
CANCEL, RESUME = 1, 2
"""Kinds of requests from outside."""
CHILD_COMPLETED, CHILD_FAILED, CHILD_CANCELLED = 3, 4, 5
"""Kinds of requests to a parent: its child ended. The payload is the output or the error of the child."""
ENDED: Mapping[Status, int] = {"completed": CHILD_COMPLETED, "failed": CHILD_FAILED, "cancelled": CHILD_CANCELLED}
GIVEN_UP = 6
"""The kind of a request to a child: its parent no longer waits for it, and it is to be cancelled."""
RETRY = 7
"""The kind of the request that an instance finds when it was reopened: see `core/retrial.py`."""
CHILD_SPENT = 8
"""The kind of a request to a retried parent: its child can't go on, and another one is to be started in its place."""
HASTEN = 9
"""The kind of a request to begin the next attempts now. It is stored only if an attempt waits."""


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
    """Whether the worker that submits it wants to run it."""
    parent: str | None = None
    """The instance that starts it. It is refused unless its parent is unfinished, and owned by this worker."""
    parent_op: str | None = None
    attributes: Mapping[str, str] | None = None
    """Attributes that its arguments give, with their values as JSON."""
    is_free: bool | None = None
    """True: its parent does not cancel it."""
    since: str | int | None = None
    """Where it begins, as the database wrote it when the start was left in the inbox. None: now."""
    place: Place | None = None
    """Where it waits until it is admitted. It has no owner until then."""
    who: str | None = None
    """The name of the one who starts it, to be recorded with it."""
    headers: Mapping[str, str] | None = None
    """What travels with it besides its input; see `middleware.py`."""


@dataclass(slots=True)
class Consumption:
    """An event that this instance took, and the wait that took it."""

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
class Continuation:
    """The beginning of the next run of an instance. `at` of the commit is when it begins."""

    run: NextRun
    base: int
    """The number of the last entry of the run that ends."""
    forget: int
    """Entries up to this number are deleted: of the earlier runs, only the last one is kept."""


@dataclass(slots=True, frozen=True)
class Ending:
    """What the final commit of a child leaves for its parent: a request of this kind."""

    parent: str
    op: str
    kind: int
    payload: bytes


@dataclass(slots=True, frozen=True)
class Ask:
    """A request to a child to cancel."""

    child: str
    reason: str
    sealed: tuple[bytes | None, bytes] | None = None
    """The reason and the error, if values are sealed."""

    @property
    def payload(self) -> bytes:
        return self.reason.encode() if self.sealed is None else self.sealed[0] or b""

    @property
    def cancellation(self) -> bytes:
        """The error of a child that is cancelled at once."""
        if self.sealed is not None:
            return self.sealed[1]
        return Failure("CancelledError", self.reason or "cancelled", culprits=[]).encode()


@dataclass(slots=True, frozen=True)
class Rejoin:
    """A child that its parent waits for again, after the parent was retried or its code was changed.

    If the child has ended in the meantime, its parent is told now. With `reopens`, a child that failed or was cancelled
    is retried instead, and one that is open is no longer asked to cancel because its parent gave it up. If it can't be
    retried, because it has undone its steps, its parent is told that it is spent. The write decides,
    because the child may end at any time.
    """

    child: str
    op: str
    reopens: bool
    is_found: bool = False
    """The parent wanted to start it after a retry, and it was there. If it ended before that, it is spent."""


@dataclass(slots=True)
class Commit:
    """The result of one step. Applied as a whole if the instance is still at `version`, otherwise not at all."""

    instance: str
    version: int
    status: Status
    at: int
    same_status: bool = False
    """The status is already stored, so a cheaper write is enough."""
    entries: Sequence[Entry] = ()
    opened: Sequence[WaitRow] = ()
    closed: Sequence[str] = ()
    consumed: Sequence[Consumption] = ()
    misfits: Sequence[Misfit] = ()
    seen_deliveries: Sequence[int] = ()
    """Deliveries that the owner has handled."""
    sent: Sequence[Accept] = ()
    looks: Sequence[str] = ()
    """Waits that look for events again, in addition to the opened ones."""
    attempts: Sequence[Attempt] = ()
    attempts_done: Sequence[str] = ()
    trials: Sequence[Trial] = ()
    requests_done: Sequence[int] = ()
    output: bytes | None = None
    error: bytes | None = None
    description: str | None = None
    publication: Publication | None = None
    release: bool = False
    """Give up the instance; it has no owner afterwards."""
    builds: str | None = None
    """All builds whose code did not follow the history, of an instance that is blocked for it. Empty: none any more."""
    continuation: Continuation | None = None
    """The instance goes on with a new run. If this worker lacks its workflow, the instance has no owner afterwards."""
    ending: Ending | None = None
    asks: Sequence[Ask] = ()
    given_back: Sequence[int] = ()
    """Events that the instance took, and can take again."""
    rejoins: Sequence[Rejoin] = ()
    replaced: Sequence[str] = ()
    """Children in whose place others are started. If they are retried, they no longer answer the instance."""
    place: Place | None = None
    """Where it waits, of an instance that becomes queued: it was started by a process that did not know its queue."""
    children: Sequence[Start] = ()
    """Children that an instance started just before its run ended: they are stored with it, and have no owner yet."""
    append_only: bool = False
    """It only adds to the history, as most steps do. The instance's row and its version do not change.

    It is still a compare-and-set: the owner must be unchanged, and the next entries must not exist yet. If exactly
    these entries exist already, an earlier submission has applied it.
    """
    admits: Admission | None = None
    """The next instance of its queue, which gets the slot of this one when it ends."""
    emitted: Sequence[EmissionRow] = ()
    """What the code of the workflow emits."""
    workflow: str | None = None
    """The workflow of an instance that begins to wait, or continues as new: what it may take is learned from that."""
    headers: Mapping[str, str] | None = None
    """Headers that the instance gets, or that replace those it had."""

    @property
    def is_final(self) -> bool:
        return STATUS_CODES[self.status] >= FIRST_FINAL

    @property
    def changes_waits(self) -> bool:
        """Whether it has something to store about waits and their events."""
        taken = self.consumed or self.misfits or self.seen_deliveries
        return bool(self.opened or self.closed or self.looks or taken)

    @property
    def has_only_entries(self) -> bool:
        """Whether it has nothing to store besides entries and the status. One expression: every step asks."""
        return not (
            self.opened
            or self.closed
            or self.looks
            or self.consumed
            or self.misfits
            or self.seen_deliveries
            or self.sent
            or self.attempts
            or self.attempts_done
            or self.requests_done
            or self.description is not None
            or self.publication is not None
            or self.continuation is not None
            or self.asks
            or self.given_back
            or self.rejoins
            or self.replaced
            or self.headers is not None
            or self.emitted
        )

    @property
    def is_touch(self) -> bool:
        """Whether it leaves the instance's indexed columns alone, as most steps do; this halves the work."""
        return self.same_status and self.description is None and not self.release and self.continuation is None

    @property
    def due_looks(self) -> Iterator[tuple[str, str]]:
        """(instance, wait) of each wait that looks for events after the commit."""
        groups: set[tuple[bytes, str]] = set()
        for wait in self.opened:
            group = (wait.spec, wait.model)
            if not wait.types or (wait.since is None and group in groups):
                continue  # one look is enough for identical waits: taking one event leads to the next
            if wait.since is None:
                groups.add(group)
            yield self.instance, wait.op
        for op in self.looks:
            yield self.instance, op


@dataclass(slots=True)
class Accept:
    """An event to store. `payload` is the input of the workflows that it starts, except those in `unfit`."""

    event: Event
    payload: bytes
    unfit: Collection[str] = ()
    is_restored: bool = False
    """An event that was received before, for the case that it was removed since: then it is stored under an id of its
    own (`own_copy`). Else the stored one is as it was."""
    arrives_at: int | None = None
    """When the instances that it starts arrive in their queues. None: they have none, as far as is known here."""

    @property
    def answered_by(self) -> str | None:
        """The name of the one who sends it, if it answers a question of its target."""
        return sent_by(self.event.origin) if self.event.origin and self.event.type == ANSWERED else None

    def is_expired(self, now: int) -> bool:
        return self.event.expires_at is not None and self.event.expires_at <= now


@dataclass(slots=True)
class Request:
    """A request to an instance from outside: cancel it, or begin its next attempts now."""

    instance: str
    kind: int
    payload: bytes
    at: int
    who: str | None = None
    error: bytes | None = None
    """The error of an instance that it cancels, if values are sealed."""

    @property
    def verb(self) -> str:
        """What its author does, as acts call it."""
        return "retry now" if self.kind == HASTEN else "cancel"

    @property
    def cancellation(self) -> bytes:
        """The error of an instance that this request cancels."""
        if self.error is not None:
            return self.error
        return Failure("CancelledError", self.payload.decode() or "cancelled", culprits=[]).encode()


@dataclass(slots=True)
class Batch:
    """One transaction. `token` distinguishes a repeated submission from a write by another process."""

    worker: str | None
    workflows: Collection[str]
    token: bytes
    at: int
    starts: Sequence[Start] = ()
    commits: Sequence[Commit] = ()
    accepts: Sequence[Accept] = ()
    requests: Sequence[Request] = ()
    looks: Sequence[tuple[str, str | None]] = ()
    """(instance, wait) of waits that look for events; None means every wait of the instance."""
    asked: int = 0
    """The number of requests before these in the larger batch that this one was split from."""
    moved: Sequence[int] = ()
    """The numbers in the inbox of its starts, then of its events, if they come from there: see `Storage.move`."""
    room: int = 0
    """How many free instances the worker can take on, if its events wake them. The storage may take fewer."""

    def __len__(self) -> int:
        return len(self.starts) + len(self.commits) + len(self.accepts) + len(self.requests) + len(self.looks)


@dataclass(slots=True)
class Offer:
    """The oldest event that a wait can take."""

    instance: str
    op: str
    owner: str | None
    event: Event
    group: tuple[bytes, str] | None
    """(spec, model) of a wait that reaches back to the instance's beginning; any open wait like it can take it."""
    place: str | None = None
    """For other waits: a later wait with the beginning `After(place)` gets the events after this one."""


@dataclass(slots=True)
class Started:
    """An instance that was created by a start or by an event."""

    id: str
    workflow: str
    owner: str | None
    created_at: int
    input: bytes
    input_kind: int
    deadline: int | None = None


@dataclass(slots=True)
class StartAnswer:
    """Whether the instance was created. If not, `same` says whether the existing one has the same workflow and input.

    `owned`: this worker runs it. Of a child: `same` says whether the existing one is this very child. `lost`: its
    parent has ended, or belongs to another worker by now.
    """

    created: bool
    same: bool = True
    workflow: str = ""
    owned: bool = False
    lost: bool = False
    unread: str | None = None
    """Why the input of the existing one could not be compared."""


@dataclass(slots=True)
class Matched:
    """Identical waits of one instance that an event can go to. `op` is one of them; `model` validates the data."""

    instance: str
    op: str
    model: str
    spec: bytes


@dataclass(slots=True)
class AcceptAnswer:
    """The result for one event: the waits that it matched and the instances that it started."""

    seq: int
    duplicate: bool
    matched: list[Matched]
    started: list[Started]
    differs: bool = False
    """It has the source and id of a stored event, but different content."""


@dataclass(slots=True)
class RequestAnswer:
    """The worker that must act on a request. Status None: the instance does not exist."""

    status: Status | None
    owner: str | None
    id: int = 0
    took: bool = False
    """Whether the request was recorded or carried out at once; false if the instance had already ended."""


@dataclass(slots=True)
class Letter:
    """A request that a commit left for another instance, such as that its child ended. `owner` must act on it."""

    request: int
    instance: str
    owner: str | None
    kind: int
    payload: bytes
    op: str | None = None


@dataclass(slots=True)
class BatchResult:
    """The result of a batch, item by item. `fenced`: this worker was taken over, and none of its commits count."""

    fenced: bool = False
    starts: list[StartAnswer] = field(default_factory=lambda: [])
    commits: list[bool] = field(default_factory=lambda: [])
    accepts: list[AcceptAnswer] = field(default_factory=lambda: [])
    sent: list[AcceptAnswer] = field(default_factory=lambda: [])
    requests: list[RequestAnswer] = field(default_factory=lambda: [])
    offers: list[Offer] = field(default_factory=lambda: [])
    letters: list[Letter] = field(default_factory=lambda: [])
    admitted: Sequence[Admitted] = ()
    """The instances that got the slots of those that ended."""
    repeated: bool = field(default=False, compare=False)
    """An earlier submission had stored some of its commits. What those left for other instances is not in `letters`,
    and what they admitted is not in `admitted`."""
