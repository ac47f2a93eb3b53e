"""Questions to people, as input that a task requires.

A question belongs to the people it names. A client can answer one only if the name of its token is one of them: what a
workflow asks of Ann must not be decided by the agent that started it. Such a client gets the question as a form
(elicitation), which its host shows to its user, and the answer is recorded as that person's. Every other client is told
who is asked, and what. It never gets a link, because who has a link can answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from romancy.core.forms import VALUE, Field, NotAForm, fields_of, read_form
from romancy.core.model import from_us
from romancy.core.questions import Asked, operation_of
from romancy.errors import InvalidInput
from romancy.http.serialize import time_text
from romancy.question_verbs import store_answer
from romancy.records import Instance
from romancy.runtime import Runtime
from romancy.standings import Standing, asked_by, standing

MOST = 20
"""Questions of an instance that are shown."""


@dataclass(frozen=True, slots=True)
class Question:
    """An open question of an instance, as one client sees it."""

    asked: Asked
    mine: Standing | None
    """Where it stands for the person that the client is; None if the client is none of the people."""

    @property
    def key(self) -> str:
        """Never used twice in the life of a task: an answer that the workflow refused is followed by another one."""
        return f"{self.asked.key}/{0 if self.mine is None else self.mine.number}"

    @property
    def can_be_answered(self) -> bool:
        return self.mine is not None and self.mine.state == "open"


async def open_questions(runtime: Runtime, instance: Instance, name: str | None) -> Sequence[Question]:
    """Return the questions whose answers an instance waits for. `name`: that of the client's token."""
    found: dict[str, Question] = {}
    for wait in instance.waits:
        key = wait.subject
        if wait.kind != "answer" or key is None or key in found or len(found) == MOST:
            continue
        asked = await asked_by(runtime, instance.instance_id, key)
        if asked is None:
            continue
        mine = None
        if name is not None and name in asked.people:
            mine = await standing(runtime, instance.instance_id, key, asked.people.index(name))
        found[key] = Question(asked, mine)
    return list(found.values())


def shown(question: Question) -> dict[str, Any]:
    """A question as JSON, for a client that can't answer it."""
    asked = question.asked
    return {
        "ask_id": operation_of(asked.key),
        "title": asked.title,
        "text": asked.text,
        "people": list(asked.people),
        "expires_at": None if asked.expires_at is None else time_text(from_us(asked.expires_at)),
    }


def in_words(questions: Sequence[Question]) -> str:
    """Say who is asked what."""
    said = [f"{_names(question.asked.people)} to answer {question.asked.title!r}" for question in questions]
    return f"it waits for {', and for '.join(said)}" if said else ""


def _names(people: Sequence[str]) -> str:
    more = f" or one of {len(people) - 3} others" if len(people) > 3 else ""
    return " or ".join(people[:3]) + more


# --- forms ------------------------------------------------------------------------------------------------------------
def input_requests(questions: Sequence[Question]) -> dict[str, Any]:
    """Return what the client's user is to answer, as requests for elicitation."""
    requests: dict[str, Any] = {}
    for question in questions:
        if question.can_be_answered and (schema := _form(question.asked)) is not None:
            refused = question.mine.refused if question.mine else ""
            words = [question.asked.title, question.asked.text, refused and f"Your last answer was refused: {refused}"]
            params = {"mode": "form", "message": "\n\n".join(filter(None, words)), "requestedSchema": schema}
            requests[question.key] = {"method": "elicitation/create", "params": params}
    return requests


def _form(asked: Asked) -> dict[str, Any] | None:
    """Return a flat schema of plain values, as elicitation needs it; None if the type has none."""
    try:
        fields = fields_of(asked.schema)
    except NotAForm:
        return None
    properties = {field.name: _property(field) for field in fields}
    required = [field.name for field in fields if field.required]
    return {"type": "object", "properties": properties, "required": required}


_TEXTS: Mapping[str, Mapping[str, Any]] = {
    "date": {"format": "date"},
    "datetime": {"format": "date-time"},
}
_LIMITS = ("minimum", "maximum", "minLength", "maxLength")


def _property(field: Field) -> dict[str, Any]:
    about = {"title": field.label} | ({"description": field.help} if field.help else {})
    limits = {name: field.schema[name] for name in _LIMITS if name in field.schema}
    if field.kind == "tick" or [value for value, _ in field.choices] == ["true", "false"]:
        return {"type": "boolean", **about}
    if field.kind == "choice":
        return {"type": "string", "enum": [label for _, label in field.choices], **about}
    if field.kind in ("integer", "number"):
        return {"type": field.kind, **about, **limits}
    if field.kind == "lines":
        return {"type": "string", **about, "description": f"{field.help} One per line.".strip()}
    return {"type": "string", **about, **_TEXTS.get(field.kind, {}), **limits}


async def answer(runtime: Runtime, question: Question, response: Any) -> None:
    """Store the answer of the client's user. One that declined, or closed the form, has not answered."""
    if not isinstance(response, Mapping) or response.get("action") not in ("accept", "decline", "cancel"):  # pyright: ignore[reportUnknownMemberType]
        raise InvalidInput('an answer is {"action": "accept", "content": {...}}, or "decline", or "cancel"')
    if response["action"] != "accept" or question.mine is None:
        return
    content: Any = response.get("content")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if not isinstance(content, Mapping):
        raise InvalidInput("the content of an answer is an object")
    fields = fields_of(question.asked.schema)
    sent = {field.name: _sent(field, content[field.name]) for field in fields if content.get(field.name) is not None}  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    data, wrong = read_form(fields, sent)
    if wrong:
        says = "; ".join(f"{name if name != VALUE else 'the answer'}: {why}" for name, why in wrong.items())
        raise InvalidInput(f"the answer to {question.asked.title!r} does not fit: {says}")
    await store_answer(runtime, question.mine, data, None, "mcp")


def _sent(field: Field, value: Any) -> list[str]:
    """Return a value as a form sends it."""
    if field.kind == "choice":
        by_label = {label: key for key, label in field.choices}
        return [by_label.get(value, json.dumps(value)) if isinstance(value, str) else json.dumps(value)]
    if field.kind == "tick":
        return ["yes"] if value is True else []
    if field.kind == "lines" and isinstance(value, list):
        return ["\n".join(map(str, value))]  # pyright: ignore[reportUnknownArgumentType]
    return [str(value)]
