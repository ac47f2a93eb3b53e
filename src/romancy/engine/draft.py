"""The draft of one commit: what a step has gathered so far, and what must happen only after the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from romancy.core.compensation import News
from romancy.core.failure import Failure
from romancy.core.history import Kind
from romancy.core.model import Event, ReceivedEvent, from_us
from romancy.core.operations import About, Answer, ChildCall, Operation
from romancy.core.outcome import Asked
from romancy.core.retrial import Retrial
from romancy.core.sequences import added
from romancy.engine.resident import Resident
from romancy.hooks import NO_HEADERS
from romancy.storage.attempts import Attempt, Trial
from romancy.storage.batch import Accept, Commit

Stamp = Callable[[Event], Accept]
NONE: frozenset[int] = frozenset()


class Draft:
    """A commit that is being put together. The inputs of a step add to it."""

    __slots__ = (
        "asked",
        "begin",
        "births",
        "blocked",
        "commit",
        "confirm",
        "consumed",
        "finds_children",
        "hastened",
        "instance",
        "now",
        "quiet",
        "recorded",
        "resident",
        "retrial",
        "retries",
        "stamp",
        "tell",
        "told",
        "undoing",
    )  # fmt: skip - created on every step, so it has slots

    asked: Asked

    def __init__(self, resident: Resident, now: int, stamp: Stamp, tell: bool) -> None:
        instance = resident.instance
        if now < instance.at:
            now = instance.at
        self.resident, self.instance, self.now = resident, instance, now
        self.stamp, self.tell = stamp, tell
        self.commit = Commit(instance.id, resident.version, "running", now)
        self.told: Sequence[object] = ()
        """The infos for hooks, in order."""
        self.retries: Sequence[Attempt] = ()
        self.begin: Sequence[str] = ()
        """Suspects that can begin now."""
        self.recorded: Sequence[str] = ()
        """Suspects that run longer, now have company, or are no longer suspected."""
        self.hastened: Sequence[str] = ()
        """Activities whose next attempts are to begin now."""
        self.confirm: Sequence[str] = ()
        """Due waits: look once more for events before they time out."""
        self.births: Sequence[ChildCall] = ()
        """Children to be stored with this commit. Others are started after it."""
        self.blocked: Failure | None = None
        """Why the instance is blocked with this commit, if it is."""
        self.undoing: Sequence[News] = ()
        """What was undone."""
        self.retrial: Retrial | None = None
        """The retry of the instance, if it goes on with this step."""
        self.consumed: set[int] | frozenset[int] = NONE
        self.quiet = True
        self.finds_children = False
        """Its children are only looked for: they were all started before."""

    def answer(
        self,
        op: Operation,
        kind: Kind,
        at: int,
        payload: bytes | None = None,
        *,
        event: Event | None = None,
        value: ReceivedEvent[Any] | None = None,
        attempt: int = 1,
    ) -> None:
        """Feed the code the answer to one of its operations. `value`: the event as the code sees it."""
        entry = self.instance.record(kind, op.id, at, payload, None if event is None else event.seq)
        self.instance.feed(entry, value)
        if self.tell or self.resident.attempts:
            self.answered(op, Answer(entry, value, attempt))

    def answered(self, op: Operation, answer: Answer) -> None:
        if op.id in self.resident.attempts:
            self.forget_attempt(op.id)
        if self.tell:
            self.say(op.settled_infos(answer, self.about))

    def time_out(self, op: Operation) -> None:
        """Feed the code that the time of an operation is over."""
        assert op.when_due is not None
        self.answer(op, op.when_due, max(self.now, op.due or 0))  # the clock may have been set back

    def forget_attempt(self, op: str) -> None:
        """Delete the record of an attempt that ended: it is neither retried nor suspected."""
        commit = self.commit
        self.keep_trial(self.resident.attempts.pop(op))
        commit.attempts = [a for a in commit.attempts if a.op != op]  # a row is written or deleted, not both
        commit.attempts_done = [*commit.attempts_done, op]

    def keep_trial(self, ended: Attempt) -> None:
        known = ended.suspicion
        if known is not None and known.tried_alone:
            trial = Trial(ended.culprit, self.now, known.since, known.tried_alone, known.alone)
            self.commit.trials = [*self.commit.trials, trial]

    def record_attempt(self, attempt: Attempt) -> None:
        """Store an attempt with this commit."""
        self.quiet = self.commit.append_only = False  # for deaths, which are counted after `run`
        self.resident.attempts[attempt.op] = attempt
        self.commit.attempts = [*(a for a in self.commit.attempts if a.op != attempt.op), attempt]

    def consume(self, seq: int) -> None:
        if isinstance(self.consumed, set):
            self.consumed.add(seq)
        else:
            self.consumed = {seq}

    def is_new(self, request: int) -> bool:
        """Return whether a request has not been fed yet. It is deleted with this commit."""
        if request in self.resident.requests:
            return False
        if not isinstance(self.resident.requests, set):
            self.resident.requests = set(self.resident.requests)
        self.resident.requests.add(request)
        self.commit.requests_done = added(self.commit.requests_done, request)
        return True

    @property
    def about(self) -> About:
        instance = self.instance
        headers = instance.run.headers or NO_HEADERS
        at = from_us(self.now)
        return {"instance_id": instance.id, "workflow": instance.definition.name, "at": at, "headers": headers}

    def say(self, infos: Sequence[object]) -> None:
        for info in infos:
            self.told = added(self.told, info)
