"""`cancel` and `resume`, for instances given by their ids or by filters."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from romancy.bulk import ERRORS, PAGE, add_up
from romancy.cli.endings import not_undone
from romancy.cli.errors import Failed, Refused, as_line
from romancy.cli.instance_filters import filter_options
from romancy.cli.lists import print_instances
from romancy.cli.screen import note
from romancy.cli.target import Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, plural
from romancy.core.model import FINAL, Status
from romancy.core.versions import stored_name
from romancy.errors import InstanceNotFound
from romancy.records import BulkResult, Instance, InstanceFilter
from romancy.storage.batch import STATUS_CODES

_PREVIEW = 20
"""Instances shown before the question."""
_ERRORS = 20
"""Errors that are printed."""


@dataclass(frozen=True)
class Action:
    """A command for one instance or many."""

    name: str
    applies_to: Sequence[Status]
    """Without `--status`, only instances with one of these are meant."""
    one: Callable[[Target, str], Awaitable[str]]
    """Does it to one instance and returns what to print. Raises `Failed` if there is nothing to do."""
    done: str
    """What has happened to the instances, after their number."""
    reason: str | None = None
    instead: Callable[[str], str] | None = None
    """Says what to do with an instance that is refused; None if none is ever refused."""


@dataclass(frozen=True)
class Chosen:
    """The instances that a command line means."""

    ids: Sequence[str]
    which: InstanceFilter
    limit: int | None
    yes: bool


def choosing(command: Callable[..., None]) -> Callable[..., None]:
    """Add the ids and filters; the command receives them as arguments of `act`."""
    command = click.option("--yes", "-y", is_flag=True, help="Do not ask before acting on many instances.")(command)
    command = click.option(
        "--limit", type=click.IntRange(1), metavar="N", help="Act on at most N instances, newest first."
    )(command)
    return click.argument("ids", nargs=-1, metavar="[ID]...")(filter_options(command))


@click.command()
@choosing
@click.option("--reason", help="Reason to record with the cancellation.")
@target_options
def cancel(reason: str | None, options: TargetOptions, **chosen: Any) -> None:
    """Cancel instances.

    Their code can clean up first, and what they did is undone. Asks first about an ID whose undos have failed for good:
    cancelling gives them up. Give ids, or filters for many instances: these are listed first, and you are asked.
    Exits with 1 if an ID has already ended, or if no instance matches.

    \b
      romancy cancel order-1 order-2
      romancy cancel --workflow order --since 2h --reason "sold out"
    """

    async def one(target: Target, id: str) -> str:
        if not chosen["yes"]:
            _ask_about_undos(await target.verbs.get_instance(id))
        is_accepted = await target.verbs.cancel_workflow(id, reason=reason)
        after = await target.verbs.get_instance(id)
        if not is_accepted:
            raise Failed(f"instance {id!r} is already {after.status}; nothing to cancel{_hint(after, id)}")
        if after.status == "cancelled":
            return f"instance {id!r} is cancelled"
        if after.status == "compensating":
            return f"instance {id!r}: its undos are running; they are not interrupted, and it ends after them"
        return f"asked instance {id!r} to stop; its worker will cancel it"

    done = "cancelled, or asked to stop: their workers will cancel them"
    unfinished: list[Status] = [status for status in STATUS_CODES if status not in FINAL]
    act(Action("cancel", unfinished, one, done, reason), Chosen(**chosen), options)


@click.command()
@choosing
@target_options
def resume(options: TargetOptions, **chosen: Any) -> None:
    """Retry blocked instances after fixing their code.

    Give ids, or filters for many instances: these are listed first, and you are asked. Exits with 1 if an ID is not
    blocked, or if no instance matches.
    """

    async def one(target: Target, id: str) -> str:
        is_accepted = await target.verbs.resume_workflow(id)
        after = await target.verbs.get_instance(id)
        if not is_accepted:
            raise Failed(f"instance {id!r} is {after.status}, not blocked; nothing to resume{_hint(after, id)}")
        return f"a worker that has workflow {stored_name(after.workflow, after.version)!r} will retry instance {id!r}"

    done = "resumed: workers that have their workflow will retry them"
    act(Action("resume", ["blocked"], one, done), Chosen(**chosen), options)


def _ask_about_undos(instance: Instance) -> None:
    """Ask before giving up undos that failed, and those that were to come after them."""
    error: Mapping[str, Any] = instance.error or {}
    names = not_undone(instance)
    if instance.status == "blocked" and names:
        note(f"instance {instance.instance_id!r} is blocked: {clean(error['message'])}")
        try:
            is_agreed = click.confirm(f"What it did will not be undone: {names}. Cancel it?", err=True)
        except click.Abort:  # no terminal to ask on
            is_agreed = False
        if not is_agreed:
            raise Failed("not cancelled; `romancy resume` tries the undos again, `romancy cancel --yes` gives them up")


def _hint(instance: Instance, id: str) -> str:
    """Name the command that shows more about an instance that is not blocked."""
    if instance.status in FINAL:
        return f" (`romancy show {id}` shows how it ended)"
    return f" (`romancy why {id}` shows what it waits for)"


def act(action: Action, chosen: Chosen, options: TargetOptions) -> None:
    """Do it to the instances with these ids, or to those that match the filters."""
    by_filter = bool(chosen.which) or chosen.limit is not None
    if chosen.ids and by_filter:
        raise click.UsageError("give ids or filters, not both", click.get_current_context())
    if not chosen.ids and not chosen.which:
        hint = "give the ids of instances, or filters such as --workflow NAME"
        raise click.UsageError(hint, click.get_current_context())
    if chosen.ids:
        _act_on_ids(action, chosen.ids, options)
    else:
        _act_on_matching(action, chosen, options)


# --- by id ----------------------------------------------------------------------------------------------------------
def _act_on_ids(action: Action, ids: Sequence[str], options: TargetOptions) -> None:
    async def work(target: Target) -> int:
        failures = 0
        for id in dict.fromkeys(ids):
            try:
                click.echo(await action.one(target, id))
            except (Failed, InstanceNotFound) as error:
                if len(ids) == 1:
                    raise
                failures += 1
                note(f"romancy: {as_line(error)[0]}")
        return failures

    if options.do(work):
        raise click.exceptions.Exit(1)


# --- by filter ------------------------------------------------------------------------------------------------------
def _act_on_matching(action: Action, chosen: Chosen, options: TargetOptions) -> None:
    which: InstanceFilter = {"status": action.applies_to, **chosen.which}

    found, instances = options.do(lambda target: _preview(target, action, which))
    if not found.matched:
        raise Failed(f"no instance to {action.name} matches; `romancy list` takes the same filters")
    if not found.changed:
        _report(action, found)
    count = min(found.changed, chosen.limit or found.changed)
    print_instances(instances[:count])
    if count > len(instances):
        note(f"... and {count - len(instances):,} more")
    if found.matched > found.changed:
        note(f"{plural(found.matched - found.changed, 'more instance')} can't be changed")
        _name_refused(action, found)
    _ask(action, count, found.changed, chosen)

    async def work(target: Target) -> BulkResult:
        results: list[BulkResult] = []
        with _progress(action, count) as advance:
            async for result in target.in_parts(action.name, which, chosen.limit, action.reason):
                results.append(result)
                advance(result.changed if chosen.limit else result.matched)
        return add_up(results)

    _report(action, options.do(work))


async def _preview(target: Target, action: Action, which: InstanceFilter) -> tuple[BulkResult, Sequence[Instance]]:
    """Return what would be changed, without a limit, and the first instances of it."""
    if action.instead is None:
        count = await target.verbs.count_instances(**which)
        page = await target.verbs.list_instances(**which, limit=_PREVIEW)
        return BulkResult(count, count, {}), page.items
    tried = target.in_parts(action.name, which, None, action.reason, dry_run=True)
    found = add_up([result async for result in tried])
    # Enough to leave out those that are refused.
    page = await target.verbs.list_instances(**which, limit=_PREVIEW + len(found.errors))
    return found, [item for item in page.items if item.instance_id not in found.errors][:_PREVIEW]


def _ask(action: Action, count: int, found: int, chosen: Chosen) -> None:
    """Ask for confirmation. Refuse if there is no terminal to ask on."""
    if chosen.yes:
        return
    many = plural(count, "instance") if count == found else f"{count:,} of {plural(found, 'instance')}"
    if not sys.stdin.isatty():
        raise Refused(f"{many} to {action.name}, but there is no terminal to ask you; add --yes to go on")
    if not click.confirm(f"{action.name.capitalize()} {many}?", err=True):
        raise Failed("nothing was done")


@contextmanager
def _progress(action: Action, count: int) -> Generator[Callable[[int], None]]:
    """A progress bar on a terminal, if it takes more than one page."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=count <= PAGE or not console.is_terminal, transient=True) as bars:
        task = bars.add_task(action.name, total=count)
        yield lambda n: bars.advance(task, n)


def _name_refused(action: Action, result: BulkResult) -> None:
    for id, error in list(result.errors.items())[:_ERRORS]:
        instead = f" ({action.instead(clean(id))})" if action.instead is not None else ""
        note(f"romancy: {clean(id)}: {clean(error)}{instead}")


def _report(action: Action, result: BulkResult) -> None:
    _name_refused(action, result)
    if not result.changed:
        raise Failed(f"nothing to {action.name}: {plural(result.matched, 'instance')} matched, none was changed")
    left = result.matched - result.changed
    others = f"; {left:,} had nothing to {action.name}" if left > len(result.errors) else ""
    click.echo(f"{result.changed:,} {action.done}{others}")
    if result.errors:
        at_least = "at least " if len(result.errors) >= ERRORS else ""
        raise Failed(f"{at_least}{plural(len(result.errors), 'instance')} could not be changed")
