"""`schedules`: lists schedules, pauses, resumes, triggers and deletes them."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import click

from romancy.cli.errors import Failed
from romancy.cli.lists import present
from romancy.cli.screen import Screen, json_option, print_json
from romancy.cli.target import Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, relative, when
from romancy.core.schedules import Times, options_in_words
from romancy.errors import InvalidInput
from romancy.explain.origins import scheduled_by
from romancy.records import Instance, ScheduleRecord
from romancy.verbs import Verbs


@click.group(invoke_without_command=True)
@target_options
@json_option
@click.pass_context
def schedules(ctx: click.Context, options: TargetOptions, as_json: bool) -> None:
    """List schedules; pause, resume, trigger or delete one.

    \b
      romancy schedules
      romancy schedules pause report-eu
      romancy schedules trigger report-eu
    """
    if ctx.invoked_subcommand is not None:
        return

    async def work(target: Target) -> list[ScheduleRecord]:
        return await target.verbs.list_schedules()

    found = options.do(work)
    if as_json:
        print_json({"items": found})
        return
    now = present()
    Screen().table(
        ("schedule", "workflow", "when", "next", "last", "started", "skipped", "options", "about"),
        [
            (
                clean(item.name),
                clean(item.workflow),
                in_words(item),
                _next(item, now),
                when(item.last_at, now),
                str(item.started),
                str(item.skipped),
                options_in_words(item.overlap, item.catch_up, item.spread),
                clean(item.error or ""),
            )
            for item in found
        ],
        drop=("about", "options", "skipped", "started", "last", "workflow"),
    )


def _next(item: ScheduleRecord, now: datetime) -> str:
    if item.is_paused:
        return "paused"
    if item.due_at is not None and (now - item.due_at).total_seconds() >= 1:
        return when(item.next_at, now, "overdue")
    if item.next_at is not None and item.due_at is not None and item.next_at <= now < item.due_at:
        return when(item.next_at, now, f"starts {relative(item.due_at, now)}")
    return when(item.next_at, now)


def in_words(record: ScheduleRecord) -> str:
    """When a schedule starts its workflow, in English."""
    every = None if record.every is None else round(record.every * 1_000_000)
    return str(Times(record.cron, every, record.timezone))


def scheduled_words(instance: Instance) -> list[str]:
    """Say which schedule started an instance, and for which tick."""
    return [f"it was started by schedule {clean(scheduled_by(instance))}"] if instance.schedule else []


def _command(name: str, help: str, done: str, act: Callable[[Verbs, str], Awaitable[Any]]) -> None:
    @schedules.command(name=name, help=help)
    @click.argument("name", metavar="NAME")
    @target_options
    def run(name: str, options: TargetOptions) -> None:
        async def work(target: Target) -> Any:
            return await act(target.verbs, name)

        answer = options.do(work)
        click.echo(done.format(name=clean(name)) if answer is None else answer.instance_id)


_command(
    "pause",
    "Pause a schedule: until it is resumed, it starts nothing.",
    "schedule {name!r} is paused",
    lambda verbs, name: verbs.pause_schedule(name),
)
_command(
    "resume",
    "Let a paused schedule go on with its next tick.",
    "schedule {name!r} goes on",
    lambda verbs, name: verbs.resume_schedule(name),
)
_command(
    "trigger",
    "Start an instance of a schedule now, and print its id.",
    "",
    lambda verbs, name: verbs.trigger_schedule(name),
)


def _declared_words(name: str, *, is_database: bool) -> str:
    shown = shlex.quote(name)
    words = (
        f"the schedule {name!r} is declared in code and would come back when a worker starts; remove schedule= "
        f"from its workflow, or stop it with `romancy schedules pause {shown}`"
    )
    left_over = f"; if its workflow is gone from all code, `romancy schedules delete {shown} --declared` deletes it"
    return words + left_over if is_database else words


@schedules.command()
@click.argument("name", metavar="NAME")
@target_options
@click.option(
    "--declared",
    is_flag=True,
    help="Delete it even if it is declared in code: for a workflow that no code has any more. Needs --database.",
)
def delete(name: str, options: TargetOptions, declared: bool) -> None:
    """Delete a schedule. Its instances go on.

    A schedule that is declared in code would come back when a worker starts. Remove it there, or pause it.
    """

    async def work(target: Target) -> None:
        if declared:
            await target.delete_declared(name)
            return
        try:
            await target.verbs.delete_schedule(name)
        except InvalidInput:
            if any(item.name == name and item.is_declared for item in await target.verbs.list_schedules()):
                raise Failed(_declared_words(name, is_database=options.url is None)) from None
            raise

    options.do(work)
    click.echo(f"schedule {clean(name)!r} is deleted")
