"""The activities that run or are retried: which attempt, since when, with what input and progress. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from romancy.core.model import from_us
from romancy.core.operations import ActivityCall, Operation
from romancy.records import Wait
from romancy.storage.catalog import WHOLE
from romancy.storage.records import ShownAttempt
from romancy.viewer.attempts import failure_of
from romancy.viewer.values import shown_value

State = Literal["runs", "rests", "begins", "waits"]


@dataclass(frozen=True)
class Call:
    """An activity that runs or is retried.

    `state`: an attempt runs; the activity rests until the next one; the next one is due, so it runs or begins now; or
    no live worker is there to run it.
    """

    attempt: int
    """The attempt that runs or comes next."""
    state: State
    since: datetime
    due_at: datetime | None = None
    error: str = ""
    """The error of the attempt before."""
    input: Any = None
    has_input: bool = False
    progress: Any = None
    has_progress: bool = False

    @property
    def is_retry(self) -> bool:
        return self.attempt > 1


def calls_of(
    waits: Sequence[Wait],
    stored: Sequence[ShownAttempt],
    open: Sequence[Operation],
    now: datetime,
    *,
    is_alive: bool,
) -> Mapping[str, Call]:
    """The calls by operation.

    `open`: what the code waits for; empty if it can't be replayed. `is_alive`: a live worker runs the instance.
    """
    called = [one for one in open if isinstance(one, ActivityCall)]
    inputs = {one.id: one.arguments for one in called}
    # The attempts of a call whose result is stored are kept until the code has received it; it runs no more.
    known = {one.op: one for one in stored if one.op in inputs or not called}
    since = {wait.wait_id: wait.since for wait in waits if wait.kind in ("activity", "retry")}
    if is_alive:  # a first attempt in another process is not recorded anywhere else
        since = {one.id: from_us(one.opened_at) for one in called} | since
    found: dict[str, Call] = {}
    for op in dict.fromkeys([*since, *known]):
        attempt = known.get(op)
        raw = inputs.get(op)
        due = None if attempt is None or attempt.next_due is None else from_us(attempt.next_due)
        progress = None if attempt is None else attempt.progress
        found[op] = Call(
            attempt=1 if attempt is None else attempt.n + 1,
            state=_state(due, now, is_alive),
            since=since[op] if attempt is None else from_us(attempt.first_at),
            due_at=due,
            error="" if attempt is None or not attempt.error else _message(attempt.error),
            input=None if raw is None else shown_value(raw[:WHOLE], len(raw)),
            has_input=raw is not None,
            progress=None if progress is None else shown_value(progress, 0 if attempt is None else attempt.size),
            has_progress=progress is not None,
        )
    return found


def _state(due: datetime | None, now: datetime, is_alive: bool) -> State:
    if due is not None and due > now:
        return "rests"
    if not is_alive:
        return "waits"
    return "runs" if due is None else "begins"


def _message(error: bytes) -> str:
    failure = failure_of(error)
    return f"{failure.error_type}: {failure.message}"


def unlisted(calls: Mapping[str, Call], waits: Sequence[Wait], open: Sequence[Operation], id: str) -> list[Wait]:
    """Waits for the calls that no list has: their attempts run in another process."""
    listed = {wait.wait_id for wait in waits}
    places = {one.id: one.location for one in open}
    return [
        Wait(id, op, "retry" if call.is_retry else "activity", (), {}, call.since, None, places.get(op, ""))
        for op, call in calls.items()
        if op not in listed
    ]
