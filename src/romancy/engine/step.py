"""One step: feed an instance its inbox, and gather everything that results into one commit.

Pure: no awaiting, no storage, no clock but the given time. The step keeps what must happen only after the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from romancy import hooks as h
from romancy.core.compensation import Compensation, News
from romancy.core.failure import Failure
from romancy.core.history import MARKED_ATTEMPTS, Entry, Kind, pack_attempt, pack_event
from romancy.core.model import WAITING, Event, ReceivedEvent, from_us
from romancy.core.operations import About, ActivityCall, Answer, ChildCall, EventWait, Operation
from romancy.core.outcome import Asked, Outcome
from romancy.engine.evidence import accompanied, begun, is_through, running_on
from romancy.engine.mail import child_start, ending_of
from romancy.engine.resident import (
    Answered,
    AttemptChanged,
    CancelAsked,
    ChildEnded,
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
)
from romancy.errors import NotStorable
from romancy.storage.batch import BODY, Accept, Ask, Attempt, Commit, Consumption, Continuation, Misfit, Trial
from romancy.storage.rows import matchable

_logger = logging.getLogger("romancy")
T = TypeVar("T")
Stamp = Callable[[Event], Accept]
NONE: frozenset[int] = frozenset()
COMPENSATION: Mapping[str, type[h.CompensationInfo]] = {
    "started": h.CompensationStartedInfo,
    "completed": h.CompensationCompletedInfo,
    "failed": h.CompensationFailedInfo,
}


class Step:
    """Processes one inbox. `commit` is the result; everything else is for the follow-up after the commit."""

    __slots__ = (
        "_consumed",
        "_finds_children",
        "_quiet",
        "_stamp",
        "_tell",
        "asked",
        "begin",
        "blocked",
        "commit",
        "confirm",
        "instance",
        "now",
        "recorded",
        "resident",
        "retries",
        "told",
        "undoing",
    )  # fmt: skip - one for every step of every instance

    asked: Asked

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
        self.blocked: Failure | None = None
        """Why the instance is blocked with this commit, if it is."""
        self.undoing: Sequence[News] = ()
        """What was undone."""
        self._consumed: set[int] | frozenset[int] = NONE
        self._quiet = True
        self._finds_children = False
        """Its children are only looked for: they were all started before."""

    def run(self) -> None:
        """Feed the inbox. Raise the error of the instance if its code does not match its history."""
        resident, instance = self.resident, self.instance
        if not resident.begun:
            resident.begun = True
            instance.begin()
            if self._tell and not resident.announced:
                parent = None if resident.parent is None else resident.parent[0]
                self._say([h.WorkflowStartedInfo(**self._about, parent=parent)])
            resident.is_unsure = bool(resident.inbox) and any(op.stays_open for op in instance.ops.values())
        if resident.is_unsure:
            resident.is_unsure, self._finds_children = False, resident.status in WAITING
        else:
            self._feed_inbox()
        self._gather(instance.take())

    def _feed_inbox(self) -> None:
        resident = self.resident
        inbox, resident.inbox, resident.offered = resident.inbox, [], False
        if resident.attempts:
            inbox = self._up_to_suspect(inbox)
        for input in inbox:
            self._handle(input)
        if self.instance.given_up:
            self._answer_unbegun()
        # The rest of the inbox, left for the next step, may still contain an offer of an event that was taken.
        resident.consumed = resident.consumed | self._consumed if resident.inbox else self._consumed

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return self._quiet and not self.commit.entries and self.asked.outcome is None

    def _up_to_suspect(self, inbox: list[Input]) -> list[Input]:
        """Return the inputs to feed now. A suspect's result gets its own commit; the inputs after it wait for that."""
        first = next((n for n, input in enumerate(inbox) if self._is_apart(input)), len(inbox))
        fed = max(first, 1)  # if the result comes first, it is fed alone
        self.resident.inbox = inbox[fed:]
        self.resident.offered = any(isinstance(input, EventOffered) for input in inbox[fed:])
        return inbox[:fed]

    def _is_apart(self, input: Input) -> bool:
        return isinstance(input, Answered) and self._is_blamed(input.op)

    def _is_blamed(self, op: str) -> bool:
        """Whether a death now would be blamed on the call, so that the code must not run before the call is recorded.

        A suspect in company would not be blamed: only a death while it is the only suspect counts against it. So the
        thousand results of a fan-out need a few commits instead of two thousand.
        """
        record = self.resident.attempts.get(op)
        return record is not None and record.suspicion is not None and record.suspicion.is_alone

    # --- inputs -----------------------------------------------------------------------------------------------------
    def _handle(self, input: Input) -> None:
        if isinstance(input, Answered):
            self._take_answer(input)
        elif isinstance(input, Stored):
            self._feed_stored(input.entry)
        elif isinstance(input, AttemptChanged):
            self._attempt_changed(input)
        elif isinstance(input, EventOffered):
            self._event_offered(input)
        elif isinstance(input, Looked):
            self.commit.seen_deliveries = [*self.commit.seen_deliveries, *input.events]
        elif isinstance(input, CancelAsked):
            self._cancel(input)
        elif isinstance(input, ChildEnded):
            self._child_ended(input)
        elif isinstance(input, SuspectBegins):
            self._suspect_begins(input)
        elif isinstance(input, (SuspectRuns, SuspectAccompanied)):
            self._suspect_runs(input)
        else:
            self._due(input)

    def _take_answer(self, input: Answered) -> None:
        op = self.instance.ops.get(input.op)
        if op is None or self.instance.outcome is not None:
            return
        if input.sent:
            self.commit.sent = [*self.commit.sent, *map(self._stamp, input.sent)]
        if self._is_blamed(input.op):
            self._record(input.kind, input.op, input.payload)
        else:
            self._answer(op, input.kind, self.now, input.payload, attempt=input.attempt)

    def _answer_unbegun(self) -> None:
        """Answer what was opened and given up within this step. It must not begin, and replay needs to know that."""
        while unbegun := self.instance.unbegun:
            kind, payload = unbegun[0].answer_unbegun()
            self._answer(unbegun[0], kind, self.now, payload)

    def _record(self, kind: Kind, op: str, payload: bytes) -> None:
        """Store the result of a suspect before it is fed to the code: if the worker dies then, the code did it.

        The record of its attempts is kept until the code was fed the result. A loader relies on that: see `Snapshot`.
        """
        entry = self.instance.record(kind, op, self.now, payload)
        self.resident.inbox.insert(0, Stored(entry))

    def _feed_stored(self, entry: Entry) -> None:
        op, record = self.instance.ops.get(entry.op), self.resident.attempts.get(entry.op)
        self.instance.feed(entry)
        assert op is not None, "the code called it, otherwise it does not match its history"
        self._answered(op, Answer(entry, attempt=1 if record is None else record.n + 1))

    def _due(self, input: Due | TimedOut) -> None:
        op = self.instance.ops.get(input.op)
        if op is None or self.instance.outcome is not None or op.when_due is None:
            return
        may_find_one = op.looks_first and isinstance(input, Due) and (not input.again or self._may_find_more(op))
        if may_find_one:
            self.confirm = _with(self.confirm, op.id)
        else:
            self._answer(op, op.when_due, max(self.now, op.due or 0))  # the clock may have been set back

    def _may_find_more(self, op: Operation) -> bool:
        """Whether an offered event was taken by another wait, or did not fit. Then it hid later events."""
        return bool(self._consumed or self.commit.misfits or op.id in self.commit.looks)

    def _answer(
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
        if self._tell or self.resident.attempts:
            self._answered(op, Answer(entry, value, attempt))

    def _answered(self, op: Operation, answer: Answer) -> None:
        if op.id in self.resident.attempts:
            self._forget_attempt(op.id)
        if self._tell:
            self._say(op.settled_infos(answer, self._about))

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
                began = op.opened_at if before is None else before.next_due
                about = pack_attempt(attempt.n, began, attempt.next_due)
                self.instance.mark(Kind.ATTEMPT_FAILED, op.id, self.now, about, attempt.error)
            self.retries = [*self.retries, attempt]
            if self._tell:
                self._say([op.retrying_info(attempt.n, attempt.next_due, input.error_type, input.message, self._about)])

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
        self._quiet = self.commit.append_only = False  # for deaths, which are counted after `run`
        self.resident.attempts[attempt.op] = attempt
        self.commit.attempts = [*(a for a in self.commit.attempts if a.op != attempt.op), attempt]

    def _event_offered(self, input: EventOffered) -> None:
        event = input.event
        op = self.instance.ops.get(input.op) if input.group is None else self.instance.groups.first(input.group)
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
            self._due(TimedOut(op.id))
            self._look_for_next(op)
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
        commit.consumed = _with(commit.consumed, Consumption(event.seq, event.type, op.row))
        payload = pack_event(event, input.place if op.keeps_place else None)
        self._answer(op, Kind.EVENT_RECEIVED, self.now, payload, event=event, value=value)
        self._look_for_next(op)

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
            is_first = op.group is None or self.instance.groups.first(op.group) is op
            if is_first and op.filter.accepts(event.subject, event.source, data):
                self._look_again(op)

    def _look_for_next(self, op: EventWait) -> None:
        """Look for the next wait of the group: equal waits are offered events one after the other."""
        following = self.instance.groups.first(op.group) if op.group is not None else None
        if following is not None:
            self._look_again(following)

    def _look_again(self, op: EventWait) -> None:
        if op.id not in self.commit.looks:
            self.commit.looks = _with(self.commit.looks, op.id)

    def _cancel(self, input: CancelAsked) -> None:
        instance = self.instance
        if instance.outcome is not None and instance.outcome.next_run is not None:
            self.resident.inbox.append(input)  # for the next run
            return
        if not self._is_new(input.request):
            return
        if instance.compensation is not None and instance.compensation.is_unwinding:
            return  # nothing interrupts undos
        again = not input.by_parent and instance.waits_for_good
        if instance.outcome is None and (instance.cancelling is None or again):
            instance.feed(instance.record(Kind.CANCEL_REQUESTED, "", self.now, input.reason.encode()))

    def _child_ended(self, input: ChildEnded) -> None:
        op = self.instance.ops.get(input.op)
        if self._is_new(input.request) and isinstance(op, ChildCall) and self.instance.outcome is None:
            self._answer(op, input.kind, self.now, input.payload)

    def _is_new(self, request: int) -> bool:
        """Return whether a request has not been fed yet. It is deleted with this commit."""
        if request in self.resident.requests:
            return False
        if not isinstance(self.resident.requests, set):
            self.resident.requests = set(self.resident.requests)
        self.resident.requests.add(request)
        self.commit.requests_done = _with(self.commit.requests_done, request)
        return True

    # --- results ----------------------------------------------------------------------------------------------------
    def _gather(self, asked: Asked) -> None:
        self.asked, commit, resident = asked, self.commit, self.resident
        commit.entries = asked.entries
        if asked.opened:
            commit.opened = [op.row for op in asked.opened if op.has_row]
        if asked.closed or resident.stale_waits:
            closed = [op.id for op in asked.closed if op.has_row]
            commit.closed = [*closed, *resident.stale_waits]
            resident.stale_waits = ()
        if resident.attempts:
            self._drop_attempts(asked)
        if asked.sent:
            commit.sent = [*commit.sent, *map(self._stamp, asked.sent)]
        commit.description = asked.description
        commit.status = self.instance.status
        if self.instance.children or asked.asks or asked.given_up:
            self._gather_children(asked)
        if self.instance.compensation is not None:
            self._compensate(self.instance.compensation)
        commit.same_status = commit.status == resident.status
        if commit.looks:
            commit.looks = [op for op in commit.looks if op in self.instance.ops]
        if asked.outcome is not None:
            self._end(asked.outcome)
            self._leave(asked.closed)
            commit.children = [child_start(self.instance.id, call, self.now) for call in asked.unstarted]
        self._quiet = commit.same_status and commit.has_only_entries
        commit.append_only = self._quiet and bool(commit.entries)
        if self._tell:
            self._tell_rest(asked)

    def _gather_children(self, asked: Asked) -> None:
        """Gather what concerns children. Until a child exists there is work to do, for another worker after a crash."""
        is_waiting = asked.outcome is None and self.commit.status in WAITING
        if is_waiting and not self._finds_children and any(isinstance(op, ChildCall) for op in asked.opened):
            self.commit.status = "running"
        self.commit.asks = [Ask(child, reason) for child, reason in asked.asks]
        self._leave(asked.given_up)

    def _leave(self, operations: Iterable[Operation]) -> None:
        """Ask children that the code no longer waits for to cancel, unless they were asked before. Free ones go on."""
        for op in operations:
            if isinstance(op, ChildCall) and not (op.is_free or op.is_over or op.is_asked):
                op.is_asked = True
                self.commit.asks = _with(self.commit.asks, Ask(op.child, self._reason))

    @property
    def _reason(self) -> str:
        return self.instance.cancelling or f"its parent {self.instance.id!r} no longer waits for it"

    def _end(self, outcome: Outcome) -> None:
        commit, instance = self.commit, self.instance
        commit.output = outcome.output
        commit.error = outcome.error.encode() if outcome.error else None
        if self.resident.parent is not None and outcome.next_run is None:
            commit.ending = ending_of(self.resident.parent, outcome)
        if outcome.next_run is not None:
            deadline = instance.deadline if outcome.next_run.deadline is None else outcome.next_run.deadline
            next_run = replace(outcome.next_run, deadline=deadline)
            commit.continuation = Continuation(next_run, instance.length, instance.run.base)
            number = instance.run.number + 1
            if self._tell:
                self._say([h.WorkflowContinuedInfo(**self._about, run_number=number)])

    def _compensate(self, compensation: Compensation) -> None:
        """Block the instance if undos failed for good, once nothing else is running. Tell hooks about undos."""
        commit, instance = self.commit, self.instance
        if instance.outcome is None and compensation.holds and not instance.activities:
            self.blocked = compensation.failure
            commit.status, commit.error, commit.release = "blocked", self.blocked.encode(), True
        self.undoing = compensation.take_news()
        if self._tell:
            for news in self.undoing:
                fields = {"not_undone": news.failed} if news.failed else {}
                self._say([COMPENSATION[news.outcome](**self._about, owed=news.owed, **fields)])

    def _drop_attempts(self, asked: Asked) -> None:
        """Delete the records of calls that were withdrawn, or were still open when the workflow ended."""
        attempts = self.resident.attempts
        ops = self.instance.ops
        for op in [op for op in attempts if asked.outcome is not None or (op not in ops and op != BODY)]:
            self._forget_attempt(op)

    def _tell_rest(self, asked: Asked) -> None:
        for op in asked.opened:
            self._say(op.opened_infos(self._about))
        for item in self.commit.sent:
            self._say([h.EventSentInfo(**self._about, event_type=item.event.type, event_id=item.event.id)])

    @property
    def _about(self) -> About:
        instance = self.instance
        return {"instance_id": instance.id, "workflow": instance.definition.name, "at": from_us(self.now)}

    def _say(self, infos: Sequence[object]) -> None:
        for info in infos:
            self.told = _with(self.told, info)


def _with(items: Sequence[T], item: T) -> Sequence[T]:
    """Append an item. Most steps have none, so the sequence becomes a list only then; some steps have very many."""
    if isinstance(items, list):
        items.append(item)
        return items
    return [*items, item]
