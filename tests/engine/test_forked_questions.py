"""Forks of instances that refused an answer: the person can give another one, and no answer counts twice."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from romancy import NO_RETRY, ActivityContext, InvalidInput, RomancyError, WorkflowContext, activity, ask, workflow
from romancy.core.model import Event
from romancy.core.questions import REFUSED, _event, refusal_id
from romancy.standings import find_open
from romancy.testing import Environment

LONG = {"agreed": True, "note": "far too long"}
YES = {"agreed": True}
world: dict[str, Any] = {}


def _check_note(note: str) -> str:
    if len(note) > world["longest"]:
        raise ValueError(f"at most {world['longest']} characters")
    return note


@dataclass
class Ballot:
    agreed: bool
    note: Annotated[str, AfterValidator(_check_note)] = ""


@activity(retry=NO_RETRY)
async def announce(ctx: ActivityContext, by: list[str]) -> list[str]:
    if world["is_down"]:
        raise RuntimeError("is down")
    return by


@workflow
async def unanimous(ctx: WorkflowContext) -> list[str]:
    people = ["ann", "bob", "cy"]
    vote = await ask(ctx, Ballot, title="Agreed?", people=people, agrees=lambda b: b.agreed, needed=3, refusals=1)
    decision = await vote.decision()
    return await announce(ctx, [answer.by for answer in decision.answers])


@workflow
async def plain(ctx: WorkflowContext) -> str:
    question = await ask(ctx, Ballot, title="Agreed?", people=["ann", "bob"])
    return (await question.answer()).by


@pytest.fixture(autouse=True)
def _world(caplog: pytest.LogCaptureFixture) -> None:
    world.update(longest=10, is_down=False)
    caplog.set_level(logging.WARNING, "romancy")


async def _refused(env: Environment, instance: Any, person: str) -> None:
    with pytest.raises(RomancyError, match="refused the answer"):
        await env.answer(instance, person, LONG)


async def _fork(env: Environment, instance: Any, at: int) -> Any:
    fork = await env.app.fork_workflow(instance.instance_id, at=at)
    await env.settle()
    return fork


async def _entries(env: Environment, instance: Any) -> list[int]:
    return [entry.n for entry in await env.app.get_history(instance.instance_id) if entry.n]


async def _answered(env: Environment, instance: Any) -> list[str]:
    """Return who has answered an open vote, as it is listed."""
    [question] = [q for q in (await env.app.list_questions()).items if q.instance_id == instance.instance_id]
    return list(question.answered)


async def _decide(env: Environment, instance: Any) -> None:
    """Let all who have not answered do so, and everyone once."""
    given = await _answered(env, instance)
    for person in ("bob", "cy", "ann"):
        if person in given:
            with pytest.raises(InvalidInput, match="it is answered"):
                await env.app.answer_question(instance.instance_id, person, YES)
        else:
            await env.answer(instance, person, YES)
    output = (await env.app.get_instance(instance.instance_id)).output
    assert sorted(output) == ["ann", "bob", "cy"]


async def test_who_was_refused_can_answer_in_every_fork(env: Environment, caplog: pytest.LogCaptureFixture) -> None:
    handle = await env.start(unanimous)
    await _refused(env, handle, "bob")
    await env.answer(handle, "ann", YES)
    await _refused(env, handle, "bob")
    forks = [await _fork(env, handle, at) for at in await _entries(env, handle)]
    assert [await _answered(env, fork) for fork in forks] == [[], [], [], ["ann"], ["ann"], ["ann"]]
    await env.restart()
    for fork in [*forks, handle]:
        await _decide(env, fork)
    assert not caplog.records


async def test_forks_of_forks(env: Environment, caplog: pytest.LogCaptureFixture) -> None:
    handle = await env.start(unanimous)
    await _refused(env, handle, "bob")
    for _ in range(2):
        handle = await _fork(env, handle, (await _entries(env, handle))[-1])
        await _refused(env, handle, "bob")
        if "ann" not in await _answered(env, handle):
            await env.answer(handle, "ann", YES)
            await _refused(env, handle, "bob")
    forks = [await _fork(env, handle, at) for at in await _entries(env, handle)]
    assert "bob" not in [person for fork in forks for person in await _answered(env, fork)]
    await env.restart()
    for fork in [*forks, handle]:
        await _decide(env, fork)
    assert not caplog.records


async def test_a_question_to_whoever_answers_first(env: Environment) -> None:
    handle = await env.start(plain)
    await _refused(env, handle, "bob")
    fork = await _fork(env, handle, (await _entries(env, handle))[-1])
    found = await find_open(env.app._runtime, fork.instance_id, "bob", None)
    assert (found.number, found.refused) == (1, "note: at most 10 characters")
    await env.answer(fork, "bob", YES)
    assert await fork.result() == "bob"


async def test_what_other_code_accepts_in_a_fork_counts_once(env: Environment) -> None:
    handle = await env.start(unanimous)
    await _refused(env, handle, "bob")
    world.update(longest=100)
    fork = await _fork(env, handle, (await _entries(env, handle))[-1])
    assert await _answered(env, fork) == ["bob"]
    again = await _fork(env, fork, (await _entries(env, fork))[-1])
    await _decide(env, fork)
    await _decide(env, again)


async def test_a_retried_fork(env: Environment, caplog: pytest.LogCaptureFixture) -> None:
    handle = await env.start(unanimous)
    await _refused(env, handle, "bob")
    fork = await _fork(env, handle, (await _entries(env, handle))[-1])
    world.update(is_down=True)
    for person in ("bob", "cy", "ann"):
        await env.answer(fork, person, YES)
    assert await fork.status() == "failed"
    world.update(is_down=False)
    await env.app.retry_workflow(fork.instance_id, steps=["answer ask:1:1", "announce:1"])
    await env.settle()
    await env.restart()
    assert (await env.app.get_instance(fork.instance_id)).output == ["bob", "cy", "ann"]
    assert not [record for record in caplog.records if "dropped" in record.getMessage()]


async def test_a_fork_whose_refusal_was_recorded_under_its_former_id(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal had the id of the original's, so nobody was told of it. A fork of the fork is free of that."""

    def former(instance: str, key: str, answer: str, why: str) -> Event:
        return _event(REFUSED, refusal_id(answer), key, instance, {"why": why})

    handle = await env.start(unanimous)
    await _refused(env, handle, "bob")
    with monkeypatch.context() as patch:
        patch.setattr("romancy.api.approvals.refused_event", former)
        fork = await _fork(env, handle, (await _entries(env, handle))[-1])
        assert await _answered(env, fork) == ["bob"]
    await env.restart()
    await env.answer(fork, "ann", YES)
    assert await env.app.handle(fork.instance_id).status() == "waiting_for_event"
    await _decide(env, await _fork(env, fork, (await _entries(env, fork))[-1]))


async def test_nobody_votes_twice_when_a_retry_accepts_what_was_refused(env: Environment) -> None:
    handle = await env.start(unanimous)
    await _refused(env, handle, "bob")
    world.update(is_down=True)
    for person in ("bob", "cy", "ann"):
        await env.answer(handle, person, YES)
    assert await handle.status() == "failed"
    world.update(is_down=False, longest=100)
    await env.app.retry_workflow(handle.instance_id, steps=["answer ask:1:1", "announce:1"])
    await env.settle()
    assert sorted((await env.app.get_instance(handle.instance_id)).output) == ["ann", "bob", "cy"]
