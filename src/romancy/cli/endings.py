"""How an instance ended: what led to it, and which command lets it go on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from romancy.cli.words import clean, plural, relative
from romancy.core.operations import undone_by
from romancy.errors import InvalidInput
from romancy.records import HistoryEntry, Instance

_FAILURES = frozenset({"activity_failed", "child_failed", "child_cancelled", "child_refused", "wait_timed_out"})
_MARKS = frozenset({"sent", "tried", "patched", "retried"})
_MOST = 5
"""Entries that are named."""
_MOST_OWED = 50
"""Operations that are named as not undone."""


def leading_to_end(history: Iterable[HistoryEntry], culprits: Collection[int] | None) -> list[HistoryEntry]:
    """Return the entries that led to the end of an instance: those that a retry repeats.

    If `culprits`, their numbers, are not known, it is the last one, provided that it is a failure.
    """
    counted = [entry for entry in history if not entry.dropped and entry.kind not in _MARKS]
    if culprits is not None:
        return [entry for entry in counted if entry.n in culprits]
    return [entry for entry in counted[-1:] if entry.kind in _FAILURES]


def has_undone(history: Iterable[HistoryEntry]) -> bool:
    """Whether an instance has begun to undo its steps. It can't be retried then."""
    return any(undone_by(entry.operation) is not None for entry in history)


def undone_words(instance: Instance, undone: Sequence[str]) -> str:
    """Say how many steps were undone, and which. How many there are in all is only known if some could not be."""
    if not undone:
        return ""
    error: Mapping[str, Any] = instance.error or {}
    n, failed = len(undone), len(error.get("not_undone") or ())
    counted = f"{n} of {n + failed} undone" if failed else f"{n} undone"
    so_far = " so far" if instance.status == "compensating" else ""
    return f"{counted}{so_far}: {', '.join(map(clean, undone[-_MOST:]))}{', ...' if n > _MOST else ''}"


def not_undone(instance: Instance) -> str:
    """Name what an instance has not undone: undos that failed for good, and others that were not tried."""
    error: Mapping[str, Any] = instance.error or {}
    names: Sequence[str] = error.get("not_undone") or ()
    more = f" and {len(names) - _MOST_OWED:,} more" if len(names) > _MOST_OWED else ""
    return f"{', '.join(map(clean, names[:_MOST_OWED]))}{more}"


def way_on(
    instance: Instance, led: Sequence[HistoryEntry], *, is_undone: bool, parent: str | None = None, now: datetime
) -> list[str]:
    """Name what led to the end of an instance, and the command that lets it go on.

    `parent`: its parent, if a retry of that one starts another child in its place.
    """
    id = clean(instance.instance_id)
    if instance.status == "completed":
        return []
    if is_undone and parent is not None:
        again = f"`romancy retry {clean(parent)}` lets its parent go on, and starts another child in its place"
        return [f"it has undone its steps; {again}"]
    if is_undone:
        return [f"it has undone its steps; `romancy fork {id}` starts it again from its input, under a new id"]
    named = [f"{entry.kind} {clean(entry.operation)}, {relative(entry.at, now)}" for entry in led[:_MOST]]
    more = [f"and {plural(len(led) - _MOST, 'more entry')}"] if len(led) > _MOST else []
    what = [f"what led to it: {'; '.join([*named, *more])}"] if named and instance.status == "failed" else []
    advice = f"`romancy retry {id}` goes on from there, and keeps what is recorded"
    if instance.status != "failed":
        return [advice]
    error: Mapping[str, Any] = instance.error or {}
    if error.get("type") == InvalidInput.__name__ and not named:
        change = f"if its code is to take these, change it; then `romancy retry {id}` runs it"
        return [f"start another with arguments that fit; {change}"]
    return [*what, f"fix the cause, then {advice}"]


def retried_at(history: Iterable[HistoryEntry]) -> Mapping[int, datetime]:
    """Return when each entry that no longer counts was dropped by a retry, by its number."""
    found: dict[int, datetime] = {}
    for entry in history:
        numbers: Sequence[int] = entry.input.get("dropped", ()) if entry.kind == "retried" and entry.input else ()
        for n in numbers:
            found.setdefault(n, entry.at)
    return found
