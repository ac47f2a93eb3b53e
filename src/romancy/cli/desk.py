"""`workers` lists the workers of a database, `retry-now` begins attempts that wait."""

from __future__ import annotations

import click

from romancy.cli.errors import Failed
from romancy.cli.lists import present
from romancy.cli.screen import Screen, json_option, note, print_json
from romancy.cli.target import Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, when
from romancy.errors import InstanceNotFound, NotRetryable


@click.command()
@target_options
@json_option
def workers(options: TargetOptions, as_json: bool) -> None:
    """List workers: where they run, which workflows they have, and their load."""
    found = options.do(lambda target: target.verbs.list_workers())
    if as_json:
        print_json({"items": found})
        return
    now = present()
    Screen().table(
        ("worker", "host", "pid", "state", "load", "instances", "version", "build", "since", "workflows"),
        [
            (
                clean(worker.id[:8]),
                clean(worker.host),
                "" if worker.pid is None else str(worker.pid),
                "alive" if worker.is_alive else "gone",
                "" if worker.load is None else f"{worker.load}/{worker.slots}",
                f"{worker.instances:,}",
                clean(worker.version or ""),
                clean(worker.build or ""),
                when(worker.started_at, now),
                clean(", ".join(worker.workflows)),
            )
            for worker in found
        ],
        drop=("build", "version", "since", "pid", "worker", "workflows"),
    )
    if not found:
        note("no worker is running; start one: romancy worker MODULE")


@click.command("retry-now")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@target_options
def retry_now(ids: tuple[str, ...], options: TargetOptions) -> None:
    """Begin attempts now that wait because earlier ones failed.

    Exits with 1 if no activity of an instance waits for its next attempt.
    """

    async def work(target: Target) -> tuple[list[str], list[str]]:
        begun: list[str] = []
        problems: list[str] = []
        for id in ids:
            try:
                took = await target.verbs.retry_now(id)
            except (InstanceNotFound, NotRetryable) as error:
                problems.append(clean(str(error)))
            else:
                idle = f"no activity of {clean(id)!r} waits for its next attempt; nothing to begin"
                (begun if took else problems).append(id if took else idle)
        return begun, problems

    begun, problems = options.do(work)
    for id in begun:
        click.echo(f"the next attempts of instance {clean(id)!r} begin now")
    if problems:
        raise Failed("\n".join(problems))
