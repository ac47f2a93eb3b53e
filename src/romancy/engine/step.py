"""One activation: feed an instance its inbox, and gather everything that results into one commit.

Pure: no awaiting, no storage, no clock but the given time. The step keeps what must happen only after the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from romancy import hooks as h
from romancy.core.activation import Activation
from romancy.core.failure import Failure
from romancy.core.history import MARKED_ATTEMPTS, Entry, Kind, pack_attempt, pack_event
from romancy.core.model import Event, from_us
from romancy.core.operations import ActivityCall, EventWait, Operation, Timer
from romancy.engine.evidence import accompanied, begun, is_through, running_on
from romancy.engine.resident import (
    ActivityDone,
    ActivityFailed,
    AttemptChanged,
    CancelAsked,
    Due,
    EventOffered,
    Input,
    Looked,
    Resident,
    Stored,
    SuspectAccompanied,
    SuspectBegins,
    SuspectRuns,
    TimedOut,
    wait_row,
)
from romancy.errors import NotStorable
from romancy.storage.batch import BODY, Accept, Attempt, Commit, Consumption, Misfit, Trial
from romancy.storage.rows import matchable

_logger = logging.getLogger("romancy")
T = TypeVar("T")
Stamp = Callable[[Event], Accept]
NONE: frozenset[int] = frozenset()


class Step:
    """Processes one inbox. `commit` is the result; everything else is for the follow-up after the commit."""

    __slots__ = (
        "_consumed",
        "_quiet",
        "_stamp",
        "_tell",
        "activation",
        "begin",
        "commit",
        "confirm",
        "instance",
        "now",
        "recorded",
        "resident",
        "retries",
        "told",
    )  # fmt: skip - one for every step of every instance

    activation: Activation

    def __init__(self, resident: Resident, now: int, stamp: Stamp, tell: bool) -> None:
        instance = resident.instance
        self.resident, self.instance, self.now = resident, instance, max(now, instance.at)
        self._stamp, self._tell = stamp, tell
        self.commit = Commit(instance.id, resident.version, "running", self.now)
        self.told: Sequence[object] = ()
        """The infos for hooks, in order."""
        self.retries: Sequence[Attempt] = ()
        self.begin: Sequence[str] = ()
        """Suspects that can begin now."""
        self.recorded: Sequence[str] = ()
        """Suspects that run longer, now have company, or are no longer suspected."""
        self.confirm: Sequence[str] = ()
        """Due waits: look once more for events before they time out."""
        self._consumed: set[int] | frozenset[int] = NONE
        self._quiet = True

    def run(self) -> None:
        """Feed the inbox. Raise the error of the instance if its code does not match its history."""
        resident, instance = self.resident, self.instance
        if not resident.begun:
            resident.begun = True
            instance.begin()
            if self._tell and not resident.announced:
                self._say(h.WorkflowStartedInfo, error=None)
        inbox, resident.inbox, resident.offered = resident.inbox, [], False
        if resident.attempts:
            inbox = self._up_to_suspect(inbox)
        for input in inbox:
            self._handle(input)
        # The rest of the inbox, left for the next step, may still contain an offer of an event that was taken.
        resident.consumed = resident.consumed | self._consumed if resident.inbox else self._consumed
        self._gather(instance.take())

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return self._quiet and not self.commit.entries and self.activation.outcome is None

    def _up_to_suspect(self, inbox: list[Input]) -> list[Input]:
        """Return the inputs to feed now. A suspect's result gets its own commit; the inputs after it wait for that."""
        first = next((n for n, input in enumerate(inbox) if self._is_apart(input)), len(inbox))
        now = max(first, 1)
        self.resident.inbox = inbox[now:]
        self.resident.offered = any(isinstance(input, EventOffered) for input in inbox[now:])
        return inbox[:now]

    def _is_apart(self, input: Input) -> bool:
        return isinstance(input, (ActivityDone, ActivityFailed)) and self._is_blamed(input.op)

    def _is_blamed(self, op: str) -> bool:
        """Whether a death now would be blamed on the call, so that the code must not run before the call is recorded.

        A suspect in company would not be blamed: only a death while it is the only suspect counts against it. So the
        thousand results of a fan-out need a few commits instead of two thousand.
        """
        record = self.resident.attempts.get(op)
        return record is not None and record.suspicion is not None and record.suspicion.is_alone

    # --- inputs -----------------------------------------------------------------------------------------------------
    def _handle(self, input: Input) -> None:
        if isinstance(input, ActivityDone):
            self._activity_done(input)
        elif isinstance(input, Stored):
            self._hear(input.entry)
        elif isinstance(input, AttemptChanged):
            self._attempt_changed(input)
        elif isinstance(input, EventOffered):
            self._event_offered(input)
        elif isinstance(input, Looked):
            self.commit.seen_deliveries = [*self.commit.seen_deliveries, *input.events]
        elif isinstance(input, CancelAsked):
            self._cancel(input)
        elif isinstance(input, SuspectBegins):
            self._suspect_begins(input)
        elif isinstance(input, (SuspectRuns, SuspectAccompanied)):
            self._suspect_runs(input)
        elif self.instance.outcome is None:
            operation = self.instance.ops.get(input.op)
            if operation is not None and not (isinstance(input, Due) and isinstance(operation, ActivityCall)):
                self._settle(input, operation)

    def _activity_done(self, input: ActivityDone) -> None:
        op = self.instance.ops.get(input.op)
        if op is None or self.instance.outcome is not None:
            return
        if input.sent:
            self.commit.sent = [*self.commit.sent, *map(self._stamp, input.sent)]
        if self._is_blamed(input.op):
            self._record(Kind.ACTIVITY_COMPLETED, input.op, input.payload)
            return
        self.instance.apply(Kind.ACTIVITY_COMPLETED, input.op, self.now, input.payload)
        if self.resident.attempts or self._tell:
            self._activity_ended(op, h.ActivityCompletedInfo, input.attempt)

    def _activity_failed(self, input: ActivityFailed, op: Operation) -> None:
        if self._is_blamed(op.id):
            self._record(Kind.ACTIVITY_FAILED, op.id, input.payload)
        else:
            self.instance.apply(Kind.ACTIVITY_FAILED, op.id, self.now, input.payload)
            self._call_failed(op, input.attempt, input.payload)

    def _call_failed(self, op: Operation, attempt: int, payload: bytes) -> None:
        failure = Failure.decode(payload)
        more = {"error_type": failure.error_type, "message": failure.message}
        self._activity_ended(op, h.ActivityFailedInfo, attempt, **more)

    def _record(self, kind: Kind, op: str, payload: bytes) -> None:
        """Store the result of a suspect before it is fed to the code: if the worker dies then, the code did it.

        The record of its attempts is kept until the code was fed the result. A loader relies on that: see `Snapshot`.
        """
        entry = self.instance.record(kind, op, self.now, payload)
        self.resident.inbox.insert(0, Stored(entry))

    def _hear(self, entry: Entry) -> None:
        op, record = self.instance.ops.get(entry.op), self.resident.attempts.get(entry.op)
        self.instance.feed(entry)
        assert op is not None, "the code called it, otherwise it does not match its history"
        attempt = 1 if record is None else record.n + 1
        if entry.kind == Kind.ACTIVITY_COMPLETED:
            self._activity_ended(op, h.ActivityCompletedInfo, attempt)
        else:
            self._call_failed(op, attempt, entry.payload or b"")

    def _settle(self, input: ActivityFailed | Due | TimedOut, op: Operation) -> None:
        if isinstance(input, ActivityFailed):
            self._activity_failed(input, op)
        elif isinstance(op, Timer):
            self.instance.apply(Kind.TIMER_FIRED, op.id, max(self.now, op.due))  # the clock may have been set back
            if self._tell:
                self._say(h.TimerFiredInfo, timer_id=op.id, due_at=from_us(op.due))
        elif isinstance(input, Due) and (not input.again or self._may_find_more(op)):
            self.confirm = _with(self.confirm, op.id)
        elif isinstance(op, EventWait):
            self.instance.apply(Kind.WAIT_TIMED_OUT, op.id, max(self.now, op.due or 0))
            self._say_wait(h.WaitTimedOutInfo, op)

    def _may_find_more(self, op: Operation) -> bool:
        """Whether an offered event was taken by another wait, or did not fit. Then it hid later events."""
        return bool(self._consumed or self.commit.misfits or op.id in self.commit.looks)

    def _activity_ended(self, op: Operation, info: type, attempt: int, **more: str) -> None:
        if op.id in self.resident.attempts:
            self._forget_attempt(op.id)
        if self._tell and isinstance(op, ActivityCall):
            self._say(info, activity=op.activity.name, activity_id=op.id, attempt=attempt, **more)

    def _attempt_changed(self, input: AttemptChanged) -> None:
        attempt = input.attempt
        op = self.instance.ops.get(attempt.op)
        if not isinstance(op, ActivityCall):
            return
        before = self.resident.attempts.get(op.id)
        if before is not None and attempt.suspicion is None:
            self._keep_trial(before)
        self.record_attempt(attempt)
        if attempt.next_due is not None:
            if attempt.n <= MARKED_ATTEMPTS:
                began = op.since if before is None else before.next_due
                about = pack_attempt(attempt.n, began, attempt.next_due)
                self.instance.mark(Kind.ATTEMPT_FAILED, op.id, self.now, about, attempt.error)
            self.retries = [*self.retries, attempt]
            self._say(
                h.ActivityRetryingInfo,
                activity=op.activity.name,
                activity_id=op.id,
                attempt=attempt.n,
                error_type=input.error_type,
                message=input.message,
                next_at=from_us(attempt.next_due),
            )

    def _suspect_begins(self, input: SuspectBegins) -> None:
        record = self.resident.attempts.get(input.op)
        if record is not None and input.op in self.instance.ops:
            self.record_attempt(begun(record, input.is_alone))
            self.begin = [*self.begin, input.op]

    def _suspect_runs(self, input: SuspectRuns | SuspectAccompanied) -> None:
        record = self.resident.attempts.get(input.op)
        if record is None or not record.started or record.suspicion is None:
            return
        self.recorded = [*self.recorded, input.op]
        if isinstance(input, SuspectAccompanied):
            self.record_attempt(accompanied(record))
        elif input.op == BODY and is_through(record):
            self._forget_attempt(BODY)
        else:
            self.record_attempt(running_on(record, input.ran))

    def _forget_attempt(self, op: str) -> None:
        """Delete the record of an attempt that ended: it is neither retried nor suspected."""
        commit = self.commit
        self._keep_trial(self.resident.attempts.pop(op))
        commit.attempts = [a for a in commit.attempts if a.op != op]  # a row is written or deleted, not both
        commit.attempts_done = [*commit.attempts_done, op]

    def _keep_trial(self, ended: Attempt) -> None:
        known = ended.suspicion
        if known is not None and known.tried_alone:
            trial = Trial(ended.culprit, self.now, known.since, known.tried_alone, known.alone)
            self.commit.trials = [*self.commit.trials, trial]

    def record_attempt(self, attempt: Attempt) -> None:
        """Store an attempt with this commit."""
        self._quiet = self.commit.append_only = False
        self.resident.attempts[attempt.op] = attempt
        self.commit.attempts = [*(a for a in self.commit.attempts if a.op != attempt.op), attempt]

    def _event_offered(self, input: EventOffered) -> None:
        event = input.event
        op = self.instance.ops.get(input.op) if input.group is None else self.instance.first_of(input.group)
        commit = self.commit
        commit.seen_deliveries = _with(commit.seen_deliveries, event.seq)
        if event.seq in self._consumed or event.seq in self.resident.consumed:
            if isinstance(op, EventWait):
                self._look_again(op)  # another wait of this instance took it: there may be a later one
            return
        if not isinstance(op, EventWait):
            self._pass_on(event)  # the wait is gone
            return
        if op.due is not None and op.due < event.accepted_at and op.due <= self.now:
            # The event came after the timeout, however late we notice that (the worker may have been down). An event
            # that is here before the timeout is not late, whatever its sender's clock says: it would hide later ones.
            self._pass_on(event, op)
            self._settle(TimedOut(op.id), op)
            self._tell_next(op)
            return
        try:
            value = op.fit(event)
        except NotStorable as error:
            _logger.warning(
                "event %r (%s) does not fit wait %r of instance %r, which keeps waiting: %s. The event is kept",
                event.id,
                event.type,
                op.id,
                self.instance.id,
                error,
            )
            commit.misfits = _with(commit.misfits, Misfit(op.id, op.model_key, event.seq, str(error)))
            self._look_again(op)
            self._pass_on(event, op)
            return
        self._consume(event.seq)
        commit.consumed = _with(commit.consumed, Consumption(event.seq, event.type, wait_row(op)))
        self.instance.apply(Kind.EVENT_RECEIVED, op.id, self.now, pack_event(event), event.seq, value)
        self._say(h.EventReceivedInfo, event_type=event.type, event_data=value.data, event=value, wait_id=op.id)
        self._say_wait(h.WaitCompletedInfo, op)
        self._tell_next(op)

    def _consume(self, seq: int) -> None:
        if isinstance(self._consumed, set):
            self._consumed.add(seq)
        else:
            self._consumed = {seq}

    def _pass_on(self, event: Event, past: EventWait | None = None) -> None:
        """Look again for other waits that may take this event: its delivery was for them too, and is deleted now."""
        data = matchable(event)
        for op in self.instance.ops.values():
            if op is past or not isinstance(op, EventWait) or event.type not in op.types:
                continue
            is_first = op.group is None or self.instance.first_of(op.group) is op
            if is_first and op.filter.accepts(event.subject, event.source, data):
                self._look_again(op)

    def _tell_next(self, op: EventWait) -> None:
        """Look for the next wait of the group: equal waits are offered events one after the other."""
        following = self.instance.first_of(op.group) if op.group is not None else None
        if following is not None:
            self._look_again(following)

    def _look_again(self, op: EventWait) -> None:
        if op.id not in self.commit.looks:
            self.commit.looks = _with(self.commit.looks, op.id)

    def _cancel(self, input: CancelAsked) -> None:
        if input.request in self.resident.requests:
            return
        self.resident.requests = self.resident.requests | {input.request}
        self.commit.requests_done = [*self.commit.requests_done, input.request]
        instance = self.instance
        if instance.outcome is None and (instance.cancelling is None or instance.waits_for_good):
            self.instance.apply(Kind.CANCEL_REQUESTED, "", self.now, input.reason.encode())

    # --- results ----------------------------------------------------------------------------------------------------
    def _gather(self, activation: Activation) -> None:
        self.activation, commit, resident = activation, self.commit, self.resident
        commit.entries = activation.entries
        if activation.opened:
            commit.opened = [wait_row(op) for op in activation.opened if not isinstance(op, ActivityCall)]
        if activation.closed or resident.stale_waits:
            closed = [op.id for op in activation.closed if not isinstance(op, ActivityCall)]
            commit.closed = [*closed, *resident.stale_waits]
            resident.stale_waits = ()
        if resident.attempts:
            self._drop_attempts(activation)
        if activation.sent:
            commit.sent = [*commit.sent, *map(self._stamp, activation.sent)]
        commit.description = activation.description
        commit.status = self.instance.status
        commit.same_status = commit.status == resident.status
        if commit.looks:
            commit.looks = [op for op in commit.looks if op in self.instance.ops]
        if activation.outcome is not None:
            commit.output = activation.outcome.output
            commit.error = activation.outcome.error.encode() if activation.outcome.error else None
        rows = (
            commit.consumed
            or commit.misfits
            or commit.seen_deliveries
            or commit.looks
            or commit.attempts
            or commit.closed
        )
        more = commit.opened or commit.sent or commit.attempts_done or commit.requests_done
        self._quiet = commit.same_status and not rows and not more and commit.description is None
        commit.append_only = self._quiet and bool(commit.entries)
        if self._tell:
            self._tell_rest(activation)

    def _drop_attempts(self, activation: Activation) -> None:
        """Delete the records of calls that were withdrawn, or were still open when the workflow ended."""
        attempts = self.resident.attempts
        ops = self.instance.ops
        for op in [op for op in attempts if activation.outcome is not None or (op not in ops and op != BODY)]:
            self._forget_attempt(op)

    def _tell_rest(self, activation: Activation) -> None:
        for op in activation.opened:
            if isinstance(op, EventWait):
                self._say_wait(h.WaitStartedInfo, op)
            elif isinstance(op, Timer):
                self._say(h.TimerStartedInfo, timer_id=op.id, due_at=from_us(op.due))
        for item in self.commit.sent:
            self._say(h.EventSentInfo, event_type=item.event.type, event_id=item.event.id)

    def _say_wait(self, info: type, op: EventWait) -> None:
        if self._tell:
            self._say(info, wait_id=op.id, types=op.types, due_at=None if op.due is None else from_us(op.due))

    def _say(self, info: type, **fields: object) -> None:
        if self._tell:
            instance = self.instance
            about = info(instance_id=instance.id, workflow=instance.definition.name, at=from_us(self.now), **fields)
            self.told = _with(self.told, about)


def _with(items: Sequence[T], item: T) -> Sequence[T]:
    """Append an item. Most steps have none, so the sequence becomes a list only then; some steps have very many."""
    if isinstance(items, list):
        items.append(item)
        return items
    return [*items, item]
