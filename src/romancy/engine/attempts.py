"""Attempts of activities: what a step stores when one fails, is to begin now, or when a suspect begins or goes on."""

from __future__ import annotations

from dataclasses import replace

from romancy.core.history import MARKED_ATTEMPTS, Kind, pack_attempt
from romancy.core.operations import ActivityCall
from romancy.engine.draft import Draft
from romancy.engine.evidence import accompanied, begun, is_through, running_on
from romancy.engine.resident import AttemptChanged, Hastened, SuspectAccompanied, SuspectBegins, SuspectRuns
from romancy.storage.batch import BODY


def attempt_changed(draft: Draft, input: AttemptChanged) -> None:
    """Store how far the attempts of a call are."""
    attempt = input.attempt
    op = draft.instance.ops.get(attempt.op)
    if not isinstance(op, ActivityCall):
        return
    before = draft.resident.attempts.get(op.id)
    if before is not None and attempt.suspicion is None:
        draft.keep_trial(before)
    draft.record_attempt(attempt)
    if attempt.next_due is not None:
        if attempt.n <= MARKED_ATTEMPTS:
            began = op.opened_at if before is None else before.next_due
            about = pack_attempt(attempt.n, began, attempt.next_due)
            draft.instance.mark(Kind.ATTEMPT_FAILED, op.id, draft.now, about, attempt.error)
        draft.retries = [*draft.retries, attempt]
        if draft.tell:
            draft.say([op.retrying_info(attempt.n, attempt.next_due, input.error_type, input.message, draft.about)])


def hasten(draft: Draft, input: Hastened) -> None:
    """Let the attempts that wait begin now, except suspects, which rest. An attempt that has begun is left alone."""
    if draft.resident.crashed:
        # For the next step: with this one the death of its worker is counted, for each attempt that was due by then.
        draft.resident.inbox.append(input)
        return
    if not draft.is_new(input.request):
        return
    for record in list(draft.resident.attempts.values()):
        op = draft.instance.ops.get(record.op)
        waits = record.next_due is not None and record.next_due > draft.now and record.suspicion is None
        if waits and isinstance(op, ActivityCall) and not op.given_up:
            sooner = replace(record, next_due=draft.now)
            draft.record_attempt(sooner)
            draft.retries = [sooner if retry.op == op.id else retry for retry in draft.retries]
            draft.hastened = [*draft.hastened, op.id]


def suspect_begins(draft: Draft, input: SuspectBegins) -> None:
    """Store that a suspect begins, before it does."""
    record = draft.resident.attempts.get(input.op)
    if record is not None and input.op in draft.instance.ops:
        draft.record_attempt(begun(record, input.is_alone))
        draft.begin = [*draft.begin, input.op]


def suspect_runs(draft: Draft, input: SuspectRuns | SuspectAccompanied) -> None:
    """Store that a suspect still runs, or that it no longer runs alone."""
    record = draft.resident.attempts.get(input.op)
    if record is None or not record.started or record.suspicion is None:
        return
    draft.recorded = [*draft.recorded, input.op]
    if isinstance(input, SuspectAccompanied):
        draft.record_attempt(accompanied(record))
    elif input.op == BODY and is_through(record):
        draft.forget_attempt(BODY)
    else:
        draft.record_attempt(running_on(record, input.ran))
