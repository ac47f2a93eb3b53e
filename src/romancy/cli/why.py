"""`romancy why`: what an instance waits for, and what stands in its way."""

from __future__ import annotations

from datetime import datetime

import click

from romancy.app import App
from romancy.cli.database import database_option, on_existing
from romancy.cli.nearness import Reason, reasons
from romancy.cli.reading import present
from romancy.cli.screen import Screen, json_option, print_json
from romancy.cli.words import clean, one_line, place, plural, relative, wanted, when
from romancy.core.failure import Failure
from romancy.core.history import Entry, Kind
from romancy.core.model import FINAL, from_us
from romancy.errors import InstanceNotFound
from romancy.storage.protocol import CANCEL, Attempt, InstanceRow, Snapshot, WorkerRow


@click.command()
@click.argument("id")
@database_option
@json_option
def why(id: str, database: str, as_json: bool) -> None:
    """Say what an instance waits for, and which events came near."""

    async def work(app: App) -> tuple[Snapshot, WorkerRow | None, list[Reason]]:
        storage = app.engine.storage
        snapshot = await storage.load(id)
        if snapshot is None:
            raise InstanceNotFound(instance_id=id)
        owner = snapshot.row.owner
        return snapshot, await storage.worker(owner) if owner else None, await reasons(app, snapshot)

    snapshot, worker, found = on_existing(database, work)
    row, now = snapshot.row, present()
    said = [*_standing(snapshot, worker, now), *_pending(snapshot, worker, now)]
    if as_json:
        head = {"instance_id": row.id, "workflow": row.workflow, "status": row.status, "worker": row.owner}
        until = from_us(worker.until) if worker else None
        waits = [_wait(reason, now) for reason in found]
        print_json({**head, "lease_until": until, "says": said, "waits": waits})
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


def _standing(snapshot: Snapshot, worker: WorkerRow | None, now: datetime) -> list[str]:
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
    said = [_runner(row, worker, now), _last(snapshot.history, from_us(row.created_at), now)]
    if worker is not None and not snapshot.attempts:
        said.append("it runs its code, or activities in their first attempt: those are recorded when they end")
    return [*said, *(_attempt(attempt, worker is not None, now) for attempt in snapshot.attempts)]


_ENDED = {"completed": "completed", "failed": "failed", "cancelled": "was cancelled"}


def _runner(row: InstanceRow, worker: WorkerRow | None, now: datetime) -> str:
    """Who runs it, and whether that worker is alive."""
    hint = f"that has workflow {clean(row.workflow)!r}: romancy worker MODULE"
    runs = "runs" if row.status == "running" else "holds"
    if row.owner is None:
        return f"no worker {runs} it; start one {hint}"
    if worker is None:
        return f"worker {row.owner}, which {'ran' if runs == 'runs' else 'held'} it, is gone; start one {hint}"
    until = from_us(worker.until)
    who = f"worker {row.owner} on {clean(worker.host)} {runs} it"
    if until <= now:
        return f"{who}, but its lease ran out {relative(until, now)}: it is gone or hangs; another takes over, {hint}"
    return f"{who} and is alive: its lease lasts until {when(until, now)}"


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


def _attempt(attempt: Attempt, alive: bool, now: datetime) -> str:
    """An activity that failed before, reported progress, or outlived a worker."""
    failed = ""
    if attempt.n:
        times = "once" if attempt.n == 1 else f"{attempt.n} times"
        failed = f"failed {times} ({one_line(_message(attempt.error), 300)})"
    if attempt.crashes:
        died = f"{plural(attempt.crashes, 'worker')} died while it ran"
        failed = f"{failed}, and {died}" if failed else died
    due = None if attempt.next_due is None else from_us(attempt.next_due)
    if due is not None and due > now:
        next_one = f"attempt {attempt.n + 1} is due {relative(due, now)}"
    elif alive:
        next_one = f"attempt {attempt.n + 1} is under way, or about to begin"
    else:
        next_one = f"attempt {attempt.n + 1} begins when a worker runs it"
    return f"activity {clean(attempt.op)}: {'; '.join(filter(None, (failed, next_one)))}"


def _pending(snapshot: Snapshot, worker: WorkerRow | None, now: datetime) -> list[str]:
    """What others left for it that nobody has seen to."""
    row, said, n = snapshot.row, list[str](), len(snapshot.deliveries)
    if any(kind == CANCEL for _, kind, _ in snapshot.requests):
        said.append("it was asked to stop; no worker has seen to that yet")
    if n:
        have, them = ("has", "it") if n == 1 else ("have", "them")
        said.append(f"{plural(n, 'event')} that may fit {have} come; no worker has looked at {them} yet")
    return [*said, _runner(row, worker, now)] if said and row.status != "running" else said
