"""Operations: what workflow code asks for and waits on, one file for each kind.

A kind defines which entries answer it (`answers`), how replay recognizes it (`input`, `is_recorded_as`), how the answer
reaches the code (`settle`), how it is stored while it is open (`row`), what happens when it is due (`when_due`), what
hooks hear of it, and how it affects the status of the instance (`status`).

    operation.py   the base class of all kinds
    row.py         how an open operation is stored
    activity.py    activity calls
    event_wait.py  event waits
    child.py       child workflows
    timer.py       sleeps and time limits
    undo.py        calls that can be undone, their undos, and the hold after undos that failed
"""

from collections.abc import Mapping

from romancy.core.history import OTHER_MEANINGS, Meaning, Payload
from romancy.core.operations.activity import ActivityCall, StepCall
from romancy.core.operations.child import ChildCall, child_id
from romancy.core.operations.event_wait import MODELS, EventWait, Group, Groups, model_for
from romancy.core.operations.operation import About, Answer, Operation, OperationFuture, user_line
from romancy.core.operations.row import After, Since, Sought, WaitRow
from romancy.core.operations.timer import Timer
from romancy.core.operations.undo import Hold, Undo, UndoableCall, UndoCall, undo_name, undone_by

KINDS: tuple[type[Operation], ...] = (ActivityCall, EventWait, Timer, ChildCall, Hold)
SETTLED_BY: Mapping[int, type[Operation]] = {entry_kind: kind for kind in KINDS for entry_kind in kind.answers}
"""Which kind of operation is settled by an entry of this kind."""


def meaning_of(entry_kind: int) -> Meaning:
    """Return what an entry of this kind says."""
    kind = SETTLED_BY.get(entry_kind)
    if kind is not None:
        return kind.answers[entry_kind]
    return OTHER_MEANINGS.get(entry_kind, Meaning(f"kind {entry_kind}", Payload.NOTHING))


__all__ = [
    "KINDS",
    "MODELS",
    "SETTLED_BY",
    "About",
    "ActivityCall",
    "After",
    "Answer",
    "ChildCall",
    "EventWait",
    "Group",
    "Groups",
    "Hold",
    "Operation",
    "OperationFuture",
    "Since",
    "Sought",
    "StepCall",
    "Timer",
    "Undo",
    "UndoCall",
    "UndoableCall",
    "WaitRow",
    "child_id",
    "meaning_of",
    "model_for",
    "undo_name",
    "undone_by",
    "user_line",
]
