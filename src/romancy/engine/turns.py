"""Turns: when a transactional activity can add its result to the history. Pure.

The number of the entry must be decided while nothing else of the instance is in progress. So an activity asks for its
turn, and gets it between two steps. During its turn the instance counts as committing, and is fed nothing.
"""

from __future__ import annotations

from romancy.core.history import Entry
from romancy.engine.inbox import Inboxes
from romancy.engine.resident import COMMITTING, IDLE, Resident, Stored, TransactionAsks, Turn
from romancy.storage.attempts import Attempt


def ask(inboxes: Inboxes, resident: Resident, asks: TransactionAsks) -> None:
    """Ask for a turn. There is no answer if the instance leaves memory first."""
    resident.asking = [*(resident.asking or ()), asks]
    if resident.state is not IDLE or resident.inbox or not grant(resident):
        inboxes.schedule(resident)


def grant(resident: Resident) -> bool:
    """Give the next activity its turn; return whether there is one.

    A result that is stored but was not fed yet comes first: the code may give up the others because of it.
    """
    if not resident.begun or (resident.inbox and isinstance(resident.inbox[0], Stored)):
        return False
    asking, instance = resident.asking or [], resident.instance
    while asking:
        asks = asking.pop(0)
        resident.asking = asking or None
        if asks.op in instance.ops and instance.outcome is None:
            resident.state = COMMITTING
            asks.answer(Turn(instance.length + 1, instance.at, resident.version, resident.status))
            return True
        asks.answer(None)
    return False


def record(inboxes: Inboxes, resident: Resident, entry: Entry, attempt: Attempt) -> None:
    """End a turn: the entry is stored, and is fed next. The record of its attempts is kept until then."""
    if not resident.is_gone:
        resident.version += 1
        resident.fed = ()
        resident.attempts.setdefault(entry.op, attempt)
        resident.inbox.insert(0, Stored(entry))
        _go_on(inboxes, resident)


def give_back(inboxes: Inboxes, resident: Resident) -> None:
    """End a turn without an entry."""
    if not resident.is_gone:
        _go_on(inboxes, resident)


def _go_on(inboxes: Inboxes, resident: Resident) -> None:
    """Go on with a step, even if the inbox is empty: the turn may have come in place of a step that had to be made."""
    resident.state = IDLE
    inboxes.schedule(resident)
