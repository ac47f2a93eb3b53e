"""Reopened instances: what the first step of a retried instance stores, besides what its code asks for."""

from __future__ import annotations

from romancy import hooks as h
from romancy.core.given_back import copy_for, expires
from romancy.core.history import Entry, Kind, pack_event, pack_replaced, unpack_event, was_copy
from romancy.core.offspring import with_child
from romancy.core.operations import ChildCall
from romancy.core.retrial import Retrial
from romancy.core.sequences import added
from romancy.engine.draft import Draft
from romancy.engine.resident import ChildEnded, ChildFound, ChildSpent
from romancy.storage.batch import Accept, Rejoin


def go_on(draft: Draft, retrial: Retrial) -> None:
    """Let a retried instance go on. Nothing else is fed to it in this step."""
    draft.resident.retrial, draft.retrial = None, retrial
    draft.is_new(retrial.request)
    retrial.carry_out(draft.instance, draft.now)
    if retrial.given_back:
        _give_back(draft, retrial.given_back)
    if draft.instance.ops.children and retrial.ask.origin is not None:
        _answer_given_up(draft)
    if draft.instance.ops.children:
        _rejoin_children(draft, retrial)
    if retrial.ask.origin is not None:
        draft.retrial = None  # a fork: it begins
    if draft.tell and retrial.ask.origin is not None:
        draft.say([h.WorkflowStartedInfo(**draft.about)])
    elif draft.tell:
        dropped = tuple(entry.n for entry in retrial.dropped)
        draft.say([h.WorkflowRetriedInfo(**draft.about, retry=retrial.number, dropped=dropped)])


def _give_back(draft: Draft, entries: list[Entry]) -> None:
    """Let the instance take events again. They are in the history, and are stored again for it if necessary."""
    given_back: list[int] = []
    for entry in entries:
        payload = entry.payload or b"{}"
        event = unpack_event(payload)
        if entry.event is not None and (was_copy(payload) or not expires(event)):
            given_back.append(entry.event)  # otherwise it gets a copy, and stays without the original
        copy = copy_for(draft.instance.id, event, draft.now)
        draft.commit.sent = added(draft.commit.sent, Accept(copy, pack_event(copy), is_restored=True))
    draft.commit.given_back = given_back


def _answer_given_up(draft: Draft) -> None:
    """Record children that the code of a fork gave up before the cut as cancelled, instead of starting them."""
    for op in [op for op in draft.instance.ops.values() if isinstance(op, ChildCall) and op.given_up]:
        if op.id in draft.instance.ops and draft.instance.outcome is None:
            kind, payload = op.answer_unbegun()
            draft.answer(op, kind, draft.now, payload)


def _rejoin_children(draft: Draft, retrial: Retrial) -> None:
    dropped = {entry.op for entry in retrial.dropped}
    children = [op for op in draft.instance.ops.values() if isinstance(op, ChildCall)]
    # A free child did not end because its parent did, so it is not retried with it. Nor is one that the code gave up:
    # only its end is recorded.
    draft.commit.rejoins = [
        Rejoin(op.child, op.id, not op.given_up and (not op.is_free or op.id in dropped)) for op in children
    ]
    _forget_ends(draft, {rejoin.op for rejoin in draft.commit.rejoins if rejoin.reopens})


def _forget_ends(draft: Draft, reopened: set[str]) -> None:
    """Children that failed or were cancelled since the instance was reopened are retried, too."""
    inbox, draft.resident.inbox = draft.resident.inbox, []
    for input in inbox:
        if isinstance(input, ChildEnded) and input.op in reopened and input.kind != Kind.CHILD_COMPLETED:
            draft.is_new(input.request)
        else:
            draft.resident.inbox.append(input)


def child_found(draft: Draft, input: ChildFound) -> None:
    """Let the storage find out whether the end of the child is still to come. If not, it is told now, or it is spent.

    Also of one that the code has given up since: before it undoes its steps, an instance waits for the ends of those.
    """
    op = draft.instance.ops.get(input.op)
    if not isinstance(op, ChildCall) or draft.instance.outcome is not None:
        return
    # After a retry, another child would be started in the place of one that is spent, though the code cancels it.
    if not (op.is_cancelled and input.may_be_old):
        draft.commit.rejoins = added(
            draft.commit.rejoins, Rejoin(op.child, op.id, reopens=False, is_found=input.may_be_old)
        )


def child_spent(draft: Draft, input: ChildSpent) -> None:
    """Start another child in the place of one that can't go on. A mark says so, for replays."""
    instance = draft.instance
    op = instance.ops.get(input.op)
    if not draft.is_new(input.request) or not isinstance(op, ChildCall) or instance.outcome is not None:
        return
    if op.given_up or instance.dropped is None:
        kind, payload = op.answer_unbegun()
        draft.answer(op, kind, draft.now, payload)
        return
    instance.mark(Kind.RETRIED, "", draft.now, pack_replaced(op.id))
    draft.commit.replaced = added(draft.commit.replaced, op.child)
    instance.dropped.replace(op.id)
    op.rename(instance.id, instance.dropped.suffix(op.id))
    instance.ops.note_opened(op)
    instance.offspring = with_child(instance.offspring, op)
