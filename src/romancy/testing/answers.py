"""Answers open questions in tests."""

from __future__ import annotations

from pydantic_core import to_jsonable_python

from romancy.core.questions import operation_of
from romancy.errors import RomancyError
from romancy.runtime import Runtime
from romancy.standings import open_questions, standing, to_answer


async def answer_as(runtime: Runtime, instance: str, person: str, data: object, ask_id: str | None) -> None:
    """Store the answer of a person; raise an error if they were not asked, or have already answered."""
    asked = await open_questions(runtime, instance)
    fitting = [q for q in asked if person in q.people and ask_id in (None, operation_of(q.key))]
    if len(fitting) != 1:
        known = ", ".join(f"{operation_of(q.key)} ({', '.join(q.people)})" for q in asked) or "none"
        what = "no open question" if not fitting else "several open questions, so give ask_id="
        raise RomancyError(f"instance {instance!r} has {what} for {person!r}; open questions: {known}")
    [question] = fitting
    found = await standing(runtime, instance, question.key, question.people.index(person))
    if found is None or found.state != "open":
        raise RomancyError(f"{person!r} can't answer {question.title!r}: it is {found.state if found else 'gone'}")
    await runtime.engine.accept(to_answer(found, to_jsonable_python(data), person, "test"))
