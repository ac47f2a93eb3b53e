"""The pages of open questions, where an operator can answer in place of the people who were asked."""

from __future__ import annotations

from functools import partial

from romancy.core.forms import fields_of, read_form
from romancy.cursors import write_cursor
from romancy.http.responses import HTTPError, Response
from romancy.http.routes import Request
from romancy.question_verbs import read_position
from romancy.standings import Standing, all_open, operator_for, standing, to_answer
from romancy.viewer.catalog import PAGE, Catalog
from romancy.viewer.html import page, redirect
from romancy.viewer.pages import Nothing
from romancy.viewer.question_page import UNKNOWN, grouped, read_sent
from romancy.viewer.words import url_part

_PERSON = "(person)"
"""The name of the field that says in whose place the operator answers."""


class QuestionQuery(Nothing):
    question: str = ""


async def approvals(request: Request) -> Response:
    """What workflows have asked people, and is open."""
    found, more = await all_open(request.runtime, PAGE, read_position(request.query.cursor))
    return page(request, "approvals.html", found=found, more=write_cursor(more), now=Catalog(request.app).now)


async def approval(request: Request) -> Response:
    """One question, with its form."""
    standings = await _standings(request)
    return _form(request, standings, 200)


async def answer(request: Request) -> Response:
    """Answer in place of a person."""
    sent = await read_sent(request)
    standings = await _standings(request)
    chosen = next((s for s in standings if sent.get(_PERSON) == [str(s.person)] and s.is_open_to_operators), None)
    given, wrong = read_form(fields_of(standings[0].asked.schema), sent)
    if chosen is None or wrong:
        said = "" if chosen is not None else "Choose somebody who has not answered yet."
        return _form(request, standings, 422, {name: values[0] for name, values in sent.items()}, wrong, said)
    event = to_answer(chosen, given, operator_for(chosen.name), "viewer")
    storing = partial(request.runtime.engine.accept, event)
    stored = await request.backpressure.store(storing, len(event.data or b""), UNKNOWN)
    if stored.answer.duplicate and stored.answer.differs:
        said = f"{chosen.name} was answered for meanwhile. The first answer counts."
        return _form(request, await _standings(request), 409, said=said)
    return redirect(request, f"/viewer/instances/{url_part(chosen.instance)}")


async def _standings(request: Request) -> list[Standing]:
    """Where a question stands, for each of the people."""
    instance, key = request.path["instance_id"], request.query.question
    first = await standing(request.runtime, instance, key, 0)
    if first is None:
        raise HTTPError(404, "this question does not exist; it may have been deleted", kind="NotFound")
    others = [await standing(request.runtime, instance, key, n) for n in range(1, len(first.asked.people))]
    return [first, *(other for other in others if other is not None)]


def _form(
    request: Request,
    standings: list[Standing],
    status: int,
    given: dict[str, str] | None = None,
    wrong: dict[str, str] | None = None,
    said: str = "",
) -> Response:
    found = standings[0]
    return page(
        request,
        "approval.html",
        status,
        found=found,
        open=[(s.person, s.name) for s in standings if s.is_open_to_operators],
        groups=grouped(fields_of(found.asked.schema)),
        given=given or {},
        wrong=wrong or {},
        said=said,
    )
