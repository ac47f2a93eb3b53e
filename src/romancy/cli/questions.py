"""`questions` and `answer`: list what people were asked, and answer in their place."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import datetime

import click

from romancy.cli.errors import Failed
from romancy.cli.lists import cursor_option, limit_option, present
from romancy.cli.screen import Screen, json_option, note, print_json
from romancy.cli.target import Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.cli.words import clean, either, one_line, place, when
from romancy.core.answers import shape_of
from romancy.core.questions import operation_of
from romancy.errors import InvalidInput
from romancy.question_verbs import QuestionRecord
from romancy.records import Wait

_TEXT = 80
"""Characters of a text that are shown."""


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
        ("question", "about", "answer", "people", "instance", "workflow", "asked", "expires", "id"),
        [
            (
                clean(row.title),
                one_line(row.text, _TEXT),
                one_line(shape_of(row.schema), _TEXT) if row.schema else "",
                clean(_people(row)),
                clean(row.instance_id),
                clean(row.workflow),
                when(row.asked_at, now),
                when(row.expires_at, now),
                clean(row.ask_id),
            )
            for row in page.items
        ],
        drop=("workflow", "asked", "expires", "about", "answer", "id"),
    )
    if page.cursor is not None:
        note(f"there are more; add --cursor {page.cursor}")
    if not page.items:
        note("no workflow waits for an answer")


def question_of(wait: Wait, questions: Sequence[QuestionRecord]) -> QuestionRecord | None:
    """Return the question whose answer a wait is for."""
    if wait.kind != "answer":
        return None
    ask_id = operation_of(wait.subject or "")
    return next((question for question in questions if question.ask_id == ask_id), None)


def show_question(screen: Screen, wait: Wait, question: QuestionRecord, now: datetime) -> None:
    """Show a wait for the answer to a question, and how to answer it."""
    screen.heading(f"question {clean(question.ask_id)}")
    facts = {
        "for": clean(_wanted(question)),
        "answered": clean(", ".join(question.answered)),
        "text": one_line(question.text, 300),
        "answer": clean(shape_of(question.schema)) if question.schema else "",
        "since": when(question.asked_at, now),
        "until": when(wait.due_at, now) or "forever: it has no timeout",
        "line": place(wait.location),
    }
    screen.facts({name: text for name, text in facts.items() if text})
    person = next((person for person in question.people if person not in question.answered), None)
    if person is not None:
        words = ["romancy", "answer", question.instance_id, person]
        given = f"DATA --ask-id {shlex.quote(question.ask_id)}"
        screen.say(clean(f"`{shlex.join(words)} {given}` answers in place of {person}"))


def _people(question: QuestionRecord) -> str:
    """Name the people who were asked, and say of a vote how many must agree, and who has answered."""
    named = ", ".join(question.people)
    if question.needed is None:
        return named
    answered = f"; answered: {', '.join(question.answered)}" if question.answered else ""
    return f"{question.needed} of {named}{answered}"


def _wanted(question: QuestionRecord) -> str:
    if question.needed is None:
        return f"{either(question.people)} to answer {question.title!r}"
    return f"{question.needed} of {', '.join(question.people)} to agree to {question.title!r}"


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

    `romancy questions` shows what an answer looks like. The workflow may have checks of its own: if they refuse the
    answer, the question stays open.

    \b
      romancy answer order-7 ann@x.org '{"approved": true}'
    """
    try:
        given = json.loads(data)
    except ValueError as error:
        raise click.BadParameter(f"{data!r} is not JSON: {error}; a text needs quotes", param_hint="DATA") from None

    async def work(target: Target) -> None:
        if by:
            await target.verbs.answer_question(instance_id, person, given, ask_id=ask_id, by=by)
        else:
            await target.answer_as_operator(instance_id, person, given, ask_id)

    try:
        options.do(work)
    except InvalidInput as error:
        raise Failed(str(error)) from None
    note("the answer is stored")
