"""Verbs for questions to people: which are open, and answers that a program passes on. Part of the service."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from romancy.core.answers import misfits, shape_of
from romancy.core.ids import check_lookup
from romancy.core.questions import operation_of
from romancy.cursors import check_limit, read_cursor, write_cursor
from romancy.errors import InstanceNotFound, InvalidInput
from romancy.records import Page
from romancy.runtime import Runtime
from romancy.standings import Open, Standing, all_open, find_open, to_answer
from romancy.storage.catalog import WaitPosition, place_after

LONGEST_BY = 500


@dataclass(frozen=True)
class QuestionRecord:
    """A question whose answer a workflow waits for."""

    instance_id: str
    workflow: str
    ask_id: str
    title: str
    text: str
    people: Sequence[str]
    asked_at: datetime
    expires_at: datetime | None
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    """The type of the answer, as JSON Schema."""
    needed: int | None = None
    """Of a vote: how many must agree."""
    answered: Sequence[str] = ()
    """Of a vote: the people who have answered."""


class QuestionVerbs:
    """The verbs for questions: part of the service."""

    _runtime: Runtime

    async def list_questions(self, *, limit: int = 50, cursor: str | None = None) -> Page[QuestionRecord]:
        """Return the questions whose answers workflows wait for at present."""
        found, more = await all_open(self._runtime, check_limit(limit), read_position(cursor))
        return Page([to_question(each) for each in found], write_cursor(more))

    async def answer_question(
        self, instance_id: str, person: str, data: object, *, ask_id: str | None = None, by: str | None = None
    ) -> None:
        """Answer a question as one of the people who were asked, for programs that know who it is: a button in a chat.

        >>> await app.answer_question(button.instance_id, "ann@x.org", {"approved": True}, by="ann, by Slack")

        `by` is recorded with the answer (default: the person). With several open questions to the person, give
        `ask_id`. Raise `InvalidInput` if there is no open question, the person has answered, or the data does not have
        the shape of an answer. Validators of the model run in the workflow, later, as with answers by link.
        """
        found = await self._standing(instance_id, person, ask_id)
        await store_answer(self._runtime, found, _fitting(found, data), by, "api")

    async def _standing(self, instance_id: str, person: str, ask_id: str | None) -> Standing:
        check_lookup(instance_id)
        runtime = self._runtime
        await runtime.writer.found(lambda: _check_known(runtime, instance_id))
        return await find_open(runtime, instance_id, person, ask_id)


async def _check_known(runtime: Runtime, instance_id: str) -> None:
    if await runtime.writer.storage.catalog.instance(instance_id) is None:
        raise InstanceNotFound(instance_id=instance_id)


async def store_answer(runtime: Runtime, found: Standing, data: object, by: str | None, via: str) -> None:
    """Store an answer of a person."""
    if by is not None and (not isinstance(by, str) or not by.strip() or len(by) > LONGEST_BY):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"by must be a text of 1 to {LONGEST_BY} characters")
    answer = _as_json(data)
    _as_json(by)
    accepted = await runtime.writer.accept(to_answer(found, answer, by or found.name, via))
    if accepted.answer.duplicate and accepted.answer.differs:
        raise InvalidInput(f"{found.name!r} can't answer {found.asked.title!r}: it is answered")


def _as_json(data: object) -> Any:
    try:
        answer = to_jsonable_python(data)
        json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()  # NaN and lone surrogates are no JSON
    except (PydanticSerializationError, ValueError) as error:
        raise InvalidInput(f"the answer can't be stored as JSON: {error}") from None
    return answer


def _fitting(found: Standing, data: object) -> Any:
    """Return an answer as JSON; raise `InvalidInput` if the workflow would refuse its shape."""
    answer, schema = _as_json(data), found.asked.schema
    if wrong := misfits(schema, answer):
        raise InvalidInput(
            f"the answer to {found.asked.title!r} does not fit: {'; '.join(wrong)}. An answer is {shape_of(schema)}"
        )
    return answer


def read_position(cursor: str | None) -> WaitPosition | None:
    """Return where a page of questions ended."""
    position: Any = read_cursor(cursor, int, str, str, str, str)
    try:
        place_after(position)
    except ValueError:
        raise InvalidInput("this is not a cursor of questions; pass the cursor of the previous page") from None
    return position


def to_question(found: Open) -> QuestionRecord:
    """Return an open question, for people and programs."""
    asked = found.asked
    ask_id = operation_of(asked.key)
    about = asked.title, asked.text, tuple(asked.people), found.since, found.until, asked.schema
    return QuestionRecord(found.instance, found.workflow, ask_id, *about, asked.needed, tuple(found.answered))
