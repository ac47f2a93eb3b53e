"""Patches: whether a run takes the new way or the old way of a change of its code.

Live, the answer is the new way, and a mark records it. The marks of an activation are stored in the same commit as the
entry it was fed. So on replay, where there is no mark, older code has passed, and the run keeps to the old way. Code
that has not been fed its last entry yet is no longer replaying.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from romancy.core.history import Entry, Kind, Marks

BLOCKS_WAIT = "(saga blocks wait)"
"""A change of Romancy itself: before a `saga` block is undone, what was begun in it is waited for."""
Patches = dict[str, bool | None]
"""The changes that a run has asked about, and whether it takes their new way.

None: the new way is recorded, but the code has not asked.
"""


def is_to_mark(answers: Patches, change: str, marks: Marks | None) -> bool:
    """Answer a question. Return whether the answer must be recorded. `marks`: those of a replayed activation."""
    if marks is not None and marks.pop((Kind.PATCHED, change), None) is not None:
        answers[change] = True
    if change not in answers:
        answers[change] = marks is None
        return marks is None
    if answers[change] is None:
        answers[change] = True
    return False


def own_marks(entries: Sequence[Entry]) -> list[Entry]:
    """Return the mark of Romancy's own change, if it is among the last entries, with the number of the first of them.

    The way that the instance took there decides how it is undone, whatever else its code asked for.
    """
    return [replace(mark, n=entries[0].n) for mark in entries if mark.kind == Kind.PATCHED and mark.op == BLOCKS_WAIT]


def without_patches(answers: Patches | None, marks: Marks) -> Patches | None:
    """Remove the marks of questions that are no longer asked in an activation; they may be asked again further on."""
    for kind, change in [mark for mark in marks if mark[0] == Kind.PATCHED]:
        answers = {} if answers is None else answers
        answers.setdefault(change, None)
        del marks[kind, change]
    return answers
