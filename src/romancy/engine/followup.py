"""The follow-up: everything that happens only after a commit is stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from romancy.core.clock import Clock
from romancy.core.model import SECOND
from romancy.core.operations import ActivityCall, ChildCall, EventWait, Operation
from romancy.engine.activities import Activities
from romancy.engine.children import Children
from romancy.engine.committer import Committer
from romancy.engine.exits import Exits
from romancy.engine.hook_runner import HookRunner
from romancy.engine.inbox import Inboxes
from romancy.engine.inquest import Inquest
from romancy.engine.leases import Lease
from romancy.engine.loader import Loader
from romancy.engine.mail import to_input
from romancy.engine.metrics import Metrics
from romancy.engine.resident import IDLE, Due, EventOffered, Resident, TimedOut
from romancy.engine.revival import Revival
from romancy.engine.step import Step
from romancy.engine.timers import Timers
from romancy.storage.batch import BatchResult, Continuation, Letter
from romancy.storage.errors import RefusedValue


class Followup:
    """Follows up on the commits of instances, and on the answers to batches."""

    def __init__(
        self,
        clock: Clock,
        lease: Lease,
        inboxes: Inboxes,
        loader: Loader,
        committer: Committer,
        inquest: Inquest,
        activities: Activities,
        timers: Timers,
        exits: Exits,
        revival: Revival,
        children: Children,
        hooks: HookRunner,
        metrics: Metrics,
    ) -> None:
        self._clock, self._hooks, self._metrics = clock, hooks, metrics
        self._inboxes, self._residents, self._loader = inboxes, inboxes.residents, loader
        self._committer, self._inquest, self._activities = committer, inquest, activities
        self._timers, self._exits, self._revival = timers, exits, revival
        self._children, self._lease = children, lease

    def committed(self, step: Step, applied: bool, refusal: RefusedValue | None) -> None:
        resident, commit = step.resident, step.commit
        if resident.is_gone:
            return
        resident.state = IDLE
        if refusal is not None:
            self._exits.block(resident, refusal)
        elif not applied:
            self._exits.reload(resident)
        else:
            if not commit.append_only:
                self._apply(step)
            self.follow(step)

    def _apply(self, step: Step) -> None:
        """Update memory with what the commit stored besides entries."""
        resident, commit = step.resident, step.commit
        resident.version += 1
        resident.status, resident.builds = commit.status, None
        if commit.requests_done:
            self._residents.acknowledge(commit.instance)
        for wait in commit.opened:
            if wait.due is not None:
                self._timers.add(wait.due, commit.instance, wait.op)
        for op in commit.closed:
            self._timers.discard(commit.instance, op)
        if commit.closed:
            self._count_waits(step)

    def _count_waits(self, step: Step) -> None:
        answers = EventWait.answers
        outcomes = {entry.op: answers[entry.kind].outcome for entry in step.commit.entries if entry.kind in answers}
        for op in step.asked.closed:
            if isinstance(op, EventWait):
                self._metrics.wait_ended(
                    outcomes.get(op.id, "withdrawn").replace(" ", "_"), (step.now - op.opened_at) / SECOND
                )

    def follow(self, step: Step) -> None:
        """After the commit: start activities, call hooks, return the result."""
        resident, instance, asked, commit = step.resident, step.instance, step.asked, step.commit
        for op in asked.closed:
            if isinstance(op, ActivityCall):
                self._activities.withdraw(instance.id, op.id)
                # Not as soon as it ends: the next suspect could kill the worker before this is stored.
                self._inquest.quarantine.leave(resident, op.id)
        for op in asked.given_up:
            if isinstance(op, ActivityCall):
                self._activities.give_up(resident, op)
        for info in step.told:
            self._hooks.run(info)
        if step.retrial is not None:
            self._metrics.workflows_retried[instance.definition.name] += 1
        for news in step.undoing:
            self._metrics.compensations[instance.definition.name, news.outcome] += 1
        if commit.children or commit.rejoins:
            self._residents.on_work()  # they have no owner yet
        if commit.continuation is not None:
            self._continue(step, commit.continuation)
            return
        if asked.outcome is not None:
            self._exits.finish(resident)
            return
        if step.blocked is not None:
            self._exits.hold(resident, step.blocked)
            return
        # Before activities begin: the result of one that ends at once must wait until the children are started.
        self._begin(resident, asked.opened if instance.offspring is None else self._start_children(step))
        for attempt in step.retries:
            self._inquest.quarantine.leave(resident, attempt.op)
            op = instance.ops.get(attempt.op)
            if isinstance(op, ActivityCall) and attempt.next_due is not None:
                self._rest(resident, op, attempt.next_due)
        for op in step.hastened:
            self._activities.begin_now(instance.id, op)
        if step.begin or step.recorded:
            self._follow_suspects(step)
        for op in step.confirm:
            self._confirm_timeout(resident, op)
        if resident.kept is not None:
            self._residents.acknowledge(instance.id)
        if resident.unlooked is not None:
            self._revival.look_for(resident, resident.unlooked)
            resident.unlooked = None
        if resident.outdated:
            self._renew_waits(resident)
        if resident.inbox or resident.asking is not None:
            self._inboxes.schedule(resident)
        elif resident.is_evictable:
            self._rest_or_stay(resident)

    def _renew_waits(self, resident: Resident) -> None:
        """Store waits as the code asks for them now. The rows that other code had stored have been deleted."""
        ops = resident.instance.ops
        outdated, resident.outdated = resident.outdated, ()
        for op in outdated:
            if ops.get(op.id) is op:
                ops.note_opened(op)
        self._inboxes.schedule(resident)

    def _start_children(self, step: Step) -> Sequence[Operation]:
        """Start the children of a step. Return the operations that come before them: the others begin after that."""
        resident, opened = step.resident, step.asked.opened
        may_exist = resident.is_read and step.retrial is None
        resident.is_read = False
        children = [op for op in opened if isinstance(op, ChildCall)]
        if not children:
            return opened
        first = opened.index(children[0])
        resident.after_children = partial(self._begin, resident, opened[first:])
        if step.finds_children or may_exist:
            self._children.find(resident, children)
        else:
            self._children.start(resident, children, rejoined=step.retrial is not None)
        return opened[:first]

    def _begin(self, resident: Resident, opened: Sequence[Operation]) -> None:
        for op in opened:
            if isinstance(op, ActivityCall):
                self._start_activity(resident, op)

    def _rest_or_stay(self, resident: Resident) -> None:
        if resident.instance.offspring is not None and resident.has_many_children:
            self._residents.stay(resident)
        else:
            self._residents.rest(resident)
            self._exits.shrink()

    def _continue(self, step: Step, continuation: Continuation) -> None:
        """Begin the next run. Its inbox gets only requests to cancel: events are looked for again."""
        self._exits.drop(step.resident)
        self._metrics.workflows_continued[continuation.run.workflow] += 1
        if not self._revival.begin_again(step.resident, continuation, step.commit.at):
            self._residents.on_work()  # another worker has its workflow, and must claim it

    def _follow_suspects(self, step: Step) -> None:
        resident, quarantine = step.resident, self._inquest.quarantine
        for id in step.begin:
            op = step.instance.ops.get(id)
            if isinstance(op, ActivityCall):
                quarantine.recorded(resident, id)
                self._activities.start_reserved(resident, op)
        for id in step.recorded:
            if id in resident.attempts:
                quarantine.recorded(resident, id)
            else:
                quarantine.leave(resident, id)

    def _start_activity(self, resident: Resident, op: ActivityCall) -> None:
        if self._inquest.detains(resident, op):
            return
        attempt = resident.attempts.get(op.id)
        due = None if attempt is None else attempt.next_due
        # If the time of its next attempt has come, the former owner may have begun it, even if the call was given up.
        if due is not None and due > self._clock.now():
            self._rest(resident, op, due)
        else:
            self._activities.start(resident, op)

    def _rest(self, resident: Resident, op: ActivityCall, due: int) -> None:
        """Wait for the time of the next attempt. A call that was given up has no next attempt."""
        if op.given_up:
            self._activities.retry_no_more(resident, op)
        else:
            self._activities.retry_at(resident, op, due)

    def _confirm_timeout(self, resident: Resident, op: str) -> None:
        """Look once for an event that was accepted before the timeout: in a tie, the event wins."""
        id = resident.instance.id
        resident.confirming += 1  # keeps it in memory: if it were read again, it would come here again at once

        def looked() -> None:
            resident.confirming -= 1
            if resident.is_gone:
                return  # its next owner looks again, because its timers are read with it
            # Another wait may take the offered event. Then this wait is still due, and there may be a later event.
            self._loader.wake(id, Due(op, again=True) if resident.offered else TimedOut(op))

        self._committer.look(id, op, looked)

    # --- answers ----------------------------------------------------------------------------------------------------
    def answered(self, answer: BatchResult) -> None:
        """Pass offers to their instances, and begin the instances that events started."""
        if answer.fenced:
            return
        elsewhere = answer.repeated  # its letters are read with the mail
        offered = {offer.instance for offer in answer.offers}
        for accepted in (*answer.accepts, *answer.sent):
            elsewhere = elsewhere or any(
                wait.instance not in offered and wait.instance not in self._residents for wait in accepted.matched
            )
            for started in accepted.started:
                if started.owner is not None:
                    self._revival.begin(started)
                else:
                    elsewhere = True
        for letter in answer.letters:
            elsewhere = not self._pass_on(letter) or elsewhere
        if elsewhere:
            self._residents.on_work()  # they may have no owner: then a worker has to claim them
        now, lag = self._clock.now(), self._metrics.delivery_lag
        for offer in answer.offers:
            lag.observe((now - offer.event.accepted_at) / SECOND)
            self._loader.wake(offer.instance, EventOffered(offer.op, offer.event, offer.group, offer.place))

    def _pass_on(self, letter: Letter) -> bool:
        """Pass a letter to an instance of this worker. Return whether it is one."""
        if not self._lease.is_mine(letter.owner):
            return False
        input = to_input(letter.request, letter.kind, letter.payload, letter.op)
        if input is not None:
            self._loader.wake(letter.instance, input)
        return True
