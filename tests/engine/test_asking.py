"""Questions to people: `ask`, answers, votes; what counts, and when."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from romancy import (
    NO_RETRY,
    ActivityContext,
    Answer,
    App,
    Decision,
    InstanceNotFound,
    InvalidInput,
    Invitation,
    RomancyError,
    WaitTimeout,
    WorkflowContext,
    activity,
    ask,
    sleep,
    wait_event,
    workflow,
)
from romancy.cli.database_target import DatabaseTarget
from romancy.core.questions import ASKED, Asked, read_asked
from romancy.core.tickets import SigningKeys
from romancy.standings import Standing, standing, to_answer
from romancy.testing import Environment, environment

KEY = "a key of at least thirty-two characters"
mails: list[str] = []


@dataclass
class Approval:
    approved: bool
    note: str = ""


class Strict(BaseModel):
    amount: int

    @field_validator("amount")
    @classmethod
    def _is_even(cls, amount: int) -> int:
        if amount % 2:
            raise ValueError("only even amounts")
        return amount


@activity
async def mail(ctx: ActivityContext, invitation: Invitation) -> None:
    mails.append(invitation.url(ctx))


@workflow
async def refund(ctx: WorkflowContext, people: list[str]) -> tuple[bool, str, str]:
    question = await ask(ctx, Approval, title="Refund?", people=people, expires_in=timedelta(days=3))
    for invitation in question.invitations.values():
        await mail(ctx, invitation)
    answer = await question.answer()
    return answer.data.approved, answer.data.note, answer.by


@workflow
async def vote(ctx: WorkflowContext, people: list[str], needed: int, refusals: int) -> Any:
    asked = await ask(
        ctx, Approval, title="Agreed?", people=people, agrees=lambda a: a.approved, needed=needed, refusals=refusals
    )
    decision: Decision[Approval] = await asked.decision()
    return decision.agreed, decision.by, [(answer.by, answer.data.approved) for answer in decision.answers]


@workflow
async def reminds(ctx: WorkflowContext) -> list[str]:
    question = await ask(ctx, bool, title="Well?", people=["ann"], expires_in=100)
    seen: list[str] = []
    for _ in range(3):
        try:
            answer: Answer[bool] = await question.answer(timeout=40)
        except WaitTimeout:
            seen.append(str(ctx.now() - ctx.started_at))
        else:
            return [*seen, answer.by]
    return seen


@workflow
async def strict(ctx: WorkflowContext) -> int:
    question = await ask(ctx, Strict, title="How much?", people=["ann"])
    return (await question.answer()).data.amount


@workflow
async def twice(ctx: WorkflowContext) -> list[bool]:
    first = await ask(ctx, bool, title="First?", people=["ann"], ask_id="first")
    one = (await first.answer()).data
    second = await ask(ctx, bool, title="Second?", people=["ann"], ask_id="second")
    return [one, (await second.answer()).data]


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "romancy")  # whatever tests before this one have set


@pytest.fixture(autouse=True)
def no_mails() -> None:
    mails.clear()


@pytest.fixture
async def asking() -> Any:
    async with environment(public_url="https://shop.example", signing_keys=[KEY]) as env:
        yield env


async def test_an_answer(asking: Environment) -> None:
    handle = await asking.start(refund, ["ann@x.org", "bob@x.org"])
    assert len(mails) == 2
    assert all(url.startswith("https://shop.example/ask/") for url in mails)
    await asking.answer(handle, "bob@x.org", {"approved": True, "note": "fine"})
    assert tuple(await handle.result()) == (True, "fine", "bob@x.org")


async def test_no_link_is_recorded_anywhere(asking: Environment) -> None:
    """Whoever can read histories and events must not be able to answer."""
    handle = await asking.start(refund, ["ann@x.org"])
    ticket = mails[0].rpartition("/")[2]
    history = await asking.app.get_history(handle.instance_id)
    events = (await asking.app.list_events()).items
    assert ticket not in repr(history) + repr(events) + repr(await asking.waits(handle))


async def test_replay_after_the_keys_were_replaced(db: str) -> None:
    options: dict[str, Any] = {"workflows": [refund], "public_url": "https://shop.example"}
    async with environment(database=db, signing_keys=[KEY], **options) as env:
        handle = await env.start(refund, ["ann@x.org"])
    async with environment(database=db, signing_keys=["b" * 32], **options) as env:
        again = env.app.handle(handle.instance_id)
        await env.answer(again, "ann@x.org", Approval(True))
        await env.settle()
        assert (await env.app.get_instance(handle.instance_id)).status == "completed"


@pytest.mark.parametrize(
    ("needed", "refusals", "answers", "agreed"),
    [
        (2, 1, [("a", True), ("b", True)], True),
        (2, 1, [("a", True), ("b", False)], False),
        (2, 2, [("a", False), ("b", True), ("c", True)], True),
        (2, 3, [("a", False), ("b", False)], False),  # two of three can't agree any more
        (1, 1, [("c", False)], False),
        (3, 1, [("a", True), ("b", True), ("c", True)], True),
    ],
)
async def test_votes(
    asking: Environment, needed: int, refusals: int, answers: list[tuple[str, bool]], agreed: bool
) -> None:
    handle = await asking.start(vote, ["a", "b", "c"], needed, refusals)
    for person, approved in answers:
        assert await handle.status() == "waiting_for_event"
        await asking.answer(handle, person, Approval(approved))
    assert list(await handle.result()) == [agreed, answers[-1][0], [list(answer) for answer in answers]]


async def test_reminders_and_the_end(asking: Environment) -> None:
    handle = await asking.start(reminds)
    assert await handle.result() == ["0:00:40", "0:01:20", "0:01:40"]


async def test_an_answer_after_a_reminder(asking: Environment) -> None:
    handle = await asking.start(reminds)
    await asking.advance(45)
    await asking.answer(handle, "ann", True)
    assert await handle.result() == ["0:00:40", "ann"]


async def test_the_first_answer_of_a_person_counts(asking: Environment) -> None:
    handle = await asking.start(vote, ["a", "b"], 2, 1)
    await asking.answer(handle, "a", Approval(True))
    with pytest.raises(RomancyError, match="it is answered"):
        await asking.answer(handle, "a", Approval(False))
    await asking.answer(handle, "b", Approval(True))
    assert (await handle.result())[0] is True


async def test_an_answer_that_the_model_refuses(asking: Environment) -> None:
    handle = await asking.start(strict)
    with pytest.raises(RomancyError, match=r"refused the answer of 'ann' to 'How much\?': amount: only even"):
        await asking.answer(handle, "ann", {"amount": 3})
    assert await handle.status() == "waiting_for_event"
    await asking.answer(handle, "ann", {"amount": 4})
    assert await handle.result() == 4


async def test_an_answer_to_an_earlier_question_never_counts_for_a_later_one(asking: Environment) -> None:
    handle = await asking.start(twice)
    runtime = asking.app._runtime
    first = await _standing(asking, handle)
    await asking.answer(handle, "ann", True, ask_id="first")
    await runtime.engine.accept(to_answer(first, False, "ann", "late"))
    await asking.settle()
    assert await handle.status() == "waiting_for_event"
    await asking.answer(handle, "ann", False, ask_id="second")
    assert await handle.result() == [True, False]


async def _newest(env: Environment, instance: str) -> Asked:
    """Return the last question of an instance."""
    [event, *_] = await env.app._runtime.engine.storage.catalog.sent_to(instance, ASKED, 10)
    return read_asked(event)


async def _key(env: Environment, instance: str) -> str:
    """Return the key of the last question."""
    asked = await _newest(env, instance)
    return asked.key


async def _standing(env: Environment, handle: Any, key: str | None = None, person: int = 0) -> Standing:
    key = key or await _key(env, handle.instance_id)
    found = await standing(env.app._runtime, handle.instance_id, key, person)
    assert found is not None
    return found


async def test_a_question_of_an_earlier_instance_is_gone(db: str) -> None:
    """An id can be used again. A link of the old question must not answer the new one."""
    async with environment(database=db, workflows=[strict], retention=timedelta(days=1)) as env:
        await env.start(strict.options(instance_id="one"))
        old = await _key(env, "one")
        await env.app.cancel_workflow("one")
        await env.advance(timedelta(days=3))
        await env.start(strict.options(instance_id="one"))
        assert await standing(env.app._runtime, "one", old, 0) is None


@workflow
async def later(ctx: WorkflowContext) -> bool:
    await wait_event(ctx, "go")
    return (await (await ask(ctx, bool, title="Well?", people=["ann"])).answer()).data


async def test_a_clock_that_was_set_back_makes_no_question_old(asking: Environment) -> None:
    handle = await asking.start(later)
    asking.clock._now -= 3_600_000_000
    await asking.send_event("go", "test")
    await asking.answer(handle, "ann", True)
    assert await handle.result() is True


async def test_where_a_question_stands(asking: Environment) -> None:
    handle = await asking.start(vote, ["a", "b", "c"], 2, 1)
    runtime, key = asking.app._runtime, await _key(asking, handle.instance_id)

    async def states() -> list[str]:
        found = [await standing(runtime, handle.instance_id, key, n) for n in range(4)]
        return [one.state if one else "gone" for one in found]

    assert await states() == ["open", "open", "open", "gone"]
    await asking.answer(handle, "a", Approval(True))
    assert await states() == ["answered", "open", "open", "gone"]
    await asking.answer(handle, "b", Approval(True))
    assert await states() == ["answered", "answered", "closed", "gone"]


async def test_a_cancelled_instance_closes_its_questions(asking: Environment) -> None:
    handle = await asking.start(strict)
    key = await _key(asking, handle.instance_id)
    await handle.cancel()
    await asking.settle()
    assert (await _standing(asking, handle, key)).state == "closed"


async def test_questions_are_kept_for_as_long_as_they_are_open(db: str) -> None:
    async with environment(database=db, workflows=[strict], retention=timedelta(days=1)) as env:
        handle = await env.start(strict)
        await env.advance(timedelta(days=30))
        await env.answer(handle, "ann", {"amount": 2})
        assert await handle.result() == 2


@workflow(expects=["paid"])
async def expecting(ctx: WorkflowContext) -> bool:
    question = await ask(ctx, bool, title="Paid?", people=["ann"])
    await wait_event(ctx, "paid")
    return (await question.answer()).data


async def test_a_workflow_that_declares_what_it_expects_can_ask(asking: Environment) -> None:
    handle = await asking.start(expecting)
    await asking.send_event("paid", "bank")
    await asking.answer(handle, "ann", True)
    assert await handle.result() is True


class Exact(BaseModel):
    model_config = ConfigDict(strict=True)
    on: date
    at: datetime
    amount: Decimal


@workflow
async def exact(ctx: WorkflowContext) -> str:
    question = await ask(ctx, Exact, title="When?", people=["ann"])
    answer = (await question.answer()).data
    return f"{answer.on} {answer.at} {answer.amount}"


async def test_answers_are_read_as_json(asking: Environment) -> None:
    """A strict model accepts dates and decimals in JSON, which has no types for them."""
    handle = await asking.start(exact)
    await asking.answer(handle, "ann", {"on": "2026-01-31", "at": "2026-01-31T18:30:00Z", "amount": "1.50"})
    assert await handle.result() == "2026-01-31 2026-01-31 18:30:00+00:00 1.50"


class Crashing(BaseModel):
    share: int

    @model_validator(mode="after")
    def _divides(self) -> Crashing:
        if 100 // self.share == 7:
            raise ValueError("not a seventh.")
        return self


@workflow
async def crashing(ctx: WorkflowContext) -> int:
    return (await (await ask(ctx, Crashing, title="How much?", people=["ann"])).answer()).data.share


async def test_why_an_answer_is_refused(asking: Environment, caplog: pytest.LogCaptureFixture) -> None:
    handle = await asking.start(crashing)
    for share, why in ((14, "^not a seventh$"), (0, "^it can't be read$")):
        with pytest.raises(RomancyError, match="refused the answer"):
            await asking.answer(handle, "ann", {"share": share})
        assert re.search(why, (await _standing(asking, handle)).refused)
    assert "ZeroDivisionError" in caplog.text
    with pytest.raises(RomancyError, match="share: Input should be a valid integer"):
        await asking.answer(handle, "ann", {"share": "much"})
    await asking.answer(handle, "ann", {"share": 2})
    assert await handle.result() == 2


# --- what no longer counts, or never did -----------------------------------------------------------------------------
@workflow
async def asks_again(ctx: WorkflowContext, votes: bool) -> str:
    if votes:
        vote = await ask(ctx, bool, title="Late?", people=["ann"], expires_in=100, agrees=bool)
        awaited: Any = vote.decision
    else:
        awaited = (await ask(ctx, bool, title="Late?", people=["ann"], expires_in=100)).answer
    try:
        await awaited()
    except WaitTimeout:
        await wait_event(ctx, "go")
    return str(await awaited())


@pytest.mark.parametrize("votes", [True, False])
async def test_an_answer_after_the_end_never_counts(asking: Environment, votes: bool) -> None:
    """The page may have looked just before the question expired."""
    handle = await asking.start(asks_again, votes)
    found = await _standing(asking, handle)
    await asking.advance(101)
    await asking.app._runtime.engine.accept(to_answer(found, True, "ann", "link"))
    await asking.send_event("go", "test")
    with pytest.raises(Exception, match=r"'Late\?' expired"):
        await handle.result()


async def test_a_question_that_expired_stays_expired(asking: Environment) -> None:
    """Also after its workflow has closed it, and has ended."""
    handle = await asking.start(asks_again, False)
    key = await _key(asking, handle.instance_id)
    await asking.advance(101)
    assert (await _standing(asking, handle, key)).state == "expired"
    await asking.send_event("go", "test")
    with pytest.raises(Exception, match=r"'Late\?' expired"):
        await handle.result()
    assert (await _standing(asking, handle, key)).state == "expired"


@workflow
async def undecided(ctx: WorkflowContext) -> None:
    vote = await ask(ctx, bool, title="Agreed?", people=["ann"], agrees=bool)
    await vote.decision(timeout=10)


async def test_what_a_timeout_says_of_a_vote(asking: Environment) -> None:
    handle = await asking.start(undecided)
    with pytest.raises(Exception, match=r"the question 'Agreed\?' was not decided in time; it is still open"):
        await handle.result()


@workflow
async def reminds_the_missing(ctx: WorkflowContext) -> list[list[str]]:
    people = ["ann", "bob", "eve"]
    vote = await ask(ctx, Strict, title="How much?", people=people, agrees=lambda a: a.amount > 0, needed=3)
    seen = [list(vote.missing)]
    with pytest.raises(WaitTimeout):
        await vote.decision(timeout=10)
    seen.append(list(vote.missing))
    await vote.decision()
    return [*seen, list(vote.missing)]


async def test_a_vote_knows_who_has_not_answered(asking: Environment) -> None:
    handle = await asking.start(reminds_the_missing)
    await asking.app.answer_question(handle.instance_id, "bob", {"amount": 2}, by="someone, for bob")
    with pytest.raises(RomancyError, match="only even amounts"):
        await asking.answer(handle, "eve", {"amount": 1})
    await asking.restart()
    await asking.advance(10)
    for person in ("ann", "eve"):
        await asking.answer(handle, person, {"amount": 4})
    assert await handle.result() == [["ann", "bob", "eve"], ["ann", "eve"], []]


@workflow
async def sleeps(ctx: WorkflowContext) -> bool:
    question = await ask(ctx, bool, title="Early?", people=["ann"], expires_in=100)
    with pytest.raises(WaitTimeout, match=r"'Early\?' was not answered in time; it is still open"):
        await question.answer(timeout=1)
    await sleep(ctx, 200)
    return (await question.answer()).data


async def test_an_answer_in_time_counts_whenever_it_is_looked_for(asking: Environment) -> None:
    handle = await asking.start(sleeps)
    found = await _standing(asking, handle)
    await asking.advance(10)
    await asking.app._runtime.engine.accept(to_answer(found, True, "ann", "link"))
    assert await handle.result() is True


@workflow
async def at_once(ctx: WorkflowContext, votes: bool) -> Any:
    if votes:
        vote = await ask(ctx, bool, title="Now?", people=["ann", "bob"], agrees=bool, needed=2)
        return await asyncio.gather(vote.decision(), vote.decision())
    question = await ask(ctx, bool, title="Now?", people=["ann", "bob"])
    return await asyncio.gather(question.answer(), question.answer())


@pytest.mark.parametrize("votes", [True, False])
async def test_only_one_task_can_wait_for_an_answer(asking: Environment, votes: bool) -> None:
    handle = await asking.start(at_once, votes)
    with pytest.raises(Exception, match=r"already waits for the answers to 'Now\?'"):
        await handle.result()


async def test_so_many_refused_answers_are_enough(asking: Environment) -> None:
    handle = await asking.start(strict)
    runtime = asking.app._runtime
    for number in range(1, 8):  # an operator goes on where the person can't
        found = await _standing(asking, handle)
        assert (found.number, found.state) == (number, "open" if number <= 5 else "refused")
        await runtime.engine.accept(to_answer(found, {"amount": 3}, "ann", "link"))
        await asking.settle()
    assert "only even amounts" in (await _standing(asking, handle)).refused
    await runtime.engine.accept(to_answer(await _standing(asking, handle), {"amount": 4}, "an operator", "viewer"))
    assert await handle.result() == 4


@workflow
async def renews(ctx: WorkflowContext, number: int) -> bool:
    question = await ask(ctx, bool, title=f"Run {number}?", people=["ann"], ask_id="run")
    if number == 1:
        await wait_event(ctx, "next")
        renews.continue_as_new(ctx, 2)
    return (await question.answer()).data


async def test_a_question_is_closed_when_its_instance_continues_as_new(asking: Environment) -> None:
    handle = await asking.start(renews, 1)
    [asked] = [record.event for record in (await asking.app.list_events()).items]
    assert (await _standing(asking, handle, asked.subject)).state == "open"
    await asking.send_event("next", "test")
    assert (await _standing(asking, handle, asked.subject)).state == "closed"
    assert (await _standing(asking, handle)).state == "open"
    await asking.answer(handle, "ann", True)
    assert await handle.result() is True


# --- retries ---------------------------------------------------------------------------------------------------------
world: dict[str, Any] = {}


@activity
async def quote(ctx: ActivityContext) -> int:
    return world["amount"]


@activity(retry=NO_RETRY)
async def charge(ctx: ActivityContext) -> None:
    if world["is_down"]:
        raise ConnectionError


@workflow
async def approved(ctx: WorkflowContext, expires_in: float | None, answers_first: bool) -> str:
    amount = await quote(ctx)
    question = await ask(ctx, bool, title=f"Refund {amount}?", people=world["people"], expires_in=expires_in)
    if not answers_first:
        await charge(ctx)
    answer = await question.answer()
    if answers_first:
        await charge(ctx)
    return f"{amount}: {answer.data} by {answer.by}"


async def _failed(env: Environment, expires_in: float | None = None) -> Any:
    """Return an instance that failed after its question was answered."""
    world.update(amount=10, people=["ann"], is_down=True)
    handle = await env.start(approved, expires_in, True)
    await env.answer(handle, "ann", True)
    assert await handle.status() == "failed"
    world.update(is_down=False)
    return handle


@pytest.mark.parametrize("expires_in", [None, 1000.0])
async def test_a_retry_after_the_answer_keeps_the_answer(asking: Environment, expires_in: float | None) -> None:
    handle = await _failed(asking, expires_in)
    world.update(amount=1_000_000)
    await asking.advance(5)
    await asking.app.retry_workflow(handle.instance_id)
    await asking.settle()
    assert await handle.result() == "10: True by ann"


async def test_the_same_question_asked_again_keeps_its_answer(asking: Environment) -> None:
    handle = await _failed(asking)
    for _ in range(2):
        world.update(is_down=True)
        await asking.app.retry_workflow(handle.instance_id, steps=["quote:1"])
        await asking.settle()
        assert await handle.status() == "failed"
    world.update(is_down=False)
    await asking.app.retry_workflow(handle.instance_id, steps=["quote:1"])
    await asking.settle()
    assert await handle.result() == "10: True by ann"


@pytest.mark.parametrize("change", [{"amount": 1_000_000}, {"people": ["bob"]}])
async def test_an_answer_never_counts_for_another_question(asking: Environment, change: dict[str, Any]) -> None:
    """A retry can run what came before a question again. If it asks something else then, it needs another answer."""
    handle = await _failed(asking)
    world.update(change)
    await asking.app.retry_workflow(handle.instance_id, steps=["quote:1"])
    await asking.settle()
    assert await handle.status() == "waiting_for_event"
    await asking.restart()
    [person] = world["people"]
    await asking.answer(handle, person, False)
    assert await handle.result() == f"{world['amount']}: False by {person}"


async def test_a_question_that_another_one_replaced_is_closed(asking: Environment) -> None:
    world.update(amount=10, people=["ann"], is_down=True)
    handle = await asking.start(approved, None, False)
    events = [record.event for record in (await asking.app.list_events()).items]
    keys = [event.subject for event in events if event.type == "romancy.asked"]
    for amount in (20, 10):  # the first question once more: nobody can answer it, because it is closed
        world.update(amount=amount)
        await asking.app.retry_workflow(handle.instance_id, steps=["quote:1"])
        await asking.settle()
    world.update(is_down=False)
    await asking.app.retry_workflow(handle.instance_id)
    await asking.settle()
    [first] = keys
    assert (await _standing(asking, handle, first)).state == "closed"
    assert (await _standing(asking, handle)).asked.title == "Refund 10?"
    await asking.restart()
    await asking.answer(handle, "ann", True)
    assert await handle.result() == "10: True by ann"


@workflow(name="reworded")
async def before_rewording(ctx: WorkflowContext) -> bool:
    return (await (await ask(ctx, bool, title="Realy?", people=["ann"])).answer()).data


@workflow(name="reworded")
async def after_rewording(ctx: WorkflowContext) -> bool:
    return (await (await ask(ctx, bool, title="Really?", text="Think.", people=["ann"])).answer()).data


async def test_words_can_be_improved_while_a_question_is_open(db: str) -> None:
    async with environment(database=db, workflows=[before_rewording]) as env:
        id = (await env.start(before_rewording)).instance_id
    async with environment(database=db, workflows=[after_rewording]) as env:
        await env.answer(env.app.handle(id), "ann", True)
        assert (await env.app.get_instance(id)).status == "completed"


@workflow
async def named(ctx: WorkflowContext) -> bool:
    question = await ask(ctx, bool, title="Well?", people=["ann"], ask_id="x" * 200, expires_in=0.5)
    await mail(ctx, question.invitations["ann"])
    return (await question.answer()).data


async def test_a_link_is_never_over_before_its_question(asking: Environment) -> None:
    """A link knows its end in whole seconds."""
    await asking.start(named.options(instance_id="i" * 255))
    ticket = SigningKeys([KEY]).read(mails[0].rpartition("/")[2])
    question = await _newest(asking, "i" * 255)
    assert question.expires_at is not None
    assert ticket.expires_at is not None
    assert 0 <= ticket.expires_at * 1_000_000 - question.expires_at < 1_000_000


# --- forks -----------------------------------------------------------------------------------------------------------
@workflow
async def reminding(ctx: WorkflowContext) -> Any:
    vote = await ask(
        ctx, Approval, title="Agreed?", people=["ann", "bob", "eve"], agrees=lambda a: a.approved, needed=2
    )
    await mail(ctx, vote.invitations["ann"])
    try:
        decision = await vote.decision(timeout=60)
    except WaitTimeout:
        await mail(ctx, vote.invitations["bob"])
        decision = await vote.decision()
    return [answer.by for answer in decision.answers]


async def _last_entry(env: Environment, instance: str) -> int:
    return (await env.app.get_history(instance))[-1].n


async def test_a_fork_asks_its_open_questions_again(asking: Environment) -> None:
    handle = await asking.start(reminding)
    at = await _last_entry(asking, handle.instance_id)
    fork = await asking.app.fork_workflow(handle.instance_id, at=at)
    await asking.settle()
    mails.clear()
    await asking.cancel(handle)
    await asking.advance(61)
    ticket = SigningKeys([KEY]).read(mails[0].rpartition("/")[2])
    assert (ticket.instance, ticket.question) == (fork.instance_id, await _key(asking, fork.instance_id))
    await asking.restart()
    await asking.answer(fork, "bob", Approval(True))
    await asking.answer(fork, "ann", Approval(True))
    assert (await asking.app.get_instance(fork.instance_id)).output == ["bob", "ann"]
    assert await handle.status() == "cancelled"


async def test_answers_that_a_fork_has_copied_count_once(asking: Environment) -> None:
    handle = await asking.start(reminding)
    await asking.answer(handle, "ann", Approval(True))
    at = await _last_entry(asking, handle.instance_id)
    fork = await asking.app.fork_workflow(handle.instance_id, at=at)
    again = await asking.app.fork_workflow(fork.instance_id, at=at)
    await asking.settle()
    for copy in (fork, again):
        with pytest.raises(RomancyError, match="it is answered"):
            await asking.answer(copy, "ann", Approval(True))
        await asking.answer(copy, "eve", Approval(True))
        assert (await asking.app.get_instance(copy.instance_id)).output == ["ann", "eve"]
    assert await handle.status() == "waiting_for_event"


async def test_a_fork_does_not_ask_what_was_answered(asking: Environment) -> None:
    world.update(amount=10, people=["ann"], is_down=False)
    handle = await asking.start(approved, None, True)
    await asking.answer(handle, "ann", True)
    at = await _last_entry(asking, handle.instance_id)
    await asking.app.fork_workflow(handle.instance_id, at=at)
    await asking.settle()
    events = [record.event for record in (await asking.app.list_events()).items]
    assert [event.target for event in events if event.type == "romancy.asked"] == [handle.instance_id]


async def test_forks_of_an_instance_that_asked_something_else_after_a_retry(asking: Environment) -> None:
    world.update(amount=10, people=["ann"], is_down=True)
    handle = await asking.start(approved, None, False)
    world.update(amount=20, is_down=False)
    await asking.app.retry_workflow(handle.instance_id, steps=["quote:1"])
    await asking.settle()
    await asking.answer(handle, "ann", True)
    history = await asking.app.get_history(handle.instance_id)
    retried = next(entry.n for entry in history if entry.kind == "retried")
    for at in [entry.n for entry in history if entry.n > retried]:
        fork = await asking.app.fork_workflow(handle.instance_id, at=at)
        await asking.settle()
        await asking.restart()
        await asking.settle()
        if (await asking.app.get_instance(fork.instance_id)).status != "completed":
            await asking.answer(fork, "ann", True)
        assert (await asking.app.get_instance(fork.instance_id)).output == "20: True by ann"


# --- mistakes --------------------------------------------------------------------------------------------------------
async def test_without_keys_there_are_no_links(env: Environment) -> None:
    handle = await env.start(refund, ["ann@x.org"])
    with pytest.raises(Exception, match="signing_keys"):
        await handle.result()


@workflow
async def careless(ctx: WorkflowContext) -> str:
    question = await ask(ctx, bool, title="?", people=["ann"])
    return question.invitations["ann"].url(ctx)  # type: ignore[arg-type]


async def test_a_link_is_not_made_in_a_workflow(asking: Environment) -> None:
    handle = await asking.start(careless)
    with pytest.raises(Exception, match="for the activity that delivers the link"):
        await handle.result()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"people": []}, "1 to 1,000 people"),
        ({"people": "ann"}, "must be a list"),
        ({"people": ["ann", "bob", "ann"]}, "'ann' is among the people twice"),
        ({"people": None}, "people must be a list of texts, not None"),
        ({"people": 7}, "people must be a list of texts, not 7"),
        ({"people": [7]}, "people are texts"),
        ({"title": ""}, "title must be"),
        ({"needed": 2}, "needed must be a number from 1 to 1"),
        ({"agrees": bool, "needed": 0}, "needed must be"),
        ({"model": dict}, "can't be asked with a form"),
        ({"model": int | str}, "can't be asked with a form"),
        ({"model": Approval(True)}, "a type, not an instance of one: Approval"),
        ({"model": True}, "a type, not an instance of one: bool"),
        ({"ask_id": "a b"}, "no spaces"),
        ({"ask_id": "a\nb"}, "no spaces"),
        ({"ask_id": "\ud800"}, "no spaces"),
        ({"ask_id": "é" * 101}, "at most 200 bytes"),
        ({"expires_in": timedelta(days=36500)}, "expires_in is too long: .* 2106"),
        ({"expires_in": float("inf")}, "expires_in is too long"),
    ],
)
async def test_mistakes_are_told_where_they_are_made(env: Environment, arguments: dict[str, Any], problem: str) -> None:
    @workflow
    async def wrong(ctx: WorkflowContext) -> None:
        given: dict[str, Any] = {"title": "Well?", "people": ["ann"], **arguments}
        await ask(ctx, given.pop("model", bool), **given)

    handle = await env.start(wrong)
    with pytest.raises(Exception, match=problem):
        await handle.result()


async def test_nobody_else_can_answer(asking: Environment) -> None:
    handle = await asking.start(strict)
    with pytest.raises(ValueError, match="Romancy's own"):
        await asking.app.send_event("romancy.answered", "romancy:ask", {"answer": {"amount": 2}}, to=handle.instance_id)


async def test_apps_with_bad_keys() -> None:
    with pytest.raises(ValueError, match="at least 32"):
        App(":memory:", signing_keys=["short"])


@workflow
async def between(ctx: WorkflowContext) -> bool:
    question = await ask(ctx, bool, title="Well?", people=["ann"])
    await wait_event(ctx, "later")
    return (await question.answer()).data


async def test_a_question_is_open_while_the_workflow_does_something_else(asking: Environment) -> None:
    handle = await asking.start(between)
    await asking.answer(handle, "ann", True)
    with pytest.raises(RomancyError, match="'ann' can't answer 'Well\\?': it is answered"):
        await asking.answer(handle, "ann", False)
    await asking.send_event("later", "here")
    assert await handle.result() is True


async def test_a_program_passes_an_answer_on(asking: Environment) -> None:
    handle = await asking.start(refund, ["ann", "bob"])
    for wrong in ("", " ", "x" * 501, 7):
        with pytest.raises(InvalidInput, match="by must be a text"):
            await asking.app.answer_question(handle.instance_id, "ann", Approval(True), by=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="can't be stored as JSON"):
        await asking.app.answer_question(handle.instance_id, "ann", object())
    for odd in (float("nan"), "\ud800", {"approved": True, "note": "\ud800"}, 10**5000):
        with pytest.raises(InvalidInput, match="can't be stored as JSON"):
            await asking.app.answer_question(handle.instance_id, "ann", odd)
    with pytest.raises(InstanceNotFound):
        await asking.app.answer_question("none", "ann", Approval(True))
    await asking.app.answer_question(handle.instance_id, "ann", Approval(True, "ok"), by="ann, in Slack")
    assert await handle.result() == (True, "ok", "ann, in Slack")


async def test_several_open_questions_need_a_name(asking: Environment) -> None:
    @workflow(name="two")
    async def two(ctx: WorkflowContext) -> list[bool]:
        first = await ask(ctx, bool, title="First?", people=["ann"], ask_id="first")
        second = await ask(ctx, bool, title="Second?", people=["ann"], ask_id="second")
        return [(await first.answer()).data, (await second.answer()).data]

    asking.app.register(two)
    handle = await asking.start(two)
    with pytest.raises(InvalidInput, match="several open questions to 'ann', so give ask_id: first, second"):
        await asking.app.answer_question(handle.instance_id, "ann", True)
    [reason] = (await DatabaseTarget(asking.app).standing(handle.instance_id)).reasons
    assert (reason.wait.kind, reason.near) == ("answer", [])
    with pytest.raises(InvalidInput, match=r"'Second\?' does not fit: it must be true or false. An answer is"):
        await asking.app.answer_question(handle.instance_id, "ann", {"yes": 1}, ask_id="second")
    await asking.app.answer_question(handle.instance_id, "ann", False, ask_id="second")
    await asking.app.answer_question(handle.instance_id, "ann", True)
    assert await handle.result() == [True, False]
