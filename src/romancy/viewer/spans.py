"""A history as bars: when each operation began, when it ended, and how. timeline.py draws them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from romancy.core.history import OTHER_MEANINGS, Entry, Kind, is_in_transaction
from romancy.core.model import from_us
from romancy.core.operations import SETTLED_BY, meaning_of, undone_by
from romancy.core.replay import Opened
from romancy.records import Wait
from romancy.storage.catalog import ShownEntry
from romancy.viewer.attempts import Attempt, Failed, attempts_of, failed_attempts
from romancy.viewer.retries import Retry

LEFT = "goes on by itself"
"""What became of a child when its parent ended first."""


@dataclass(frozen=True)
class Bar:
    """One operation. `end` is None while it is open; `n` is the entry that ended it."""

    label: str
    kind: str
    outcome: str
    begin: datetime
    end: datetime | None
    n: int | None = None
    is_guess: bool = False
    """The start is not recorded; the time of the previous entry is used instead."""
    attempts: Sequence[Attempt] = ()
    """Set if there was more than one."""
    undoes: str | None = None
    """The operation it undoes."""
    retried: Retry | None = None
    """The retry since which it no longer counts."""
    in_transaction: bool = False
    """Its own writes were committed together with its result, or were rolled back."""
    instance: str | None = None
    """The child that did it; None: the instance itself."""


def bars_of(
    entries: Sequence[ShownEntry],
    waits: Sequence[Wait],
    opened: Mapping[str, Opened] | None,
    began: datetime,
    retried: Mapping[int, Retry] | None = None,
) -> list[Bar]:
    """Bars for operations that ended according to the history, and for those that are open.

    `retried`: the entries that no longer count. Their operations began again with the retry.
    """
    found: list[Bar] = []
    known, seen, before = dict(opened or {}), set[str](), began
    again = _operations_by_retry(entries, retried or {})
    for shown in entries:
        entry = shown.entry
        at = from_us(entry.at)
        answered, outcome = SETTLED_BY.get(entry.kind), meaning_of(entry.kind).outcome
        if answered is not None:
            start = known.get(entry.op)
            begin = before if start is None else from_us(start.began)
            found.append(Bar(entry.op, answered.name, outcome, min(begin, at), at, entry.n, is_guess=start is None))
            seen.add(entry.op)
            before = at
        elif entry.kind in OTHER_MEANINGS and entry.kind != Kind.ATTEMPT_FAILED:  # those are parts of another bar
            found.append(Bar(entry.op or _label(entry), "mark", outcome, at, at, entry.n))
        for op in again.get(entry.n, ()):
            seen.discard(op)
            if op in known:
                known[op] = replace(known[op], began=max(known[op].began, entry.at))
    found += [
        Bar(op, start.kind, LEFT if start.goes_on else "withdrawn", from_us(start.began), from_us(start.over))
        for op, start in known.items()
        if start.over is not None and op not in seen
    ]
    found += [Bar(wait.wait_id, wait.kind, "open", wait.since, None) for wait in waits if wait.wait_id not in seen]
    gone = retried or {}
    together = {op for op, start in known.items() if start.in_transaction}
    together |= {shown.entry.op for shown in entries if is_in_transaction(shown.entry)}
    found = [
        replace(bar, undoes=undone_by(bar.label), retried=gone.get(bar.n or 0), in_transaction=bar.label in together)
        for bar in found
    ]
    return sorted(_with_attempts(found, failed_attempts(entries)), key=lambda bar: (bar.begin, bar.n or 2**62))


def _label(mark: Entry) -> str:
    """Name a mark that belongs to no operation."""
    if mark.kind != Kind.RETRIED:
        return "cancel"
    return "fork" if b'"origin"' in (mark.input or b"") else "retry"


def _operations_by_retry(entries: Sequence[ShownEntry], retried: Mapping[int, Retry]) -> Mapping[int, Sequence[str]]:
    """The operations whose answers each retry dropped, by the number of its mark."""
    found: dict[int, list[str]] = {}
    for shown in entries:
        retry = retried.get(shown.entry.n)
        if retry is not None and shown.entry.kind in SETTLED_BY:
            found.setdefault(retry.n, []).append(shown.entry.op)
    return found


def _with_attempts(bars: Sequence[Bar], failed: Mapping[str, Sequence[Failed]]) -> list[Bar]:
    """Split bars of activities with several attempts. Activities with marks only are drawn up to the last mark."""
    known = {bar.label for bar in bars if bar.kind != "mark"}
    alone = [
        Bar(op, "activity", "tried", marks[0].began or marks[0].at, marks[-1].at)
        for op, marks in failed.items()
        if op not in known
    ]
    found: list[Bar] = []
    for bar in (*bars, *alone):
        own = _attempts_before(bar, failed[bar.label], bars) if bar.label in failed and bar.kind != "mark" else ()
        found.append(_in_pieces(bar, own) if own else bar)
    return found


def _attempts_before(bar: Bar, failed: Sequence[Failed], bars: Sequence[Bar]) -> Sequence[Failed]:
    """The failed attempts that belong to a bar: after a retry, an operation has more than one."""
    last = 2**62 if bar.n is None else bar.n
    before = [other for other in bars if other.label == bar.label and other.retried and other.n and other.n < last]
    if not before:
        return [mark for mark in failed if mark.n < last] if bar.retried else failed
    first = max(before, key=lambda other: other.n or 0)
    assert first.retried is not None
    # The recorded start is that of the call, which was made before the retry.
    again = first.retried.at
    own = [mark for mark in failed if (first.n or 0) < mark.n < last]
    return [replace(mark, began=mark.began and max(mark.began, again)) for mark in own]


def _in_pieces(bar: Bar, failed: Sequence[Failed]) -> Bar:
    first = failed[0]
    is_guess = bar.is_guess and (first.attempt > 1 or first.began is None)
    begin = min(bar.begin if not bar.is_guess or first.began is None else first.began, first.at)
    attempts = attempts_of(failed, begin, bar.end, bar.outcome, bar.n)
    return replace(bar, begin=begin, is_guess=is_guess, attempts=attempts)
