"""The control API for questions to people."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from romancy.http import schemas
from romancy.http.pages import paged
from romancy.http.responses import Response, json_answer
from romancy.http.routes import Request, Route
from romancy.http.serialize import time_text
from romancy.question_verbs import LONGEST_BY, QuestionRecord
from romancy.standings import operator_for


class QuestionItem(TypedDict):
    instance_id: str
    workflow: str
    ask_id: str
    title: str
    text: str
    people: list[str]
    asked_at: schemas.Time
    expires_at: schemas.Time | None
    schema: dict[str, Any]
    needed: int | None
    answered: list[str]


class Questions(TypedDict):
    items: list[QuestionItem]
    cursor: str | None


class Answered(TypedDict):
    instance_id: str


class QuestionsQuery(schemas.Paged):
    cursor: Annotated[str, schemas.cursor_of(int, str, str, str, str)] | None = schemas.CURSOR


class AnswerBody(schemas.Closed):
    person: str = Field(description="One of the people who were asked.")
    data: Any = Field(description="The answer.")
    ask_id: str | None = Field(None, description="Which question, if the instance has several open ones.")
    by: str | None = Field(
        None, min_length=1, max_length=LONGEST_BY, description="Recorded as who answered; default: the person."
    )
    as_operator: bool = Field(
        False, description="An operator answers in place of the person: `by` is then, for example, `bob, for ann`."
    )


async def list_questions(request: Request) -> Response:
    """The questions whose answers workflows wait for at present."""
    return await paged(request.app.list_questions, request.query.model_dump(), _item)


async def answer_question(request: Request) -> Response:
    """Answer an open question as one of the people who were asked."""
    instance, body = request.path["instance_id"], request.body
    by = operator_for(body.person) if body.by is None and body.as_operator else body.by
    writing = request.app.answer_question(instance, body.person, body.data, ask_id=body.ask_id, by=by)
    unknown = "; it is unknown whether the answer is stored: send it again, the first one counts"
    await request.backpressure.store(writing, request.size, unknown)
    return json_answer(200, {"instance_id": instance})


def _item(record: QuestionRecord) -> QuestionItem:
    return {
        "instance_id": record.instance_id,
        "workflow": record.workflow,
        "ask_id": record.ask_id,
        "title": record.title,
        "text": record.text,
        "people": list(record.people),
        "asked_at": time_text(record.asked_at),
        "expires_at": None if record.expires_at is None else time_text(record.expires_at),
        "schema": dict(record.schema),
        "needed": record.needed,
        "answered": list(record.answered),
    }


ROUTES = (
    Route("GET", "/api/questions", list_questions, {200: Questions}, query=QuestionsQuery),
    Route(
        "POST",
        "/api/instances/{instance_id}/answer",
        answer_question,
        {200: Answered},
        [404],
        scope="control",
        body=AnswerBody,
    ),
)
