"""Batches: what the engine writes in one transaction, item by item, and what is answered to each item."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from romancy.core.failure import Failure
from romancy.core.filters import NO_FILTER, Filter
from romancy.core.history import Entry
from romancy.core.model import Event, Status

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
FIRST_FINAL = 10
BODY = ""
"""Stands for the code of the workflow, where attempts have the id of a call."""
CANCEL, RESUME = 1, 2
"""Kinds of requests."""


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
    """Give up the instance: it has no owner afterwards."""
    append_only: bool = False
    """It only adds to the history, as most steps do: the instance's row stays as it is, and so does its version.

    That the owner is still the owner, and the next entries not there yet, makes it a compare-and-set all the same. It
    was applied by an earlier submission if the entries are there just as they are in here.
    """

    @property
    def is_final(self) -> bool:
        return STATUS_CODES[self.status] >= FIRST_FINAL

    @property
    def is_touch(self) -> bool:
        """It leaves alone what is indexed of the instance, as most steps do: half the work."""
        return self.same_status and self.description is None and not self.release

    @property
    def due_looks(self) -> Iterator[tuple[str, str]]:
        """(instance, wait) to look for events once it is stored."""
        groups: set[tuple[bytes, str]] = set()
        for wait in self.opened:
            group = (wait.spec, wait.model)
            if not wait.types or (wait.since is None and group in groups):
                continue  # one look serves all that are alike: taking one event leads to the next
            if wait.since is None:
                groups.add(group)
            yield self.instance, wait.op
        for op in self.looks:
            yield self.instance, op


@dataclass(slots=True)
class Accept:
    """An event to be stored; `payload` is the input of workflows it starts, but for those in `unfit`."""

    event: Event
    payload: bytes
    unfit: Collection[str] = ()

    def is_expired(self, now: int) -> bool:
        return self.event.expires_at is not None and self.event.expires_at <= now


@dataclass(slots=True)
class Request:
    """Something asked of an instance from outside."""

    instance: str
    kind: int
    payload: bytes
    at: int

    @property
    def cancellation(self) -> bytes:
        """The error of an instance that it cancels."""
        return Failure("CancelledError", self.payload.decode() or "cancelled").encode()


@dataclass(slots=True)
class Batch:
    """One transaction. `token` tells a repeated submission from another process's write."""

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
