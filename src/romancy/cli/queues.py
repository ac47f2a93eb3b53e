"""`romancy queues`: the queues and how full they are. Also why a queued instance waits."""

from __future__ import annotations

from datetime import datetime
from shlex import quote

import click

from romancy.cli.lists import present
from romancy.cli.screen import Screen, json_option, note, print_json
from romancy.cli.target import Inside
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, plural, relative, when
from romancy.core.versions import stored_name
from romancy.records import Instance, QueueRecord


@click.command()
@target_options
@json_option
def queues(options: TargetOptions, as_json: bool) -> None:
    """List queues: how many instances run, and how many wait."""

    found: list[QueueRecord] = options.do(lambda target: target.verbs.list_queues())
    if as_json:
        print_json({"items": found})
        return
    now = present()
    rows = [
        (
            clean(queue.name),
            f"{queue.running:,}",
            f"{queue.waiting:,}",
            "" if queue.oldest_at is None else relative(queue.oldest_at, now),
        )
        for queue in found
    ]
    Screen().table(("queue", "running", "waiting", "oldest"), rows)
    if not rows:
        note("no queues; @workflow(queue=Queue(...)) gives a workflow one")


def queued_words(instance: Instance, inside: Inside | None, now: datetime) -> list[str]:
    """Say behind how many others an instance waits in its queue, and which limit holds it."""
    alone = list[str]()
    if inside is not None and not inside.has_worker:
        name = clean(stored_name(instance.workflow, instance.version))
        alone = [f"no worker is running; start one with workflow {name!r}: romancy worker MODULE"]
    queue = f"queue {clean(instance.queue or '')}"
    key = f" of key {clean(instance.key)}" if instance.key else ""
    also = f"`romancy list --queue {clean(quote(instance.queue or ''))}` lists its instances"
    cancelling = ["it is to be cancelled, which happens once it runs"] if inside and inside.is_cancelling else []
    held = next((wait.queue for wait in instance.waits if wait.queue is not None), None)
    if held is None:
        return [*alone, f"it is queued in {queue}{key}; its server does not say what holds it", *cancelling, also]
    if held.ahead:
        place = f"it is queued behind {plural(held.ahead, 'other')}{key} in {queue}"
    else:
        place = f"it is queued in {queue}, and the next one{key}"
    opens = [] if held.opens_at is None else [f"the next one can begin {when(held.opens_at, now)}"]
    return [*alone, place, clean(held.reason), *opens, *cancelling, also]
