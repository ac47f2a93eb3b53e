"""`romancy queues`: the queues and how full they are. Also why a queued instance waits."""

from __future__ import annotations

import click

from romancy.cli.lists import present
from romancy.cli.screen import Screen, json_option, note, print_json
from romancy.cli.target import Inside
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, plural, relative
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


def queued_words(instance: Instance, inside: Inside | None) -> list[str]:
    """Say behind how many others an instance waits in its queue."""
    queue = f"queue {clean(instance.queue or '')}"
    key = f" of key {clean(instance.key)}" if instance.key else ""
    also = f"`romancy list --queue {clean(instance.queue or '')}` lists its instances"
    if inside is None:
        return [f"it is queued in {queue}{key}; use -d with its database to see behind how many", also]
    if inside.ahead:
        place = f"it is queued behind {plural(inside.ahead, 'other')}{key} in {queue}"
    else:
        place = f"it is queued in {queue}, and the next one{key}: it runs as soon as the limits of the queue allow it"
    cancelling = ["it is to be cancelled, which happens once it runs"] if inside.is_cancelling else []
    return [place, *cancelling, also]
