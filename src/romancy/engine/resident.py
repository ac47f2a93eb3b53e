"""An instance in memory, and the things that can happen to it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from enum import Enum

from romancy.core.history import Entry
from romancy.core.instance import Instance
from romancy.core.model import Event, Status
from romancy.core.operations import EventWait, Group, Operation, Timer
from romancy.storage.batch import BODY, Attempt, WaitRow


@dataclass(slots=True)
class ActivityDone:
    """An activity returned; `sent` leaves with its result."""

    op: str
    payload: bytes
    sent: list[Event]
    attempt: int


@dataclass(slots=True)
class ActivityFailed:
    """An activity failed for good."""

    op: str
    payload: bytes
    attempt: int


@dataclass(slots=True)
class Stored:
    """A fact that is in the history already, and that the code has yet to hear of."""

    entry: Entry


@dataclass(slots=True)
class AttemptChanged:
    """An attempt failed and will be repeated, or progress is to be kept; `retry`: what to log and tell."""

    attempt: Attempt
    error_type: str = ""
    message: str = ""


@dataclass(slots=True)
class Due:
    """The time of a timer, or of a wait's timeout, has come. `again`: a look was made, and it brought offers."""

    op: str
    again: bool = False


@dataclass(slots=True)
class TimedOut:
    """The time of a wait has come, and a look just now found no event for it."""

    op: str


@dataclass(slots=True)
class EventOffered:
    """The oldest event this wait, or any of its group, may take."""

    op: str
    event: Event
    group: Group | None = None


@dataclass(slots=True)
class CancelAsked:
    """Somebody asked for cancellation."""

    request: int
    reason: str


@dataclass(slots=True)
class Looked:
    """Deliveries others left were looked at."""

    events: list[int]


@dataclass(slots=True)
class SuspectBegins:
    """A call that may have killed its worker is about to begin again: recorded first."""

    op: str
    is_alone: bool


@dataclass(slots=True)
class SuspectRuns:
    """A suspect has run for as long as was recorded, and still does. `ran`: for so long by now."""

    op: str
    ran: int


@dataclass(slots=True)
class SuspectAccompanied:
    """A suspect that runs is about to have company: recorded first."""

    op: str


Input = (
    ActivityDone
    | ActivityFailed
    | Stored
    | AttemptChanged
    | Due
    | TimedOut
    | EventOffered
    | CancelAsked
    | Looked
    | SuspectBegins
    | SuspectRuns
    | SuspectAccompanied
)


class State(Enum):
    """Where a resident stands."""

    IDLE = "idle"
    READY = "ready"
    """It is fed in the next turn of the scheduler."""
    COMMITTING = "committing"
    """It is fed nothing: what comes waits in the inbox."""
    GONE = "gone"
    """It has left memory."""


IDLE, READY, COMMITTING, GONE = State  # to look a member up in its class takes long on Python 3.11


@dataclass(slots=True, eq=False)
class Resident:
    """One instance in memory."""

    instance: Instance
    version: int
    status: Status = "running"
    """As it is stored."""
    inbox: list[Input] = field(default_factory=list["Input"])
    offered: bool = False
    """Whether an event is offered in the inbox."""
    begun: bool = False
    state: State = IDLE
    crashed: bool = False
    announced: bool = False
    """Hooks were told of its start before."""
    stale_waits: Sequence[str] = ()
    """Rows of waits the code no longer has (it was changed compatibly): deleted with the next commit."""
    attempts: dict[str, Attempt] = field(default_factory=dict[str, Attempt])
    resting: set[str] = field(default_factory=set[str])
    """Activities that wait for the time of their next attempt."""
    unlooked: list[int] | None = None
    """What is offered to it is fed first, and often ends it; only then it is looked for more, with these hints."""
    consumed: Set[int] = frozenset()
    """Events taken in the last activation: an offer of one that was made before is void."""
    requests: Set[int] = frozenset()
    """Requests it was fed. One may be heard of several times: from its sender, in the mail, with what is loaded."""
    confirming: int = 0
    """Waits whose time has come and that are being looked for once more."""

    def __repr__(self) -> str:
        begun = "" if self.begun else " not begun"
        return f"<Resident {self.instance.id!r} v{self.version} {self.state.value}{begun} inbox={len(self.inbox)}>"

    @property
    def is_gone(self) -> bool:
        return self.state is GONE

    @property
    def is_evictable(self) -> bool:
        """Waiting, for the next attempt of an activity, too, and nothing under way."""
        idle = self.begun and self.state is IDLE and not (self.inbox or self.confirming)
        free = self.instance.activities == len(self.resting) and BODY not in self.attempts
        return idle and self.instance.outcome is None and free


def wait_row(op: Operation) -> WaitRow:
    """The row of an operation that waits."""
    if isinstance(op, EventWait):
        since, model = op.since_event, op.model_key
        return WaitRow(op.id, op.since, op.due, op.types, op.filter, since, model, op.spec, op.location, op.follows)
    assert isinstance(op, Timer)
    return WaitRow(op.id, op.since, op.due, location=op.location)
