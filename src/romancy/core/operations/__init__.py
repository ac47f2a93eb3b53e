"""Operations: what workflow code asks for and waits on, one file for each kind.

A kind defines which entries answer it (`answers`), how replay recognizes it (`input`, `is_recorded_as`), how the answer
reaches the code (`settle`), how it is stored while it is open (`row`), what happens when it is due (`when_due`), what
hooks hear of it, and how it affects the status of the instance (`status`).

    operation.py   the base class of all kinds
    row.py         how an open operation is stored
    activity.py    activity calls
    event_wait.py  event waits
    timer.py       sleeps and time limits
"""

from collections.abc import Mapping

from romancy.core.history import MARKS, Meaning, Payload
from romancy.core.operations.activity import ActivityCall
from romancy.core.operations.event_wait import MODELS, EventWait, Group, Groups, model_for
from romancy.core.operations.operation import About, Answer, Operation, OperationFuture, user_line
from romancy.core.operations.row import WaitRow
from romancy.core.operations.timer import Timer

KINDS: tuple[type[Operation], ...] = (ActivityCall, EventWait, Timer)
ANSWERED: Mapping[int, type[Operation]] = {entry: kind for kind in KINDS for entry in kind.answers}
"""The kind of operation that a kind of entry settles."""


def meaning_of(entry_kind: int) -> Meaning:
    """Return what an entry of this kind says."""
    kind = ANSWERED.get(entry_kind)
    if kind is not None:
        return kind.answers[entry_kind]
    return MARKS.get(entry_kind, Meaning(f"kind {entry_kind}", Payload.NOTHING))


__all__ = [
    "ANSWERED",
    "KINDS",
    "MODELS",
    "About",
    "ActivityCall",
    "Answer",
    "EventWait",
    "Group",
    "Groups",
    "Operation",
    "OperationFuture",
    "Timer",
    "WaitRow",
    "meaning_of",
    "model_for",
    "user_line",
]
