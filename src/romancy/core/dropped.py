"""Which entries of a history still count, after retries: nothing is deleted, so a mark names those that do not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from romancy.core.history import Entry, Kind, dropped_by, replaced_by

_RETRIED = int(Kind.RETRIED)  # looking up an enum member is slow on Python 3.11
COMPLETED = frozenset({Kind.ACTIVITY_COMPLETED, Kind.CHILD_COMPLETED})


def standing(entries: Sequence[Entry]) -> tuple[Sequence[Entry], Dropped | None]:
    """Return the entries that count, and what the retries of the instance dropped; None if it was never retried."""
    if _RETRIED not in [entry.kind for entry in entries]:  # runs on every replay, so it must be cheap
        return entries, None
    dropped = Dropped()
    by_number = {entry.n: entry for entry in entries}
    for entry in entries:
        if entry.kind == Kind.RETRIED:
            replaced = replaced_by(entry)
            if replaced is None:
                dropped.add((by_number[n] for n in dropped_by(entry) if n in by_number), entry.at)
            else:
                dropped.replace(replaced)
            del by_number[entry.n]
    return [entry for entry in entries if entry.n in by_number and entry.n not in dropped.numbers], dropped


class Dropped:
    """What the retries of an instance dropped. It has happened all the same: calls ran, and events were sent."""

    __slots__ = ("_calls", "_emitted", "_sent", "at", "numbers", "retries")

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.retries = 0
        self.at = 0
        """When the instance was last retried."""
        self._calls: dict[str, int] = {}
        self._sent: dict[str, list[tuple[int, bytes | None]]] = {}
        self._emitted: dict[tuple[str, bytes | None], int] = {}

    def __repr__(self) -> str:
        return f"<Dropped {len(self.numbers)} entries in {self.retries} retries>"

    def add(self, entries: Iterable[Entry], at: int) -> None:
        """Add the entries that one more retry drops."""
        self.retries += 1
        self.at = at
        for entry in entries:
            self.numbers.add(entry.n)
            if entry.kind in COMPLETED:
                self._calls[entry.op] = self.retries
            elif entry.kind == Kind.EVENT_SENT:
                self._sent.setdefault(entry.op, []).append((self.retries, entry.input))
            elif entry.kind == Kind.EMITTED:
                self._emitted[entry.op, entry.input] = entry.n

    def replace(self, op: str) -> None:
        """A child could not go on after the last retry. Another one takes its place."""
        self._calls[op] = self.retries

    def name(self, op: str) -> str:
        """Return the name under which the outside world knows a call.

        One that failed is repeated under its own name, because it may have succeeded all the same. One that completed
        before, and is made again, is another call.
        """
        return op + self.suffix(op)

    def suffix(self, op: str) -> str:
        """Return what distinguishes a call from an earlier one under the same id."""
        retry = self._calls.get(op)
        return "" if retry is None else f"~{retry}"

    def event_id(self, op: str, default: str, identity: dict[str, Any]) -> str:
        """Return the default id of an event: another one if something else was sent under it before."""
        sent = self._sent.get(op)
        if sent is None:
            return default
        before = default
        for retry, stored in sent:
            if stored == encode_identity({**identity, "id": before}):
                return before
            before = f"{default}~{retry}"
        return before

    def sent(self, op: str | None = None) -> list[dict[str, Any]]:
        """Return what identifies the dropped events that were sent, oldest first of each operation."""
        found = self._sent.values() if op is None else [self._sent.get(op, [])]
        return [json.loads(stored or b"{}") for each in found for _, stored in each]

    def was_sent(self, op: str, identity: bytes) -> bool:
        """Return whether this very event was sent before."""
        return any(stored == identity for _, stored in self._sent.get(op, ()))

    def was_emitted(self, op: str, identity: bytes, after: int) -> bool:
        """Return whether this very value was emitted before. `after`: of a fork, the last entry of its original."""
        return self._emitted.get((op, identity), 0) > after


def encode_identity(identity: dict[str, Any]) -> bytes:
    """Encode what identifies a sent event, for its mark."""
    return json.dumps({name: value for name, value in identity.items() if value is not None}).encode()
