"""Answers open questions in tests."""

from __future__ import annotations

from romancy.errors import RomancyError
from romancy.question_verbs import store_answer
from romancy.runtime import Runtime
from romancy.standings import Standing, find_open, standing


async def answer_as(runtime: Runtime, instance: str, person: str, data: object, ask_id: str | None) -> Standing:
    """Store the answer of a person; raise an error if they were not asked, or have already answered.

    Return where the question stood before.
    """
    found = await find_open(runtime, instance, person, ask_id)
    await store_answer(runtime, found, data, None, "test")
    return found


async def check_accepted(runtime: Runtime, given: Standing) -> None:
    """Raise an error if the workflow has refused an answer. `given`: where the question stood before it."""
    found = await standing(runtime, given.instance, given.asked.key, given.person)
    if found is not None and found.number > given.number:
        question = found.asked.title
        raise RomancyError(f"the workflow refused the answer of {found.name!r} to {question!r}: {found.refused}")
