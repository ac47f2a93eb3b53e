"""Offers: events that may be for a wait of an instance. The step takes them, or passes them on."""

from __future__ import annotations

import logging

from romancy.core.given_back import original_of
from romancy.core.history import Kind, pack_event
from romancy.core.model import Event
from romancy.core.operations import EventWait
from romancy.core.sequences import added
from romancy.engine.draft import Draft
from romancy.engine.resident import EventOffered
from romancy.errors import NotStorable
from romancy.storage.batch import Consumption, Misfit
from romancy.storage.opener import PLAIN
from romancy.storage.unopened import check

_logger = logging.getLogger("romancy")


def take_offer(draft: Draft, input: EventOffered) -> None:
    """Feed an event to the wait it is offered to, if that is still open and the event fits."""
    event = input.event
    check(event.data)
    if input.group is not None:
        check(input.group[0])
    op = draft.instance.ops.get(input.op) if input.group is None else draft.instance.ops.groups.first(input.group)
    commit = draft.commit
    commit.seen_deliveries = added(commit.seen_deliveries, event.seq)
    if event.seq in draft.consumed or event.seq in draft.resident.consumed:
        if isinstance(op, EventWait):
            _look_again(draft, op)  # another wait of this instance took it: there may be a later one
        return
    if not isinstance(op, EventWait):
        _pass_on(draft, event)  # the wait is gone
        return
    # Copies are addressed to the instance.
    original = None if event.target is None else original_of(event)
    if original is not None:
        event = original
    elif op.due is not None and op.due < event.accepted_at and op.due <= draft.now:
        # The event came after the timeout, however late we notice that (the worker may have been down). An event
        # that is here before the timeout is not late, whatever its sender's clock says: it would hide later ones.
        _pass_on(draft, event, op)
        draft.time_out(op)
        _look_for_next(draft, op)
        return
    try:
        value = op.fit(event)
    except NotStorable as error:
        _logger.warning(
            "event %r (%s) does not fit wait %r of instance %r, which keeps waiting: %s. The event is kept",
            event.id,
            event.type,
            op.id,
            draft.instance.id,
            error,
        )
        commit.misfits = added(commit.misfits, Misfit(op.id, op.model_key, event.seq, str(error)))
        _look_again(draft, op)
        _pass_on(draft, event, op)
        return
    draft.consume(event.seq)
    commit.consumed = added(commit.consumed, Consumption(event.seq, event.type, op.row))
    payload = pack_event(event, input.place if op.keeps_place else None, was_copy=original is not None)
    draft.answer(op, Kind.EVENT_RECEIVED, draft.now, payload, event=event, value=value)
    _look_for_next(draft, op)


def _pass_on(draft: Draft, event: Event, past: EventWait | None = None) -> None:
    """Look again for other waits that may take this event: its delivery was for them too, and is deleted now."""
    data = PLAIN.matchable(event)
    for op in draft.instance.ops.values():
        if op is past or not isinstance(op, EventWait) or event.type not in op.types:
            continue
        is_first = op.group is None or draft.instance.ops.groups.first(op.group) is op
        if is_first and op.filter.accepts(event.subject, event.source, data):
            _look_again(draft, op)


def _look_for_next(draft: Draft, op: EventWait) -> None:
    """Look for the next wait of the group: equal waits are offered events one after the other."""
    following = draft.instance.ops.groups.first(op.group) if op.group is not None else None
    if following is not None:
        _look_again(draft, following)


def _look_again(draft: Draft, op: EventWait) -> None:
    if op.id not in draft.commit.looks:
        draft.commit.looks = added(draft.commit.looks, op.id)
