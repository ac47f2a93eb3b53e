"""Answers open questions in tests."""

from __future__ import annotations

from pydantic_core import to_jsonable_python

from romancy.core.questions import operation_of
from romancy.errors import RomancyError
from romancy.runtime import Runtime
from romancy.standings import Standing, open_questions, standing, to_answer


async def answer_as(runtime: Runtime, instance: str, person: str, data: object, ask_id: str | None) -> Standing:
    """Store the answer of a person; raise an error if they were not asked, or have already answered.

    Return where the question stood before.
    """
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
    return found


async def check_accepted(runtime: Runtime, given: Standing) -> None:
    """Raise an error if the workflow has refused an answer. `given`: where the question stood before it."""
    found = await standing(runtime, given.instance, given.asked.key, given.person)
    if found is not None and found.number > given.number:
        question = found.asked.title
        raise RomancyError(f"the workflow refused the answer of {found.name!r} to {question!r}: {found.refused}")
