"""`inbox`: show what callers left in transactions of their own, and forget what was refused."""

from __future__ import annotations

import click

from romancy.cli.errors import Failed
from romancy.cli.lists import cursor_option, limit_option, present
from romancy.cli.screen import Screen, json_option, note, print_json
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, when
from romancy.records import InboxRecord


@click.command()
@click.option("--forget", type=int, metavar="NUMBER", help="Remove a refused start or event from the inbox.")
@limit_option
@cursor_option
@target_options
@json_option
def inbox(forget: int | None, limit: int, cursor: str | None, options: TargetOptions, as_json: bool) -> None:
    """List what is in the inbox: starts and events of `app.within`.

    Workers take them in within a second after the commit. If none runs, they wait here. A start whose id is taken by
    an instance with another input is refused. It stays here until you remove it with --forget, or for as long as ended
    instances are kept.
    """
    if forget is not None:
        if not options.do(lambda target: target.verbs.forget_refused(forget)):
            raise Failed(f"nothing in the inbox with the number {forget} was refused")
        note(f"{forget} was removed from the inbox")
        return
    page = options.do(lambda target: target.verbs.list_inbox(limit=limit, cursor=cursor))
    if as_json:
        print_json({"items": page.items, "cursor": page.cursor})
        return
    now = present()
    Screen().table(
        ("number", "kind", "what", "left", "refused"),
        [
            (str(row.number), row.kind, clean(_what(row)), when(row.at, now), clean(row.refused or ""))
            for row in page.items
        ],
        drop=("left",),
    )
    if page.cursor is not None:
        note(f"there is more in the inbox; add --cursor {page.cursor}")
    if not page.items:
        note("the inbox is empty: everything that was left with app.within() has been taken in")


def _what(row: InboxRecord) -> str:
    return f"{row.workflow} {row.instance_id}" if row.instance_id is not None else f"{row.type} {row.id}"
