"""The messages of failures: what is in a group of exceptions comes where lists show it."""

from __future__ import annotations

import asyncio

import pytest

from romancy.core.failure import capture


async def fail(*messages: str) -> None:
    async def one(message: str) -> None:
        raise ValueError(message)

    async with asyncio.TaskGroup() as group:
        for message in messages:
            group.create_task(one(message))


async def fail_inside() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fail("inner"))


async def message_of(failing: object) -> str:
    with pytest.raises(ExceptionGroup) as caught:
        await failing  # type: ignore[misc]
    return capture(caught.value).message


async def test_of_a_task_group_what_failed_comes_first() -> None:
    assert await message_of(fail("no room")) == "ValueError: no room (unhandled errors in a TaskGroup)"
    assert await message_of(fail("one", "two")) == "ValueError: one; ValueError: two (unhandled errors in a TaskGroup)"
    many = await message_of(fail(*"abcdefg"))
    assert many.endswith("ValueError: e; ... (unhandled errors in a TaskGroup)")
    inside = "ExceptionGroup: ValueError: inner (unhandled errors in a TaskGroup) (unhandled errors in a TaskGroup)"
    assert await message_of(fail_inside()) == inside


def test_of_other_groups_their_own_message_does() -> None:
    group = ExceptionGroup("1 of 3 regions failed", [ValueError("south")])
    assert capture(group).message == "1 of 3 regions failed (1 sub-exception): ValueError: south"
