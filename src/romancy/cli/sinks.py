"""`sinks`: lists sinks and the events they gave up, and lets these be delivered again."""

from __future__ import annotations

import click

from romancy.cli.lists import cursor_option, limit_option, present
from romancy.cli.screen import Screen, json_option, note, print_json
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, when


@click.group(invoke_without_command=True)
@target_options
@json_option
@click.pass_context
def sinks(ctx: click.Context, options: TargetOptions, as_json: bool) -> None:
    """List sinks and the events they gave up, or try these again.

    \b
      romancy sinks
      romancy sinks dead crm
      romancy sinks retry crm
    """
    if ctx.invoked_subcommand is not None:
        return
    found = options.do(lambda target: target.verbs.list_sinks())
    if as_json:
        print_json({"items": found})
        return
    Screen().table(
        ("sink", "types", "worker", "parked", "dead", "last error"),
        [
            (
                clean(s.name),
                clean(", ".join(s.types)),
                clean((s.worker_id or "none")[:8]),
                str(s.parked),
                str(s.dead),
                clean(s.last_error or ""),
            )
            for s in found
        ],
        drop=("worker", "types"),
    )
    if not found:
        note("no app has declared a sink here: App(sinks=[HTTPSink(...)])")


@sinks.command()
@click.argument("name", metavar="[SINK]", required=False)
@limit_option
@cursor_option
@target_options
@json_option
def dead(name: str | None, limit: int, cursor: str | None, options: TargetOptions, as_json: bool) -> None:
    """List the events that a sink, or any, gave up."""
    page = options.do(lambda target: target.verbs.list_dead_letters(name, limit=limit, cursor=cursor))
    if as_json:
        print_json({"items": page.items, "cursor": page.cursor})
        return
    now = present()
    Screen().table(
        ("sink", "event", "type", "subject", "attempts", "given up", "error"),
        [
            (
                clean(letter.sink),
                clean(letter.event.event.id),
                clean(letter.event.event.type),
                clean(letter.event.event.subject or ""),
                str(letter.attempts),
                when(letter.since, now),
                clean(letter.error),
            )
            for letter in page.items
        ],
        drop=("attempts", "subject", "given up"),
    )
    if page.cursor is not None:
        note(f"there are more; add --cursor {page.cursor}")
    if not page.items:
        note("no event was given up")


@sinks.command()
@click.argument("name", metavar="SINK")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many, oldest first.")
@target_options
def retry(name: str, limit: int | None, options: TargetOptions) -> None:
    """Let a sink deliver the events again that it gave up."""
    count = options.do(lambda target: target.verbs.retry_dead_letters(name, limit=limit))
    if not count:
        click.echo(f"sink {clean(name)!r} has no dead letters; parked events are tried again by themselves")
        return
    click.echo(f"{count:,} {'event is' if count == 1 else 'events are'} delivered again by sink {clean(name)!r}")
