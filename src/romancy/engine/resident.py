"""An instance in memory, and the inputs it can get."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum

from romancy.core.history import Entry, Kind
from romancy.core.instance import Instance
from romancy.core.model import Event, Status
from romancy.core.operations import Group, Operation
from romancy.core.retrial import Retrial
from romancy.storage.attempts import Attempt
from romancy.storage.batch import BODY


@dataclass(slots=True)
class Answered:
    """The answer to an operation: it becomes an entry of this kind. The events in `sent` are stored with it."""

    op: str
    kind: Kind
    payload: bytes
    sent: Sequence[Event] = ()
    attempt: int = 1


@dataclass(slots=True)
class Stored:
    """An entry that is already in the history, but was not fed to the code yet."""

    entry: Entry


@dataclass(slots=True)
class AttemptChanged:
    """An attempt failed and will be retried, or has progress to store. The other fields are for hooks."""

    attempt: Attempt
    error_type: str = ""
    message: str = ""


@dataclass(slots=True)
class Due:
    """A timer, or the timeout of a wait, is due. `again`: a look for events was made, and it brought offers."""

    op: str
    again: bool = False


@dataclass(slots=True)
class TimedOut:
    """The timeout of a wait is due, and no further look for events is needed."""

    op: str


@dataclass(slots=True)
class EventOffered:
    """The oldest event that this wait, or any of its group, can take."""

    op: str
    event: Event
    group: Group | None = None
    place: str | None = None
    """Where the storage found it, for waits with a beginning of their own."""


@dataclass(slots=True)
class CancelAsked:
    """Cancellation was requested."""

    request: int
    reason: str
    by_parent: bool = False
    """The parent no longer waits for it. The same request can be made again, so it never counts as a second one."""


@dataclass(slots=True)
class ChildEnded:
    """A child ended. It becomes an entry of this kind."""

    request: int
    op: str
    kind: Kind
    payload: bytes


@dataclass(slots=True)
class ChildSpent:
    """A child can't go on after a retry of its parent. Another one is started in its place."""

    request: int
    op: str


@dataclass(slots=True)
class ChildFound:
    """An instance wanted to start a child that was there already. Its end may have come too early to be heard.

    `may_be_old`: the instance was retried, and the child is perhaps from before that.
    """

    op: str
    may_be_old: bool


@dataclass(slots=True)
class Hastened:
    """Activities that wait for their next attempts are to begin them now."""

    request: int


@dataclass(slots=True)
class Looked:
    """A look was made for these stored deliveries."""

    events: list[int]


@dataclass(slots=True)
class SuspectBegins:
    """A call that may have killed its worker is about to begin again. That is recorded first."""

    op: str
    is_alone: bool


@dataclass(slots=True)
class SuspectRuns:
    """A suspect has run for the recorded time and is still running. `ran`: how long it has run by now."""

    op: str
    ran: int


@dataclass(slots=True)
class SuspectAccompanied:
    """A running suspect is about to get company. That is recorded first."""

    op: str


Input = (
    Answered
    | Stored
    | AttemptChanged
    | Due
    | TimedOut
    | EventOffered
    | CancelAsked
    | ChildEnded
    | ChildSpent
    | ChildFound
    | Hastened
    | Looked
    | SuspectBegins
    | SuspectRuns
    | SuspectAccompanied
)


@dataclass(slots=True, frozen=True)
class Turn:
    """The right to add the next entry, in a transaction of its own. Until it is given back, nothing else is fed."""

    n: int
    """The number of the entry."""
    at: int
    """The earliest time that it can have."""
    version: int
    status: Status


@dataclass(slots=True, frozen=True)
class TransactionAsks:
    """A transactional activity asks for its turn. The answer is None if its result is no longer needed."""

    op: str
    answer: Callable[[Turn | None], None]


MANY_CHILDREN = 100
"""With more open children an instance stays in memory: otherwise the end of each child would replay it."""


class State(Enum):
    """The state of a resident."""

    IDLE = "idle"
    READY = "ready"
    """It is fed in the next turn of the scheduler."""
    COMMITTING = "committing"
    """It is fed nothing: inputs wait in the inbox."""
    STARTING = "starting children"
    """It is fed nothing, as above."""
    GONE = "gone"
    """It has left memory."""


IDLE, READY, COMMITTING, STARTING, GONE = State  # looking up an enum member is slow on Python 3.11


@dataclass(slots=True, eq=False)
class Resident:
    """One instance in memory."""

    instance: Instance
    version: int
    status: Status = "running"
    """The stored status."""
    inbox: list[Input] = field(default_factory=lambda: [])
    offered: bool = False
    """Whether the inbox contains an offer."""
    begun: bool = False
    state: State = IDLE
    crashed: bool = False
    announced: bool = False
    """Hooks were already told about its start."""
    stale_waits: Sequence[str] = ()
    """Stored waits that the code no longer has, after a compatible change. They are deleted with the next commit."""
    outdated: Sequence[Operation] = ()
    """Waits that are stored as other code asked for them. Their rows are among the stale ones; the next commit after
    that stores them anew. (One commit can't do both.)"""
    attempts: dict[str, Attempt] = field(default_factory=lambda: {})
    fed: Sequence[str] = ()
    """Calls whose stored results were fed since the last commit. Their attempts are deleted with the next one."""
    resting: set[str] | frozenset[str] = frozenset()
    """Activities that wait for the time of their next attempt."""
    unlooked: list[int] | None = None
    """Deliveries not looked at yet. Offers in the inbox are fed first, because they often end the instance."""
    consumed: Set[int] = frozenset()
    """Events taken in the last step. Earlier offers of them are void."""
    parent: tuple[str, str] | None = None
    """Its parent, and the parent's operation that waits for it."""
    is_unsure: bool = False
    """What its code asked for may have begun before a crash. It is started again, or found, before anything is fed:
    otherwise the code could give it up, and nobody would cancel or undo it."""
    is_read: bool = False
    """It was read from the database, and children that its code asks for first may have been started before."""
    reopened: Set[str] | None = frozenset()
    """Activities that may have begun before it was read from the database; None: all that its code asks for."""
    starting: int = 0
    """How many of its children are being started."""
    after_children: Callable[[], None] | None = None
    """What happens when they are stored."""
    lost: bool = False
    """A child was not started, because this instance has another owner by now."""
    requests: Set[int] = frozenset()
    """Requests that were fed. The same request can arrive several times: from its sender, in the mail, with a load."""
    kept: list[CancelAsked] | None = None
    """Requests to cancel for the next run: they came while undos were running before it begins. They stay stored."""
    builds: str | None = None
    """The builds whose code did not follow it, as stored. The next commit clears them."""
    retrial: Retrial | None = None
    """It was retried, and goes on with its next step."""
    asking: list[TransactionAsks] | None = None
    """Transactional activities that ask for their turn."""
    confirming: int = 0
    """How many due waits have a last look for events in progress."""
    new_headers: Mapping[str, str] | None = None
    """Headers that middleware gave it, to be stored with the next commit."""

    def __repr__(self) -> str:
        begun = "" if self.begun else " not begun"
        return f"<Resident {self.instance.id!r} v{self.version} {self.state.value}{begun} inbox={len(self.inbox)}>"

    def keep(self, input: CancelAsked) -> None:
        """Keep a request for the next run. The same one can come with every reading of the mail."""
        self.kept = [*(known for known in self.kept or () if known.request != input.request), input]

    def begin_rest(self, op: str) -> None:
        """Note that an activity waits for the time of its next attempt."""
        if not isinstance(self.resting, set):
            self.resting = set()
        self.resting.add(op)

    def end_rest(self, op: str) -> None:
        """Note that an activity does not wait for its next attempt any more."""
        if isinstance(self.resting, set):
            self.resting.discard(op)

    @property
    def is_gone(self) -> bool:
        return self.state is GONE

    @property
    def is_evictable(self) -> bool:
        """Whether it only waits, perhaps for the next attempt of an activity, and nothing is in progress."""
        idle = self.begun and self.state is IDLE and not (self.inbox or self.confirming)
        free = self.instance.ops.activities == len(self.resting) and BODY not in self.attempts
        return idle and self.instance.outcome is None and free

    @property
    def has_many_children(self) -> bool:
        return self.instance.ops.children > MANY_CHILDREN
