"""`romancy why`: what an instance waits for, and what stands in its way."""

from __future__ import annotations

from datetime import datetime

import click

from romancy.app import App
from romancy.cli.database import database_option, on_existing
from romancy.cli.nearness import Reason, reasons
from romancy.cli.reading import present
from romancy.cli.screen import Screen, json_option, print_json
from romancy.cli.words import clean, place, plural, relative, wanted, when
from romancy.core.failure import Failure
from romancy.core.history import Entry, Kind
from romancy.core.model import FINAL, from_us
from romancy.errors import InstanceNotFound
from romancy.storage.protocol import CANCEL, Attempt, InstanceRow, Snapshot


@click.command()
@click.argument("id")
@database_option
@json_option
def why(id: str, database: str, as_json: bool) -> None:
    """Say what an instance waits for, and which events came near."""

    async def work(app: App) -> tuple[Snapshot, list[Reason]]:
        snapshot = await app.engine.storage.load(id)
        if snapshot is None:
            raise InstanceNotFound(instance_id=id)
        return snapshot, await reasons(app, snapshot)

    snapshot, found = on_existing(database, work)
    row, now = snapshot.row, present()
    said = [*_standing(snapshot, now), *_pending(snapshot)]
    if as_json:
        head = {"instance_id": row.id, "workflow": row.workflow, "status": row.status, "worker": row.owner}
        print_json({**head, "says": said, "waits": [_wait(reason, now) for reason in found]})
        return
    screen = Screen()
    screen.facts({"instance": clean(row.id), "workflow": clean(row.workflow), "status": row.status})
    for line in said:
        screen.say(line)
    for reason in found:
        _show(screen, reason, now)


def _show(screen: Screen, reason: Reason, now: datetime) -> None:
    wait = reason.wait
    due = "" if wait.due_at is None else when(wait.due_at, now)
    screen.heading(f"{wait.kind} {clean(wait.wait_id)}")
    facts = {
        "for": wanted(wait),
        "since": when(wait.since, now),
        "until": due or ("for ever: it has no timeout" if wait.kind == "event" else ""),
        "line": place(wait.location),
    }
    screen.facts({name: text for name, text in facts.items() if text})
    if reason.near:
        screen.say("the nearest events it did not take:")
    for event in reason.near:
        came = relative(event.accepted_at, now)
        screen.say(f"  {clean(event.type)} {clean(event.id)} from {clean(event.source)}, {came}")
        for said in event.reasons:
            screen.say(f"    {clean(said)}", "yellow")
    if wait.kind == "event" and not reason.near:
        screen.say("no event of this type has come, nor one like it")


def _wait(reason: Reason, now: datetime) -> dict[str, object]:
    wait = reason.wait
    left = None if wait.due_at is None else (wait.due_at - now).total_seconds()
    return {**vars(wait), "seconds_left": left, "near": reason.near}


def _standing(snapshot: Snapshot, now: datetime) -> list[str]:
    """How it stands, and what to do about it if anything."""
    row = snapshot.row
    if row.status in FINAL:
        ended = when(from_us(row.finished_at or row.updated_at), now)
        return [f"it waits for nothing: it {_ENDED[row.status]} {ended}", *_failure(row.error, row.id)]
    if row.status == "blocked":
        return [
            "it is blocked: its code can't go on from its history",
            *(f"  {clean(line)}" for line in _message(row.error).split("\n")),
            f"mend the code, try it with `romancy replay {clean(row.id)} --module MODULE`, "
            f"then `romancy resume {clean(row.id)}` (or `romancy cancel {clean(row.id)}`)",
        ]
    if row.status in ("waiting_for_event", "waiting_for_timer"):
        return []
    return [_runner(row), _last(snapshot.history, from_us(row.created_at), now), *map(_attempt, snapshot.attempts)]


_ENDED = {"completed": "completed", "failed": "failed", "cancelled": "was cancelled"}


def _runner(row: InstanceRow) -> str:
    """Who runs it. Whether that worker still lives, only one that would take over from it can find out."""
    start = f"that has workflow {clean(row.workflow)!r}: romancy worker MODULE"
    if row.owner is None:
        return f"no worker runs it; start one {start}"
    return f"worker {row.owner} runs it, or did last; if that one is gone, start one {start}"


def _message(error: bytes | None) -> str:
    return Failure.decode(error).message if error else "no reason is recorded"


def _failure(error: bytes | None, id: str) -> list[str]:
    if error is None:
        return []
    failure = Failure.decode(error)
    return [clean(f"{failure.error_type}: {failure.message}"), f"`romancy show {clean(id)}` has the traceback"]


def _last(history: list[Entry], started: datetime, now: datetime) -> str:
    if not history:
        return f"nothing is recorded yet; it was started {relative(started, now)}"
    entry = history[-1]
    kind = Kind(entry.kind).name.lower() if entry.kind in set(Kind) else f"kind {entry.kind}"
    return f"last recorded: {kind} {clean(entry.op)}".rstrip() + f", {relative(from_us(entry.at), now)}"


def _attempt(attempt: Attempt) -> str:
    crashed = f", {plural(attempt.crashes, 'worker')} died over it" if attempt.crashes else ""
    after = f" after {clean(_message(attempt.error))}" if attempt.error else ""
    due = "waits for its next attempt" if attempt.next_due is not None else "is under way"
    return f"activity {clean(attempt.op)} {due}: {plural(attempt.n, 'attempt')} so far{after}{crashed}"


def _pending(snapshot: Snapshot) -> list[str]:
    """What others left for it that nobody has seen to."""
    row, said = snapshot.row, list[str]()
    if any(kind == CANCEL for _, kind, _ in snapshot.requests):
        said.append("it is asked to stop, which no worker has seen to yet")
    if snapshot.deliveries:
        said.append(f"{plural(len(snapshot.deliveries), 'event')} that may fit came, which no worker has looked at yet")
    return [*said, _runner(row)] if said and row.status != "running" else said
