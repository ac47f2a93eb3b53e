"""A commit whose outcome is unknown goes out again, exactly as it was, and nothing happens twice.

And one that holds a value the database will never take hurts nobody but its own instance.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    InstanceExists,
    ReceivedEvent,
    StorageError,
    WorkflowBlocked,
    WorkflowContext,
    activity,
    sleep,
    wait_event,
    workflow,
)
from romancy.storage.batch import Batch, Commit
from romancy.storage.errors import RefusedValue, TransientError
from romancy.storage.protocol import Answered
from romancy.testing import Environment, environment
from tests.crash.faults import MortalStorage
from tests.crash.ground import Ground
from tests.crash.scenarios import SCENARIOS, Scenario
from tests.crash.stage import stage
from tests.crash.test_every_commit_point import THOROUGH, undisturbed

pytestmark = pytest.mark.usefixtures("ground")


class Unsure(MortalStorage):
    """Every batch is answered with outages first; `got_through(n)` says whether the n-th is stored all the same."""

    def __init__(self, inner: Any, got_through: Callable[[int], bool], outages: int = 1) -> None:
        super().__init__(inner)
        self._got_through, self._outages = got_through, outages
        self._batches = 0
        self.submissions: list[bytes] = []
        self._left = 0

    def append(self, commit: Commit, worker: str | None) -> bool:
        return False  # every one is a batch

    def commit(self, batch: Batch, answered: Answered) -> None:
        self.submissions.append(pickle.dumps(batch))
        if self._left == 0:
            self._batches += 1
            self._left = self._outages + 1
        self._left -= 1
        if self._left == 0:
            self.inner.commit(batch, answered)
        elif self._got_through(self._batches):
            self.inner.commit(batch, lambda answer, error: answered(None, TransientError("the line went dead")))
        else:
            asyncio.get_running_loop().call_soon(answered, None, TransientError("the line was dead"))

    @property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Submissions with the one that followed each outage."""
        step = self._outages + 1
        groups = [self.submissions[n : n + step] for n in range(0, len(self.submissions), step)]
        return [pair for group in groups for pair in pairwise(group)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The committer rests between attempts, and so do those that step aside; not here."""
    real = asyncio.BaseEventLoop.call_later

    def at_once(loop: Any, delay: float, callback: Any, *args: Any, **kwargs: Any) -> Any:
        rests = getattr(callback, "__qualname__", "").startswith(("Committer.", "Laggards."))
        return real(loop, 0 if rests else delay, callback, *args, **kwargs)

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", at_once)


HOW = {
    "every batch got through": lambda n: True,
    "no batch got through": lambda n: False,
    "every other batch got through": lambda n: n % 2 == 0,
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
async def test_nothing_doubles(scenario: Scenario, how: str, ground: Ground) -> None:
    if not ground.is_quick and not THOROUGH and how != "every other batch got through":
        pytest.skip("played in full with ROMANCY_TEST_THOROUGH=1")
    expected, _ = await undisturbed(scenario, ground)
    async with stage(scenario.workflows) as it:
        app = it.env.app
        await app._runtime.crash()
        app._runtime.storage = unsure = Unsure(it.storage.inner, HOW[how], outages=2)
        await it.restart()
        await scenario.script(it)
        outcome = await it.outcome()
    assert scenario.normal(outcome) == expected
    assert len(unsure.pairs) > 6
    assert all(first == again for first, again in unsure.pairs), "a batch was changed before it went out again"


# --- what callers are told -------------------------------------------------------------------------------------------
@workflow
async def one_event(ctx: WorkflowContext, n: int) -> str:
    return (await wait_event(ctx, "go")).id


@workflow(on_event="placed")
async def placed(ctx: WorkflowContext, event: ReceivedEvent[int]) -> int:
    return event.data


@workflow
async def sleeps(ctx: WorkflowContext) -> None:
    await sleep(ctx, 100)


@asynccontextmanager
async def unsure_environment() -> AsyncGenerator[Environment, None]:
    async with environment(workflows=[one_event, placed, sleeps]) as env:
        inner = env.app._runtime.storage
        env.app._runtime.storage = Unsure(inner, lambda n: True)  # type: ignore[assignment]
        await env.restart()
        yield env
        env.app._runtime.storage = inner


async def test_the_callers_answers_are_those_of_the_first_time(ground: Ground) -> None:
    async with unsure_environment() as env:
        handle = await env.start(one_event.options(instance_id="a"), 1)
        assert handle.created
        again = await env.app.start_workflow(one_event.options(instance_id="a"), 1)
        assert not again.created
        with pytest.raises(InstanceExists):
            await env.app.start_workflow(one_event.options(instance_id="a"), 2)
        receipt = await env.send_event("go", "test", id="e")
        assert (receipt.duplicate, receipt.delivered) == (False, 1)
        assert await handle.result() == "e"
        assert (await env.send_event("go", "test", id="e")).duplicate
        receipt = await env.send_event("placed", "test", 7, id="p")
        assert (receipt.duplicate, receipt.started) == (False, 1)
        assert (await env.send_event("placed", "test", 7, id="p")).started == 0
        assert await ground.read("SELECT count(*) FROM romancy.instances WHERE workflow = 'placed'") == [(1,)]
        assert await ground.read("SELECT count(*) FROM romancy.events") == [(2,)]


async def test_twins_in_one_unsure_batch_are_told_apart() -> None:
    async with unsure_environment() as env:
        receipts = await asyncio.gather(*(env.app.send_event("go", "test", id="e") for _ in range(3)))
        assert sorted(r.duplicate for r in receipts) == [False, True, True]
        handles = await asyncio.gather(
            *(env.app.start_workflow(one_event.options(instance_id="a"), n) for n in (1, 1, 2)), return_exceptions=True
        )
        assert [getattr(h, "created", type(h)) for h in handles] == [True, False, InstanceExists]


async def test_a_cancel_is_recorded_once(ground: Ground) -> None:
    async with unsure_environment() as env:
        await env.start(sleeps.options(instance_id="a"))
        await env.cancel("a", "enough")
        assert (await env.app.get_instance("a")).status == "cancelled"
        kinds = [entry.kind for entry in await env.app.get_history("a")]
        assert kinds == ["started", "cancel_requested"]
        assert await ground.read("SELECT * FROM romancy.requests") == []


# --- what the database refuses ---------------------------------------------------------------------------------------
class Picky(MortalStorage):
    """Refuses every batch that holds the word, as a whole, like a database would."""

    def __init__(self, inner: Any, word: bytes) -> None:
        super().__init__(inner)
        self.word, self.refusals, self.batches = word, 0, 0

    def append(self, commit: Commit, worker: str | None) -> bool:
        return False  # every one is a batch

    def commit(self, batch: Batch, answered: Answered) -> None:
        self.batches += 1
        poisoned = [c for c in batch.commits if any(self.word in (e.payload or b"") for e in c.entries)]
        poisoned += [a for a in batch.accepts if self.word in (a.event.data or b"")]
        if poisoned:
            self.refusals += 1
            error = RefusedValue(f"it will not take {self.word!r}")
            asyncio.get_running_loop().call_soon(answered, None, error)
        else:
            super().commit(batch, answered)


@activity
async def say(ctx: ActivityContext, word: str) -> str:
    return word


@workflow
async def talk(ctx: WorkflowContext, word: str) -> str:
    return await say(ctx, word) + await say(ctx, "!")


@asynccontextmanager
async def picky_environment(word: bytes) -> AsyncGenerator[tuple[Environment, Picky], None]:
    async with environment(workflows=[talk, one_event]) as env:
        inner = env.app._runtime.storage
        env.app._runtime.storage = picky = Picky(inner, word)  # type: ignore[assignment]
        await env.restart()
        yield env, picky
        env.app._runtime.storage = inner


async def test_only_the_culprit_is_blocked() -> None:
    async with picky_environment(b"poison") as (env, picky):
        words = ["poison" if n == 5 else f"w{n}" for n in range(12)]
        named = [talk.options(instance_id=f"t{n}") for n in range(12)]
        await asyncio.gather(*(env.app.start_workflow(*pair) for pair in zip(named, words, strict=True)))
        await env.settle()
        assert picky.refusals > 1, "the culprit was alone in its batch: nothing was shown"
        for n, word in enumerate(words):
            handle = env.app.handle(f"t{n}", talk)
            if word == "poison":
                with pytest.raises(WorkflowBlocked, match="will not take"):
                    await handle.result()
            else:
                assert await handle.result() == f"{word}!"
        blocked = await env.app.get_instance("t5")
        assert "poison" in blocked.error["message"]
        batches = picky.batches
        await env.settle()
        assert picky.batches == batches, "the culprit is tried again and again"


async def test_a_blocked_culprit_goes_on_when_it_is_resumed() -> None:
    async with picky_environment(b"poison") as (env, picky):
        handle = await env.start(talk, "poison")
        assert await handle.status() == "blocked"
        picky.word = b"nothing of the kind"
        await env.app.resume_workflow(handle.instance_id)
        assert await handle.result() == "poison!"


async def test_a_refused_event_is_its_senders_news_only() -> None:
    async with picky_environment(b"poison") as (env, _):
        handle = await env.start(one_event, 1)
        outcomes = await asyncio.gather(
            env.app.send_event("other", "test", "fine", id="1"),
            env.app.send_event("go", "test", "poison", id="2"),
            env.app.send_event("go", "test", "fine", id="3"),
            return_exceptions=True,
        )
        assert [isinstance(o, StorageError) for o in outcomes] == [False, True, False]
        assert await handle.result() == "3"


@workflow
async def odd(ctx: WorkflowContext, text: str) -> str:
    ctx.describe("\ud800" if text == "lone surrogate" else text)
    return await say(ctx, text)


async def test_what_the_database_really_refuses_blocks_only_the_culprit() -> None:
    async with environment(workflows=[odd]) as env:
        texts = ["a", "lone surrogate", "b"]
        handles = await asyncio.gather(*(env.app.start_workflow(odd, text) for text in texts))
        await env.settle()
        assert [await h.status() for h in handles] == ["completed", "blocked", "completed"]
