"""`inbox`: show what callers left in transactions of their own, and forget what was refused."""

from __future__ import annotations

from dataclasses import asdict

import click

from romancy.cli.errors import Refused
from romancy.cli.lists import limit_option, present
from romancy.cli.screen import Screen, json_option, note, print_json
from romancy.cli.target import Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, when
from romancy.core.model import from_us
from romancy.storage.inbox_items import InboxRow


@click.command()
@click.option("--forget", type=int, metavar="NUMBER", help="Remove a refused start or event from the inbox.")
@limit_option
@target_options
@json_option
def inbox(forget: int | None, limit: int, options: TargetOptions, as_json: bool) -> None:
    """List what is in the inbox: starts and events of `app.within`.

    Workers take them in within a second after the commit. If none runs, they wait here. A start whose id is taken by
    an instance with another input is refused, and stays here until you remove it with --forget.
    """
    if options.url is not None:
        raise Refused("this command needs the database; give it with -d (a server answers GET /api/inbox)")
    if forget is not None:
        if not options.do(lambda target: target.storage().forget_arrival(forget)):
            raise Refused(f"nothing in the inbox with the number {forget} was refused")
        note(f"{forget} was removed from the inbox")
        return
    rows = options.do(lambda target: _rows(target, limit))
    if as_json:
        print_json({"items": [asdict(row) | {"kind": row.name, "at": str(from_us(row.at))} for row in rows]})
        return
    now = present()
    Screen().table(
        ("number", "kind", "what", "left", "refused"),
        [(str(row.number), row.name, clean(_what(row)), when(from_us(row.at), now), row.refused or "") for row in rows],
        drop=("left",),
    )


async def _rows(target: Target, limit: int) -> list[InboxRow]:
    return await target.storage().catalog.inbox(0, limit)


def _what(row: InboxRow) -> str:
    return f"{row.workflow} {row.instance}" if row.instance is not None else f"{row.type} {row.event}"
