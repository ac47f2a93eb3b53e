"""One step: feed an instance its inbox, and gather everything that results into one commit.

Pure: no awaiting, no storage, no clock but the given time. The step keeps what must happen only after the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from romancy import hooks as h
from romancy.core.compensation import Compensation
from romancy.core.history import Entry, Kind
from romancy.core.model import WAITING, from_us
from romancy.core.offspring import note_sent
from romancy.core.operations import ActivityCall, Answer, ChildCall, Operation
from romancy.core.outcome import Asked, Outcome
from romancy.core.sequences import added
from romancy.engine.around import traced
from romancy.engine.attempts import attempt_changed, hasten, suspect_begins, suspect_runs
from romancy.engine.draft import Draft
from romancy.engine.emission_head import drafts
from romancy.engine.mail import ending_of
from romancy.engine.offers import take_offer
from romancy.engine.reopened import child_found, child_spent, go_on
from romancy.engine.resident import (
    Answered,
    AttemptChanged,
    CancelAsked,
    ChildEnded,
    ChildFound,
    ChildSpent,
    Due,
    EventOffered,
    Hastened,
    Input,
    Looked,
    Stored,
    SuspectAccompanied,
    SuspectBegins,
    SuspectRuns,
    TimedOut,
)
from romancy.storage.batch import BODY, Ask, Continuation
from romancy.storage.unopened import check

COMPENSATION: Mapping[str, type[h.CompensationInfo]] = {
    "started": h.CompensationStartedInfo,
    "completed": h.CompensationCompletedInfo,
    "failed": h.CompensationFailedInfo,
}


class Step(Draft):
    """Processes one inbox. `commit` is the result; everything else is for the follow-up after the commit."""

    __slots__ = ()

    def run(self) -> None:
        """Feed the inbox. Raise the error of the instance if its code does not match its history."""
        resident, instance = self.resident, self.instance
        if not resident.begun:
            resident.begun = True
            instance.begin()
            if self.tell and not resident.announced:
                parent = None if resident.parent is None else resident.parent[0]
                self.say([h.WorkflowStartedInfo(**self.about, parent=parent)])
            resident.is_unsure = bool(resident.inbox) and any(op.stays_open for op in instance.ops.values())
        if resident.retrial is not None:
            go_on(self, resident.retrial)  # alone: its children are started, or found, before anything else is fed
        elif resident.is_unsure:
            resident.is_unsure, self.finds_children = False, resident.status in WAITING
        else:
            inbox, resident.inbox, resident.offered = resident.inbox, [], False
            if resident.attempts:
                inbox = self._up_to_suspect(inbox)
            for input in inbox:
                self._handle(input)
            if instance.ops.given_up:
                self._answer_unbegun()
            # The rest of the inbox, left for the next step, may still contain an offer of an event that was taken.
            resident.consumed = resident.consumed | self.consumed if resident.inbox else self.consumed
        self._gather(instance.take())

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return self.quiet and not self.commit.entries and self.asked.outcome is None

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
            attempt_changed(self, input)
        elif isinstance(input, EventOffered):
            take_offer(self, input)
        elif isinstance(input, Looked):
            self.commit.seen_deliveries = [*self.commit.seen_deliveries, *input.events]
        elif isinstance(input, CancelAsked):
            self._cancel(input)
        elif isinstance(input, ChildEnded):
            self._child_ended(input)
        elif isinstance(input, ChildSpent):
            child_spent(self, input)
        elif isinstance(input, ChildFound):
            child_found(self, input)
        elif isinstance(input, Hastened):
            hasten(self, input)
        elif isinstance(input, SuspectBegins):
            suspect_begins(self, input)
        elif isinstance(input, (SuspectRuns, SuspectAccompanied)):
            suspect_runs(self, input)
        else:
            self._due(input)

    def _take_answer(self, input: Answered) -> None:
        op = self.instance.ops.get(input.op)
        if op is None or self.instance.outcome is not None:
            return
        if input.sent:
            self.commit.sent = [*self.commit.sent, *map(self.stamp, input.sent)]
            note_sent(self.instance.offspring)
        if self._is_blamed(input.op):
            self._record(input.kind, input.op, input.payload)
        else:
            self.answer(op, input.kind, self.now, input.payload, attempt=input.attempt)

    def _answer_unbegun(self) -> None:
        """Answer what was opened and given up within this step. It must not begin, and replay needs to know that."""
        while unbegun := self.instance.unbegun:
            kind, payload = unbegun[0].answer_unbegun()
            self.answer(unbegun[0], kind, self.now, payload)

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
        if record is not None and record.suspicion is None and record.next_due is None:
            del self.resident.attempts[op.id]
            self.resident.fed = [*self.resident.fed, op.id]
        self.answered(op, Answer(entry, attempt=1 if record is None else record.n + 1))

    def _due(self, input: Due | TimedOut) -> None:
        op = self.instance.ops.get(input.op)
        if op is None or self.instance.outcome is not None or op.when_due is None:
            return
        may_find_one = op.looks_first and isinstance(input, Due) and (not input.again or self._may_find_more(op))
        if may_find_one:
            self.confirm = added(self.confirm, op.id)
        else:
            self.time_out(op)

    def _may_find_more(self, op: Operation) -> bool:
        """Whether an offered event was taken by another wait, or did not fit. Then it hid later events."""
        return bool(self.consumed or self.commit.misfits or op.id in self.commit.looks)

    def _cancel(self, input: CancelAsked) -> None:
        instance = self.instance
        if instance.outcome is not None and instance.outcome.next_run is not None:
            self.resident.inbox.append(input)  # for the next run
            return
        compensation = instance.compensation
        if compensation is not None and compensation.goes_on:
            self.resident.keep(input)
            return
        if not self.is_new(input.request):
            return
        if compensation is not None and compensation.is_unwinding:
            return  # nothing interrupts undos
        again = not input.by_parent and instance.waits_for_good
        if instance.outcome is None and (instance.cancelling is None or again):
            instance.feed(instance.record(Kind.CANCEL_REQUESTED, "", self.now, input.reason.encode()))

    def _child_ended(self, input: ChildEnded) -> None:
        op = self.instance.ops.get(input.op)
        if self.is_new(input.request) and isinstance(op, ChildCall) and self.instance.outcome is None:
            check(input.payload)
            self.answer(op, input.kind, self.now, input.payload)

    # --- results ----------------------------------------------------------------------------------------------------
    def _gather(self, asked: Asked) -> None:
        self.asked, commit, resident = asked, self.commit, self.resident
        commit.entries = asked.entries
        if asked.opened:
            commit.opened = [op.row for op in asked.opened if op.has_row]
            if self.instance.definition.expects is None:
                commit.workflow = self.instance.definition.name  # otherwise nothing is to be learned
        if asked.closed or resident.stale_waits:
            closed = [op.id for op in asked.closed if op.has_row]
            commit.closed = list(dict.fromkeys([*closed, *resident.stale_waits]))
            resident.stale_waits = ()
        if resident.attempts:
            self._drop_attempts(asked)
        if asked.sent:
            headers = self.instance.run.headers
            sent = asked.sent if headers is None else [traced(event, headers) for event in asked.sent]
            commit.sent = [*commit.sent, *map(self.stamp, sent)]
        if resident.new_headers is not None:
            commit.headers, resident.new_headers = resident.new_headers, None
        if asked.emitted:
            commit.emitted = drafts(self.instance.id, asked.emitted, self.now)
        commit.description, commit.publication = asked.description, asked.publication
        commit.status = self.instance.status
        if resident.outdated and commit.status in WAITING:
            commit.status = "running"  # until its waits are stored again: another worker does so if this one dies
        if self.instance.offspring is not None:
            self._gather_children(asked)
        if self.instance.compensation is not None:
            self._compensate(self.instance.compensation)
        commit.same_status = commit.status == resident.status
        if resident.builds is not None:
            commit.builds, commit.same_status = "", False
        if commit.looks:
            commit.looks = [op for op in commit.looks if op in self.instance.ops]
        if asked.outcome is not None:
            self._end(asked.outcome)
            if self.retrial is None:
                commit.rejoins = ()  # the instance has ended: it reads no ends of children
            if self.instance.offspring is not None:
                self._leave(asked.closed)
        self.quiet = commit.same_status and commit.has_only_entries and not self.births
        if resident.fed:
            self._forget_fed(asked)
        commit.append_only = self.quiet and bool(commit.entries)
        if self.tell:
            self._tell_rest(asked)

    def _forget_fed(self, asked: Asked) -> None:
        """Delete the attempts of calls whose results were stored before they were fed, unless that can wait.

        It can if the code only calls activities now: then nothing is to be stored. Another worker would feed the last
        result again, to the same effect.
        """
        resident, calls = self.resident, self.instance.ops.activities
        is_idle = self.quiet and not self.commit.entries and asked.outcome is None
        if is_idle and calls and all(isinstance(op, ActivityCall) for op in asked.opened):
            return
        self.commit.attempts_done = [*self.commit.attempts_done, *resident.fed]
        resident.fed, self.quiet = (), False

    def _gather_children(self, asked: Asked) -> None:
        """Gather what concerns children. Until a child exists there is work to do, for another worker after a crash."""
        is_waiting = asked.outcome is None and self.commit.status in WAITING
        if is_waiting and not self.finds_children and any(isinstance(op, ChildCall) for op in asked.opened):
            self.commit.status = "running"
        self.births = asked.early if asked.outcome is None else asked.unstarted
        self.commit.asks = [Ask(child, reason) for child, reason in asked.asks]
        self._leave(asked.given_up)

    def _leave(self, operations: Iterable[Operation]) -> None:
        """Ask children that the code no longer waits for to cancel, unless they were asked before. Free ones go on."""
        for op in operations:
            if isinstance(op, ChildCall) and not (op.is_free or op.is_over or op.is_asked):
                op.is_asked = True
                self.commit.asks = added(self.commit.asks, Ask(op.child, self._reason))

    @property
    def _reason(self) -> str:
        return self.instance.cancelling or f"its parent {self.instance.id!r} no longer waits for it"

    def _end(self, outcome: Outcome) -> None:
        commit, instance = self.commit, self.instance
        commit.output = outcome.output
        commit.error = outcome.error.encode() if outcome.error else None
        if self.resident.parent is not None and self.resident.parent[1] and outcome.next_run is None:
            commit.ending = ending_of(self.resident.parent, outcome)
        if outcome.next_run is not None:
            deadline = instance.deadline if outcome.next_run.deadline is None else outcome.next_run.deadline
            next_run = replace(outcome.next_run, deadline=deadline)
            commit.continuation = Continuation(next_run, instance.length, instance.run.base)
            commit.workflow = instance.definition.name
            number = instance.run.number + 1
            if self.tell:
                started_at = from_us(instance.started_at)
                self.say([h.WorkflowContinuedInfo(**self.about, started_at=started_at, run_number=number)])

    def _compensate(self, compensation: Compensation) -> None:
        """Block the instance if undos failed for good, once nothing else is running. Tell hooks about undos.

        What is left in the inbox comes first: it may say that they are to be tried again.
        """
        commit, instance = self.commit, self.instance
        is_idle = not (instance.ops.activities or self.resident.inbox)
        if is_idle and instance.outcome is None and compensation.holds:
            self.blocked = compensation.failure
            commit.status, commit.error, commit.release = "blocked", self.blocked.encode(), True
        self.undoing = compensation.take_news()
        if self.tell:
            for news in self.undoing:
                fields = {"not_undone": news.failed} if news.failed else {}
                self.say([COMPENSATION[news.outcome](**self.about, owed=news.owed, **fields)])

    def _drop_attempts(self, asked: Asked) -> None:
        """Delete the records of calls that were withdrawn, or were still open when the workflow ended."""
        attempts = self.resident.attempts
        ops = self.instance.ops
        for op in [op for op in attempts if asked.outcome is not None or (op not in ops and op != BODY)]:
            self.forget_attempt(op)

    def _tell_rest(self, asked: Asked) -> None:
        for op in asked.opened:
            self.say(op.opened_infos(self.about))
        for item in self.commit.sent if self.retrial is None else [i for i in self.commit.sent if not i.is_restored]:
            self.say([h.EventSentInfo(**self.about, event_type=item.event.type, event_id=item.event.id)])
