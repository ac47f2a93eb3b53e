"""Operations: what workflow code asks for and waits on, one file for each kind.

A kind defines which entries answer it (`answers`), how replay recognizes it (`input`, `is_recorded_as`), and how the
answer reaches the code (`settle`).

    operation.py   the base class of all kinds
    activity.py    activity calls
    event_wait.py  event waits
    timer.py       sleeps and time limits
"""

from romancy.core.operations.activity import ActivityCall
from romancy.core.operations.event_wait import MODELS, EventWait, Group, model_for
from romancy.core.operations.operation import Operation, OperationFuture, user_line
from romancy.core.operations.timer import Timer

__all__ = [
    "MODELS",
    "ActivityCall",
    "EventWait",
    "Group",
    "Operation",
    "OperationFuture",
    "Timer",
    "model_for",
    "user_line",
]
