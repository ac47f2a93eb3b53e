"""`list`, `show`, `waits`: show what a database contains."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

from romancy.cli.children import Children, children_of
from romancy.cli.endings import not_undone, retried_at, undone_words
from romancy.cli.errors import Refused
from romancy.cli.instance_filters import filter_options
from romancy.cli.screen import Screen, json_option, note, print_json
from romancy.cli.target import Target, undone
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import (
    clean,
    clock_time,
    error_line,
    is_worth_showing,
    one_line,
    place,
    shown_builds,
    value,
    wanted,
    when,
)
from romancy.core.attributes import write_attribute
from romancy.core.clock import SystemClock
from romancy.core.filters import Filter
from romancy.core.model import from_us
from romancy.core.token_usage import total_usage, usage_of
from romancy.core.versions import stored_name
from romancy.explain.origins import scheduled_by
from romancy.records import Act, HistoryEntry, Instance, InstanceFilter, Page, Wait

T = TypeVar("T")
_DETAIL = 200
"""Maximum length of a detail in the history table; `--json` has all of it."""
_ERROR = 60
"""Maximum length of the error before a retry, in a table; `why` shows all of it."""

limit_option = click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, metavar="N", show_default=True, help="Maximum number to list."
)
cursor_option = click.option("--cursor", metavar="CURSOR", help="Continue after the previous page.")


@click.command(name="list")
@filter_options
@limit_option
@cursor_option
@target_options
@json_option
def list_(which: InstanceFilter, limit: int, cursor: str | None, options: TargetOptions, as_json: bool) -> None:
    """List instances, newest first."""
    page = options.do(lambda target: _paged(target.verbs.list_instances(**which, limit=limit, cursor=cursor)))
    if as_json:
        print_json({"items": [_instance(item) for item in page.items], "cursor": page.cursor})
        return
    print_instances(page.items)
    _note_rest(page, "instances")


def print_instances(instances: Sequence[Instance]) -> None:
    """Print a table of instances."""
    now = present()
    Screen().table(
        ("instance", "workflow", "status", "started", "about"),
        [
            (
                clean(item.instance_id),
                clean(stored_name(item.workflow, item.version)),
                item.status,
                when(item.started_at, now),
                _about(item),
            )
            for item in instances
        ],
        drop=("workflow", "started", "about"),
    )


@click.command()
@click.option("--type", "-t", metavar="TYPE", help="Only waits for this event type.")
@limit_option
@cursor_option
@target_options
@json_option
def waits(type: str | None, limit: int, cursor: str | None, options: TargetOptions, as_json: bool) -> None:
    """List open waits."""
    page = options.do(lambda target: _paged(target.verbs.list_waits(type=type, limit=limit, cursor=cursor)))
    if as_json:
        print_json({"items": page.items, "cursor": page.cursor})
        return
    rows = [(clean(wait.instance_id), clean(wait.workflow), *wait_row(wait, present())) for wait in page.items]
    Screen().table(("instance", "workflow", *WAIT_COLUMNS), rows, drop=("line", "workflow", *_DROPPED_WAIT_COLUMNS))
    _note_rest(page, "waits")


@click.command()
@click.argument("id")
@target_options
@json_option
def show(id: str, options: TargetOptions, as_json: bool) -> None:
    """Show an instance with its waits and history."""

    async def work(target: Target) -> tuple[Instance, list[HistoryEntry], Children]:
        verbs = target.verbs
        return await verbs.get_instance(id), await verbs.get_history(id), await children_of(verbs, id)

    instance, history, children = options.do(work)
    if as_json:
        entries = [_entry(entry) for entry in history]
        kids = {"counts": children.counts, "items": [_instance(child) for child in children.items]}
        print_json(
            {
                **_instance(instance),
                "acts": instance.acts,
                "waits": instance.waits,
                "children": kids,
                "history": entries,
            }
        )
        return
    screen, now = Screen(), present()
    counted = undone_words(instance, undone(history))
    used = total_usage(entry.result for entry in history)
    facts = {"steps": counted, "not undone": not_undone(instance), "used": "" if used is None else str(used)}
    screen.facts({**header(instance, now), **{name: text for name, text in facts.items() if text}})
    if instance.waits:
        screen.heading("waits")
        screen.table(
            WAIT_COLUMNS, [wait_row(wait, now) for wait in instance.waits], drop=("line", *_DROPPED_WAIT_COLUMNS)
        )
    if children.items:
        screen.heading(_children_heading(children))
        print_instances(children.items)
    if len(children.items) < children.total:
        note(f"only the newest are listed; `romancy list --parent {clean(id)}` lists all")
    screen.heading("history" if instance.run_number == 1 else f"history of run {instance.run_number}")
    gone = retried_at(history)
    rows = [_entry_row(entry, now, gone.get(entry.n)) for entry in history]
    struck = [n for n, entry in enumerate(history) if entry.dropped]
    screen.table(("n", "at", "kind", "operation", "detail"), rows, drop=("n", "at", "detail"), struck=struck)


def _children_heading(children: Children) -> str:
    return f"children: {', '.join(f'{n} {status}' for status, n in children.counts.items())}"


def _about(instance: Instance) -> str:
    """Return the error or the output of an instance, or else its description."""
    if instance.error is not None:
        return one_line(error_line(instance.error), _DETAIL)
    if instance.status == "completed":
        return "" if instance.output is None else one_line(value(instance.output), _DETAIL)
    return clean(instance.description or "")


def header(instance: Instance, now: datetime) -> dict[str, str]:
    """Return the facts about an instance, by name."""
    facts = {
        "instance": clean(instance.instance_id),
        "workflow": clean(stored_name(instance.workflow, instance.version)),
        "status": instance.status,
        "parent": clean(instance.parent or ""),
        "forked from": clean(instance.forked_from or ""),
        "schedule": clean(scheduled_by(instance)),
        "queue": _place(instance),
        "run": _run(instance, now),
        "last description" if instance.finished_at else "about": clean(instance.description or ""),
        "attributes": " ".join(
            f"{name}={clean(write_attribute(found))}" for name, found in instance.attributes.items()
        ),
        "headers": " ".join(clean(f"{name}={text}") for name, text in instance.headers.items()),
        "view": "" if instance.view is None else value(instance.view),
        "started": when(instance.started_at, now),
        "finished": when(instance.finished_at, now),
        "who": ", ".join(_act(act, instance, now) for act in instance.acts),
        "input": value(instance.input),
        "output": value(instance.output) if instance.status == "completed" else "",
        "error": _whole_error(instance.error),
        "not followed": f"by {shown_builds(instance.builds)}" if instance.builds else "",
    }
    return {name: text for name, text in facts.items() if text}


_DONE = {
    "start": "started",
    "cancel": "cancelled",
    "resume": "resumed",
    "retry": "retried",
    "retry now": "retried at once",
    "fork": "forked",
    "answer": "answered",
}


def _act(act: Act, instance: Instance, now: datetime) -> str:
    """Say who did something: `started by alice`, `cancelled by bob 3 min ago`."""
    at = "" if act.at == instance.started_at else f" {when(act.at, now)}"
    return f"{_DONE.get(act.verb, act.verb)} by {clean(act.who)}{at}"


def _place(instance: Instance) -> str:
    """Return the queue of an instance, with its key and its priority if it has them."""
    if instance.queue is None:
        return ""
    key = f", key {instance.key}" if instance.key else ""
    priority = f", priority {instance.priority}" if instance.priority else ""
    return clean(f"{instance.queue}{key}{priority}")


def _run(instance: Instance, now: datetime) -> str:
    """Describe the current run, unless it is the first one: `7, began 2 h ago`."""
    return "" if instance.run_number == 1 else f"{instance.run_number}, began {when(instance.run_started_at, now)}"


def _whole_error(error: dict[str, Any] | None) -> str:
    """Return the traceback if it leads through the user's code, else one line."""
    if error is None:
        return ""
    traceback: str = error["traceback"] or ""
    shown = traceback if is_worth_showing(traceback) else f"{error['type']}: {error['message']}"
    lines = shown.strip().split("\n")
    return "\n".join(map(clean, lines))


WAIT_COLUMNS = ("kind", "wait", "for", "since", "until", "line")
_DROPPED_WAIT_COLUMNS = ("since", "wait", "kind")


def wait_row(wait: Wait, now: datetime) -> tuple[str, ...]:
    """Return the cells of a wait for `WAIT_COLUMNS`."""
    return (
        wait.kind,
        clean(wait.wait_id),
        one_line(wanted(wait), _ERROR) if wait.error else wanted(wait),
        when(wait.since, now),
        when(wait.due_at, now),
        place(wait.location),
    )


def _entry_row(entry: HistoryEntry, now: datetime, retried: datetime | None) -> tuple[str, ...]:
    """Return the cells of an entry. `retried`: when a retry dropped it."""
    marks = [] if retried is None else [f"(retried {clock_time(retried, now)})"]
    if entry.transactional:
        marks.append("(in one transaction)" if entry.error is None else "(rolled back)")
    if (used := usage_of(entry.result)) is not None:
        marks.append(f"({used})")
    detail = " ".join(filter(None, [*marks, _detail(entry)]))
    return (str(entry.n), when(entry.at, now), entry.kind, clean(entry.operation), detail)


def _detail(entry: HistoryEntry) -> str:
    if entry.kind == "retried" and entry.input and "origin" in entry.input:
        return clean(f"forked from {entry.input['origin']}: everything before is copied")
    if entry.kind == "retried":
        return f"after {error_line(entry.error)}" if entry.error is not None else ""
    if entry.error is not None:
        return error_line(entry.error)
    if entry.event is not None:
        event = entry.event
        return value(f"{event['type']} from {event['source']}: {value(event['data'])}", _DETAIL)
    if entry.kind in ("activity_completed", "child_completed"):
        return value(f"{value(entry.input)} -> {value(entry.result)}", _DETAIL)
    known = [part for part in (entry.input, entry.result) if part is not None]
    return value(known[0], _DETAIL) if known else ""


def _entry(entry: HistoryEntry) -> dict[str, Any]:
    """Return an entry for `--json`, with its filter as users write it, not as it is stored."""
    shown = {name: found for name, found in vars(entry).items() if name != "_raw"}
    if entry.kind not in ("event_received", "wait_timed_out"):
        return shown
    stored: dict[str, Any] = entry.input or {}
    narrow = Filter.from_json(stored.get("filter", {}))
    where = {".".join(map(str, path)): wanted for path, wanted in narrow.where}
    parts = {"subject": narrow.subject, "source": narrow.source, "where": where}
    rest = {name: found for name, found in stored.items() if name != "filter"}
    return {**shown, "input": {**rest, **{name: part for name, part in parts.items() if part}}}


def _instance(instance: Instance) -> dict[str, Any]:
    return {name: found for name, found in vars(instance).items() if name not in ("waits", "acts")}


async def _paged(page: Awaitable[Page[T]]) -> Page[T]:
    try:
        return await page
    except ValueError as error:  # an invalid cursor
        raise Refused(str(error)) from None


def _note_rest(page: Page[Any], what: str) -> None:
    if page.cursor is not None:
        note(f"more {what} follow; add --cursor {page.cursor} to see them")
    elif not page.items:
        note(f"no {what}")


def present() -> datetime:
    return from_us(SystemClock().now())
