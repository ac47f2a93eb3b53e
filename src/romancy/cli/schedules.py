"""`schedules`: lists schedules, pauses, resumes, triggers and deletes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from romancy.cli.lists import present
from romancy.cli.screen import Screen, json_option, print_json
from romancy.cli.target import Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, when
from romancy.core.schedules import Times
from romancy.records import Instance, ScheduleRecord, scheduled_by
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
        ("schedule", "workflow", "when", "next", "last", "started", "skipped", "about"),
        [
            (
                clean(item.name),
                clean(item.workflow),
                in_words(item),
                "paused" if item.is_paused else when(item.next_at, now),
                when(item.last_at, now),
                str(item.started),
                str(item.skipped),
                clean(item.error or ""),
            )
            for item in found
        ],
        drop=("about", "skipped", "started", "last", "workflow"),
    )


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
_command(
    "delete",
    "Delete a schedule. Its instances go on.",
    "schedule {name!r} is deleted",
    lambda verbs, name: verbs.delete_schedule(name),
)
