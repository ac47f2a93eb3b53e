"""The attempts of an activity that was tried more than once, from the marks of its failures. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic_core import from_json

from romancy.core.failure import Failure
from romancy.core.history import MARKED_ATTEMPTS, Kind
from romancy.core.model import from_us
from romancy.storage.catalog import ShownEntry


@dataclass(frozen=True)
class Failed:
    """A mark: this attempt failed. If `began` is None, its start is not recorded."""

    attempt: int
    began: datetime | None
    at: datetime
    next: datetime
    n: int
    error: str


@dataclass(frozen=True)
class Attempt:
    """One attempt. If `end` is None, it is running or due. `n` is the entry that ended it.

    `is_known`: it really began at `begin`. For attempts after the first, only the time they were due is recorded; a
    worker may have begun much later.
    """

    name: str
    outcome: str
    begin: datetime
    end: datetime | None
    n: int | None
    error: str = ""
    is_known: bool = False


def failed_attempts(entries: Sequence[ShownEntry]) -> Mapping[str, Sequence[Failed]]:
    """The marks, by activity."""
    found: dict[str, list[Failed]] = {}
    for shown in entries:
        if shown.entry.kind == Kind.ATTEMPT_FAILED:
            about = json.loads(shown.entry.input or b"{}")
            if about:  # else it is sealed, and there is no key
                found.setdefault(shown.entry.op, []).append(_read(shown, about))
    return found


def _read(shown: ShownEntry, about: Mapping[str, Any]) -> Failed:
    entry = shown.entry
    began, failure = about.get("began"), failure_of(entry.payload)
    return Failed(
        about["attempt"],
        None if began is None else from_us(began),
        from_us(entry.at),
        from_us(about["next"]),
        entry.n,
        f"{failure.error_type}: {failure.message}",
    )


def failure_of(payload: bytes | None) -> Failure:
    """A stored failure, or the beginning of one that was cut short."""
    found: dict[str, Any] = from_json(payload or b"{}", allow_partial="trailing-strings")
    named = {name: found.get(name, "") for name in ("error_type", "message", "traceback")}
    return Failure(**named, rolled_back=found.get("rolled_back", False))


def attempts_of(
    failed: Sequence[Failed], begin: datetime, end: datetime | None, outcome: str, n: int | None
) -> list[Attempt]:
    """The failed attempts, and the last one, which ended as the activity did. None if it ended before that was due."""
    found: list[Attempt] = []
    due = begin
    for mark in failed:
        began = min(due if mark.began is None else mark.began, mark.at)
        is_known = mark.attempt == 1 and mark.began is not None
        found.append(Attempt(f"attempt {mark.attempt}", "failed", began, mark.at, mark.n, mark.error, is_known))
        due = mark.next
    if end is None or due < end:
        last = failed[-1].attempt + 1
        name = f"attempt {last}" if last <= MARKED_ATTEMPTS else f"attempt {last} and later"
        found.append(Attempt(name, outcome, due, end, n))
    return found
