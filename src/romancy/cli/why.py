"""`romancy why`: what an instance waits for, and what stands in its way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import click

from romancy.cli.lists import present
from romancy.cli.screen import Screen, json_option, print_json
from romancy.cli.target import Inside, Standing
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, error_line, is_worth_showing, one_line, place, plural, relative, wanted, when
from romancy.core.failure import Failure
from romancy.core.model import FINAL, from_us, to_us
from romancy.errors import KillsWorkers
from romancy.explain.near_misses import Reason
from romancy.explain.ownership import runner_of
from romancy.records import CODE, HistoryEntry, Instance, Wait
from romancy.storage.batch import BODY, Attempt


@click.command()
@click.argument("id")
@target_options
@json_option
def why(id: str, options: TargetOptions, as_json: bool) -> None:
    """Say what an instance waits for, and which events came near."""
    standing = options.do(lambda target: target.standing(id))
    instance, inside, now = standing.instance, standing.inside, present()
    said = [*_how(standing, now), *_pending(instance, inside)]
    if as_json:
        head = {"instance_id": instance.instance_id, "workflow": instance.workflow, "status": instance.status}
        until = from_us(inside.worker.until) if inside and inside.worker else None
        waits = [_wait(reason, now) for reason in standing.reasons]
        runner = {"worker": inside.owner if inside else None, "lease_until": until}
        print_json({**head, **runner, "says": said, "waits": waits})
        return
    screen = Screen()
    names = {"instance": clean(instance.instance_id), "workflow": clean(instance.workflow), "status": instance.status}
    about = clean(instance.description or "") if instance.status not in FINAL else ""
    screen.facts({**names, "about": about} if about else names)
    for line in said:
        screen.say(line)
    timers = [reason.wait for reason in standing.reasons if _ASYNCIO_TIMER.match(reason.wait.wait_id)]
    counted = [attempt.op or CODE for attempt in inside.attempts if attempt.crashes] if inside else []
    for reason in standing.reasons:
        _show(screen, reason, timers, counted, now)


_ASYNCIO_TIMER = re.compile(r"timer:\d+$")
"""The ids of timers asyncio sets: `asyncio.timeout`, `wait_for`, `asyncio.sleep`. Those of `sleep(ctx, ...)` differ."""


def _show(screen: Screen, reason: Reason, timers: Sequence[Wait], counted: Sequence[str], now: datetime) -> None:
    """`counted`: operations whose deaths are told above; the wait's own count is as old as the wait."""
    wait = reason.wait
    if wait.wait_id in counted:
        wait = replace(wait, error=None)
    screen.heading(f"{wait.kind} {clean(wait.wait_id)}")
    facts = {
        "for": wanted(wait),
        "since": when(wait.since, now),
        "until": _until(wait, timers, now),
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


def _until(wait: Wait, timers: Sequence[Wait], now: datetime) -> str:
    """When it ends. Which wait an `asyncio.timeout` is around is not recorded: say which there are."""
    if wait.due_at is not None:
        return when(wait.due_at, now)
    if wait.kind != "event":
        return ""
    if not timers:
        return "for ever: it has no timeout"
    said = ", ".join(f"{timer.wait_id} ends {when(timer.due_at, now)}" for timer in timers[:3])
    more = f" and {len(timers) - 3} more" if len(timers) > 3 else ""
    return f"it has no timeout of its own; an asyncio.timeout around it ends it earlier ({said}{more})"


def _wait(reason: Reason, now: datetime) -> dict[str, object]:
    wait = reason.wait
    left = None if wait.due_at is None else (wait.due_at - now).total_seconds()
    return {**vars(wait), "seconds_left": left, "near": reason.near}


def _how(standing: Standing, now: datetime) -> list[str]:
    """How it stands, and what to do about it if anything."""
    instance, inside = standing.instance, standing.inside
    id = clean(instance.instance_id)
    if instance.status in FINAL:
        ended = f"it waits for nothing: it {_ENDED[instance.status]} {when(instance.finished_at, now)}"
        return [ended.rstrip(), *_failure(instance)]
    if instance.status == "blocked" and instance.error and instance.error["type"] == KillsWorkers.__name__:
        return [
            "it is blocked: it is taken to kill the worker that runs it",
            *(f"  {clean(line)}" for line in _message(instance.error).split("\n")),
            "find out what it does to the process (memory, native code, os._exit), "
            f"then `romancy resume {id}` (or `romancy cancel {id}`)",
        ]
    if instance.status == "blocked":
        return [
            "it is blocked: it does nothing until you fix what is wrong and resume it",
            *(f"  {clean(line)}" for line in _message(instance.error).split("\n")),
            f"fix the code, try it with `romancy replay {id} --module MODULE`, "
            f"then `romancy resume {id}` (or `romancy cancel {id}`)",
        ]
    if instance.status in ("waiting_for_event", "waiting_for_timer"):
        return [] if inside is None else [_runner(instance, inside, now)]
    last = _last(standing.last, instance.started_at, now)
    if inside is None:
        return ["a server does not tell which worker runs it; with -d on its database there is more to say", last]
    said = [_runner(instance, inside, now), last]
    if inside.worker is not None and from_us(inside.worker.until) > now and not inside.attempts:
        said.append("it runs its code, or activities in their first attempt: those are recorded when they end")
    return [*said, *(_attempt(attempt, inside.worker is not None, now) for attempt in inside.attempts)]


_ENDED = {"completed": "completed", "failed": "failed", "cancelled": "was cancelled"}


def _runner(instance: Instance, inside: Inside, now: datetime) -> str:
    """Who runs it, and whether that worker is alive."""
    is_wanted = bool(inside.deliveries or inside.is_cancelling)
    about = instance.workflow, instance.status, inside.owner, inside.worker
    runner = runner_of(*about, to_us(now), is_wanted=is_wanted)
    if runner.until is None:
        return clean(runner.said)
    if runner.is_alive:
        return f"{clean(runner.said)}: its lease lasts until {when(runner.until, now)}"
    return f"{clean(runner.said)} {relative(runner.until, now)}: {clean(runner.advice)}"


def _message(error: Mapping[str, Any] | None) -> str:
    return error["message"] if error else "no reason is recorded"


def _failure(instance: Instance) -> list[str]:
    if instance.error is None:
        return []
    said = [error_line(instance.error)]
    if is_worth_showing(instance.error["traceback"] or ""):
        said.append(f"`romancy show {clean(instance.instance_id)}` has the traceback")
    return said


def _last(entry: HistoryEntry | None, started: datetime, now: datetime) -> str:
    if entry is None:
        return f"nothing is recorded yet; it was started {relative(started, now)}"
    return f"last recorded: {entry.kind} {clean(entry.operation)}".rstrip() + f", {relative(entry.at, now)}"


def _attempt(attempt: Attempt, alive: bool, now: datetime) -> str:
    """An activity that failed before, reported progress, or outlived a worker."""
    failed = ""
    if attempt.n:
        times = "once" if attempt.n == 1 else f"{attempt.n} times"
        failed = f"failed {times} ({one_line(_said(attempt), 300)})"
    if attempt.crashes:
        died = f"{plural(attempt.crashes, 'worker')} died while it ran"
        failed = f"{failed}, and {died}" if failed else died
    due = None if attempt.next_due is None else from_us(attempt.next_due)
    if due is not None and due > now and attempt.suspicion is not None:
        next_one = f"it is left out for a while and begins again {relative(due, now)}"
    elif due is not None and due > now:
        next_one = f"attempt {attempt.n + 1} is due {relative(due, now)}"
    elif alive:
        next_one = f"attempt {attempt.n + 1} is under way, or about to begin"
    else:
        next_one = f"attempt {attempt.n + 1} begins when a worker runs it"
    reached = "" if attempt.progress is None else f"its last progress: {one_line(attempt.progress.decode(), 300)}"
    what = f"activity {clean(attempt.op)}" if attempt.op != BODY else "its code"
    return f"{what}: {'; '.join(filter(None, (failed, reached, next_one)))}"


def _said(attempt: Attempt) -> str:
    return Failure.decode(attempt.error).message if attempt.error else "no reason is recorded"


def _pending(instance: Instance, inside: Inside | None) -> list[str]:
    """What others left for it that no worker has seen to yet."""
    if inside is None:
        return []
    said, n, is_blocked = list[str](), inside.deliveries, instance.status == "blocked"
    if inside.is_cancelling:
        seen_to = "that happens once it is resumed" if is_blocked else "no worker has seen to that yet"
        said.append(f"it was asked to stop; {seen_to}")
    if n:
        have, them = ("has", "it") if n == 1 else ("have", "them")
        looked = f"once it is resumed it looks at {them}" if is_blocked else f"no worker has looked at {them} yet"
        said.append(f"{plural(n, 'event')} that may fit {have} come; {looked}")
    return said
