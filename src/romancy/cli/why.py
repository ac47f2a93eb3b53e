"""`romancy why`: explain what an instance waits for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import click

from romancy.cli.children import awaited, is_replaced_with_parent
from romancy.cli.endings import not_undone, undone_words, way_on
from romancy.cli.lists import present
from romancy.cli.questions import question_of, show_question
from romancy.cli.queues import queued_words
from romancy.cli.schedules import scheduled_words
from romancy.cli.screen import Screen, json_option, print_json
from romancy.cli.target import Inside, Standing, Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import (
    clean,
    error_line,
    is_worth_showing,
    one_line,
    place,
    plural,
    relative,
    shown_builds,
    wanted,
    when,
)
from romancy.core.failure import Failure
from romancy.core.model import FINAL, WAITING, from_us, to_us
from romancy.core.operations import undone_by
from romancy.core.versions import stored_name
from romancy.errors import CodecError, CompensationFailed, KillsWorkers
from romancy.explain.near_misses import Reason
from romancy.explain.ownership import runner_of
from romancy.question_verbs import QuestionRecord
from romancy.records import CODE, HistoryEntry, Instance, Wait
from romancy.storage.attempts import Attempt
from romancy.storage.batch import BODY


@click.command()
@click.argument("id")
@target_options
@json_option
def why(id: str, options: TargetOptions, as_json: bool) -> None:
    """Explain what an instance waits for and which events came close.

    With a database, it also shows which worker runs or holds the instance and whether that worker is alive.
    """

    found = options.do(lambda target: explain(target, id))
    if as_json:
        print_json(found.as_json())
        return
    instance, inside, now, name = found.standing.instance, found.standing.inside, found.now, found.name
    screen = Screen()
    names = {"instance": clean(instance.instance_id), "workflow": clean(name), "status": instance.status}
    about = clean(instance.description or "") if instance.status not in FINAL else ""
    screen.facts({**names, "about": about} if about else names)
    for line in found.lines:
        screen.say(line)
    timers = [reason.wait for reason in found.standing.reasons if _ASYNCIO_TIMER.match(reason.wait.wait_id)]
    reported = [attempt.op or CODE for attempt in inside.attempts if attempt.crashes] if inside else []
    for reason in found.standing.reasons:
        question = question_of(reason.wait, found.standing.questions)
        if question is None:
            _show(screen, reason, timers, reported, now)
        else:
            show_question(screen, reason.wait, question, now)


@dataclass(frozen=True)
class Explanation:
    """What an instance waits for, and why: the facts, and what to say about them."""

    standing: Standing
    lines: Sequence[str]
    now: datetime

    @property
    def name(self) -> str:
        return stored_name(self.standing.instance.workflow, self.standing.instance.version)

    def as_json(self) -> dict[str, object]:
        instance, inside = self.standing.instance, self.standing.inside
        head = {"instance_id": instance.instance_id, "workflow": self.name, "status": instance.status}
        until = from_us(inside.worker.until) if inside and inside.worker else None
        waits = [_wait(reason, self.standing.questions, self.now) for reason in self.standing.reasons]
        runner = {"worker": inside.owner if inside else None, "lease_until": until}
        return {**head, **runner, "says": self.lines, "waits": waits}


async def explain(target: Target, id: str) -> Explanation:
    """Find out what an instance waits for, and which events came close."""
    standing = await target.standing(id)
    children = await awaited(target.verbs, [reason.wait for reason in standing.reasons])
    is_replaced, now = await is_replaced_with_parent(target, standing), present()
    lines = [
        *scheduled_words(standing.instance),
        *_state(standing, now, is_replaced=is_replaced),
        *children,
        *_pending(standing.instance, standing.inside),
    ]
    return Explanation(standing, lines, now)


_ASYNCIO_TIMER = re.compile(r"timer:\d+$")
"""Ids of timers set by asyncio (`timeout`, `wait_for`, `sleep`). The ids of `sleep(ctx, ...)` differ."""


def _show(screen: Screen, reason: Reason, timers: Sequence[Wait], reported: Sequence[str], now: datetime) -> None:
    """Show a wait. `reported`: operations whose crashes are shown above; the count in the wait can be outdated."""
    wait = reason.wait
    if wait.wait_id in reported:
        wait = replace(wait, error=None)
    screen.heading(f"{wait.kind} {clean(wait.wait_id)}")
    facts = {
        "for": wanted(wait),
        "since": when(wait.since, now),
        "until": _until(wait, timers, now),
        "line": place(wait.location),
    }
    screen.facts({name: text for name, text in facts.items() if text})
    if wait.slot:
        screen.say(clean(wait.slot), "yellow")
    if wait.kind in ("event", "answer") and wait.error and not reason.near:
        screen.say(clean(wait.error), "yellow")
    if wait.kind == "retry" and wait.wait_id != CODE and wait.due_at is not None and wait.due_at > now:
        screen.say(f"`romancy retry-now {clean(wait.instance_id)}` begins the next attempt now")
    if wait.cut_at is not None:
        screen.say(
            f"events for it that were accepted before {when(wait.cut_at, now)} were removed, because "
            "Retention(events=...) limits how long they are kept: it may have missed one",
            "yellow",
        )
    if reason.near:
        screen.say("nearest events:")
    for event in reason.near:
        age = relative(event.accepted_at, now)
        screen.say(f"  {clean(event.type)} {clean(event.id)} from {clean(event.source)}, {age}")
        for text in event.reasons:
            screen.say(f"    {clean(text)}", "yellow")
    if wait.kind == "event" and not reason.near:
        screen.say("no event of this or a similar type has arrived")


def _until(wait: Wait, timers: Sequence[Wait], now: datetime) -> str:
    """Return when a wait ends. Which `asyncio.timeout` surrounds it is not recorded, so list all of them."""
    if wait.due_at is not None:
        return when(wait.due_at, now)
    if wait.kind != "event":
        return ""
    if not timers:
        return "forever: it has no timeout"
    ends = ", ".join(f"{timer.wait_id} ends {when(timer.due_at, now)}" for timer in timers[:3])
    more = f" and {len(timers) - 3} more" if len(timers) > 3 else ""
    return f"no timeout of its own; an asyncio.timeout around it can end it ({ends}{more})"


def _wait(reason: Reason, questions: Sequence[QuestionRecord], now: datetime) -> dict[str, object]:
    wait, question = reason.wait, question_of(reason.wait, questions)
    left = None if wait.due_at is None else (wait.due_at - now).total_seconds()
    shown: dict[str, object] = {**vars(wait), "seconds_left": left, "near": reason.near}
    return shown if question is None else {**shown, "question": question}


def _state(standing: Standing, now: datetime, *, is_replaced: bool) -> list[str]:
    """Describe the state of an instance, and what to do about it. `is_replaced`: a retry of its parent replaces it."""
    instance, inside = standing.instance, standing.inside
    id = clean(instance.instance_id)
    if instance.status in FINAL:
        ended = f"it waits for nothing: it {_ENDED[instance.status]} {when(instance.finished_at, now)}"
        parent = instance.parent if is_replaced else None
        way = way_on(instance, standing.led_to_end, is_undone=standing.has_undone, parent=parent, now=now)
        return [ended.rstrip(), *_failure(instance), *way]
    if instance.status == "blocked" and instance.error and instance.error["type"] == KillsWorkers.__name__:
        return [
            "it is blocked: it seems to kill the worker that runs it",
            *(f"  {clean(line)}" for line in _message(instance.error).split("\n")),
            "find out how it ends the process (memory, native code, os._exit), "
            f"then `romancy resume {id}` (or `romancy cancel {id}`)",
        ]
    if instance.status == "blocked" and instance.error and instance.error["type"] == CompensationFailed.__name__:
        return [
            "it is blocked: some of what it did could not be undone",
            *(f"  {clean(line)}" for line in _message(instance.error).split("\n")),
            *_undone(standing),
            f"not undone: {not_undone(instance)}",
            f"fix the cause, then `romancy resume {id}` tries the failed undos again, and goes on "
            f"(`romancy cancel {id}` gives up all that is not undone)",
        ]
    if instance.status == "blocked" and instance.error and "missing" in instance.error:
        return [
            f"it is blocked: the worker that tried it lacks the key {clean(instance.error['missing'])!r}",
            *(f"  {clean(line)}" for line in _message(instance.error).split("\n")),
            "a worker that has the key continues it by itself: add the key to the codec of the app, and restart it "
            f"(or `romancy cancel {id}`)",
        ]
    if instance.status == "blocked" and instance.error and instance.error["type"] == CodecError.__name__:
        return [
            "it is blocked: one of its values can't be read",
            *(f"  {clean(line)}" for line in _message(instance.error).split("\n")),
            f"restore it, then `romancy resume {id}` (or `romancy cancel {id}`); if it is in a file, put that back, "
            "or start the workers where its folder is: a relative path begins there",
        ]
    if instance.status == "blocked":
        return [
            f"it is blocked: it does nothing {_until_it_goes_on(instance)}",
            *(f"  {clean(line)}" for line in _message(instance.error).split("\n")),
            f"fix the code, test it with `romancy replay {id} --module MODULE`, "
            f"then {_how_it_goes_on(instance, id)} (or `romancy cancel {id}`)",
        ]
    if instance.status == "queued":
        return queued_words(instance, inside, now)
    if instance.status in WAITING:
        return [] if inside is None else [_runner(instance, inside, now)]
    undoing = _undoing(standing) if instance.status == "compensating" else []
    last = _last(standing.last, instance.started_at, now)
    if inside is None:
        return ["a server does not show which worker runs it; use -d with its database to see more", *undoing, last]
    lines = [_runner(instance, inside, now), *undoing, last]
    is_there = inside.worker is not None and not inside.worker.is_gone
    if inside.worker is not None and is_there and from_us(inside.worker.until) > now and not inside.attempts:
        lines.append("it runs its code, or activities in their first attempt, which are recorded when they end")
    return [*lines, *(_attempt(attempt, is_there, now) for attempt in inside.attempts)]


def _until_it_goes_on(instance: Instance) -> str:
    if not instance.builds:
        return "until you fix the problem and resume it"
    return f"until a worker has code that follows its history ({shown_builds(instance.builds)} could not)"


def _how_it_goes_on(instance: Instance, id: str) -> str:
    if not instance.builds:
        return f"`romancy resume {id}`"
    return f"deploy it: a worker of another build tries it by itself; `romancy resume {id}` lets any worker try at once"


def _undoing(standing: Standing) -> list[str]:
    """Describe what is being undone, as far as it is recorded: an undo in its first attempt is not."""
    known = [wait.wait_id for wait in standing.instance.waits]
    known += [attempt.op for attempt in standing.inside.attempts] if standing.inside else []
    names = dict.fromkeys(of for op in known if (of := undone_by(op)) is not None)
    what = ", ".join(map(clean, names)) or "what it did"
    return [f"it ended, and is undoing {what}", *_undone(standing)]


def _undone(standing: Standing) -> list[str]:
    counted = undone_words(standing.instance, standing.undone)
    return [counted] if counted else []


_ENDED = {"completed": "completed", "failed": "failed", "cancelled": "was cancelled"}


def _runner(instance: Instance, inside: Inside, now: datetime) -> str:
    """Describe the worker that runs or holds the instance, and whether it is alive."""
    is_wanted = bool(inside.deliveries or inside.is_cancelling)
    about = stored_name(instance.workflow, instance.version), instance.status, inside.owner, inside.worker
    runner = runner_of(*about, to_us(now), is_wanted=is_wanted, has_others=inside.has_worker)
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
    lines = [error_line(instance.error)]
    if given_up := not_undone(instance):
        lines.append(f"not undone: {given_up}")
    if is_worth_showing(instance.error["traceback"] or ""):
        lines.append(f"`romancy show {clean(instance.instance_id)}` shows the traceback")
    return lines


def _last(entry: HistoryEntry | None, started: datetime, now: datetime) -> str:
    if entry is None:
        return f"nothing is recorded yet; it was started {relative(started, now)}"
    return f"last recorded: {entry.kind} {clean(entry.operation)}".rstrip() + f", {relative(entry.at, now)}"


def _attempt(attempt: Attempt, alive: bool, now: datetime) -> str:
    """Describe an activity that failed before, reported progress, or was running when a worker died."""
    failed = ""
    if attempt.n:
        times = "once" if attempt.n == 1 else f"{attempt.n} times"
        failed = f"failed {times} ({one_line(_error(attempt), 300)})"
    if attempt.crashes:
        died = f"{plural(attempt.crashes, 'worker')} died while it ran"
        failed = f"{failed}, and {died}" if failed else died
    due = None if attempt.next_due is None else from_us(attempt.next_due)
    if due is not None and due > now and attempt.suspicion is not None:
        next_one = f"it is set aside for a while and starts again {relative(due, now)}"
    elif due is not None and due > now:
        next_one = f"attempt {attempt.n + 1} is due {relative(due, now)}"
    elif alive:
        next_one = f"attempt {attempt.n + 1} is running or about to start"
    else:
        next_one = f"attempt {attempt.n + 1} starts when a worker runs it"
    progress = "" if attempt.progress is None else f"last progress: {one_line(attempt.progress.decode(), 300)}"
    what = f"activity {clean(attempt.op)}" if attempt.op != BODY else "its code"
    return f"{what}: {'; '.join(filter(None, (failed, progress, next_one)))}"


def _error(attempt: Attempt) -> str:
    if attempt.error is None:
        return "no reason is recorded"
    failure = Failure.decode(attempt.error)
    return f"{failure.error_type}: {failure.message}" if failure.error_type else failure.message


def _pending(instance: Instance, inside: Inside | None) -> list[str]:
    """Describe requests and events that no worker has handled yet."""
    if inside is None:
        return []
    lines, n, is_blocked = list[str](), inside.deliveries, instance.status == "blocked"
    if inside.is_cancelling:
        handled = "it stops once it is resumed" if is_blocked else "no worker has handled that yet"
        lines.append(f"it was asked to stop; {handled}")
    if n:
        have, them = ("has", "it") if n == 1 else ("have", "them")
        handled = f"a worker checks {them} after a resume" if is_blocked else f"no worker has checked {them} yet"
        lines.append(f"{plural(n, 'event')} that might match {have} arrived; {handled}")
    return lines
