"""`questions` and `answer`: list what people were asked, and answer in their place."""

from __future__ import annotations

import json

import click

from romancy.cli.lists import cursor_option, limit_option, present
from romancy.cli.screen import Screen, json_option, note, print_json
from romancy.cli.target import Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, when
from romancy.standings import operator_for


@click.command()
@limit_option
@cursor_option
@target_options
@json_option
def questions(limit: int, cursor: str | None, options: TargetOptions, as_json: bool) -> None:
    """List questions to people that workflows wait for."""
    page = options.do(lambda target: target.verbs.list_questions(limit=limit, cursor=cursor))
    if as_json:
        print_json({"items": page.items, "cursor": page.cursor})
        return
    now = present()
    Screen().table(
        ("question", "people", "instance", "workflow", "asked", "expires", "id"),
        [
            (
                clean(row.title),
                clean(", ".join(row.people)),
                clean(row.instance_id),
                clean(row.workflow),
                when(row.asked_at, now),
                when(row.expires_at, now),
                clean(row.ask_id),
            )
            for row in page.items
        ],
        drop=("id", "workflow", "asked", "expires"),
    )
    if page.cursor is not None:
        note(f"there are more; add --cursor {page.cursor}")
    if not page.items:
        note("no workflow waits for an answer")


@click.command()
@click.argument("instance_id", metavar="ID")
@click.argument("person", metavar="PERSON")
@click.argument("data", metavar="DATA")
@click.option("--ask-id", metavar="ID", help="Which question, if the person has several open ones.")
@click.option("--by", metavar="NAME", help="Recorded as who answered.")
@target_options
def answer(
    instance_id: str, person: str, data: str, ask_id: str | None, by: str | None, options: TargetOptions
) -> None:
    """Answer a question in place of a person. DATA is JSON.

    \b
      romancy answer order-7 ann@x.org '{"approved": true}'
    """
    try:
        given = json.loads(data)
    except ValueError as error:
        raise click.BadParameter(f"{data!r} is not JSON: {error}; a text needs quotes", param_hint="DATA") from None

    async def work(target: Target) -> None:
        chosen = by or operator_for(person)
        await target.verbs.answer_question(instance_id, person, given, ask_id=ask_id, by=chosen)

    options.do(work)
    note("the answer is stored")
