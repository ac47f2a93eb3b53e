"""`events`: the log of events, and what is kept of it for whom."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click

from romancy.cli.errors import Refused
from romancy.cli.lists import cursor_option, limit_option, present
from romancy.cli.screen import Screen, json_option, note, print_json
from romancy.cli.target import Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, when
from romancy.http.serialize import event_item
from romancy.inventory import MOST_HELD
from romancy.records import EventRecord, HeldEvents, Page

_RECEIVERS = 3


@click.command()
@click.option("--type", "-t", metavar="TYPE", help="Only events of this type.")
@click.option("--unmatched", is_flag=True, help="Only events that no instance received.")
@click.option("--held", is_flag=True, help="Show which old events are kept for open instances, and for which.")
@click.option(
    "--older", type=click.FloatRange(0), default=7.0, metavar="DAYS", show_default=True, help="With --held: how old."
)
@limit_option
@cursor_option
@target_options
@json_option
def events(
    type: str | None,
    unmatched: bool,
    held: bool,
    older: float,
    limit: int,
    cursor: str | None,
    options: TargetOptions,
    as_json: bool,
) -> None:
    """List events, newest first, or which old ones are kept for whom."""
    if held:
        if type or unmatched or cursor:
            raise Refused("--held shows all types: leave out --type, --unmatched and --cursor")
        found = options.do(lambda target: target.verbs.list_held_events(older_than=timedelta(days=older)))
        _show_held(found[:limit], older, as_json)
        return
    page = options.do(lambda target: _listed(target, type, unmatched, limit, cursor))
    if as_json:
        print_json({"items": [event_item(record) for record in page.items], "cursor": page.cursor})
        return
    Screen().table(
        ("type", "id", "source", "accepted", "received by"),
        [_row(record) for record in page.items],
        drop=("source", "accepted", "received by"),
    )
    if page.cursor is not None:
        note(f"there are more events; add --cursor {page.cursor}")


async def _listed(
    target: Target, type: str | None, unmatched: bool, limit: int, cursor: str | None
) -> Page[EventRecord]:
    return await target.verbs.list_events(type=type, unmatched=unmatched, limit=limit, cursor=cursor)


def _row(record: EventRecord) -> tuple[str, ...]:
    receivers = [clean(instance) for instance, _ in record.received_by]
    more = [f"and {len(receivers) - _RECEIVERS} more"] if len(receivers) > _RECEIVERS else []
    taken = ", ".join(receivers[:_RECEIVERS] + more)
    event = record.event
    return clean(event.type), clean(event.id), clean(event.source), when(record.accepted_at, present()), taken


def _show_held(held: Sequence[HeldEvents], older: float, as_json: bool) -> None:
    if as_json:
        print_json({"items": held, "cursor": None})
        return
    is_cut = sum(one.count for one in held) >= MOST_HELD
    Screen().table(
        ("type", "events", "oldest", "for workflow", "oldest instance"),
        [
            (
                clean(one.type),
                f"{one.count:,}{'+' if is_cut else ''}",
                when(one.oldest_at, present()),
                clean(one.workflow),
                clean(one.instance_id or "") + (" (sent to it)" if one.is_addressed else ""),
            )
            for one in held
        ],
        drop=("oldest",),
    )
    if not held:
        note(f"no event of more than {older:g} days is kept for an open instance")
