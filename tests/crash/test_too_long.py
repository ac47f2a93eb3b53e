"""A batch that takes too long is split; an item that takes too long alone steps aside. Nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from romancy import InstanceExists
from romancy.engine.laggards import TOLD_AFTER
from romancy.storage.batch import Batch, Commit
from romancy.storage.errors import TookTooLong
from romancy.storage.protocol import Answered
from romancy.testing import Environment, environment
from tests.crash.faults import MortalStorage
from tests.crash.ground import Ground
from tests.crash.scenarios import SCENARIOS, Scenario
from tests.crash.stage import stage
from tests.crash.test_every_commit_point import THOROUGH, undisturbed
from tests.crash.test_unknown_outcome import HOW, impatient, one_event, placed, sleeps, talk

__all__ = ["impatient"]
pytestmark = pytest.mark.usefixtures("ground", "impatient")


class Overloaded(MortalStorage):
    """More than one item at a time takes too long, and so does each one alone the first times it is tried.

    `got_through(n)` says whether the n-th of these is stored all the same, as it may be when the client gives up.
    """

    def __init__(self, inner: Any, got_through: Callable[[int], bool], failures: int = 1) -> None:
        super().__init__(inner)
        self._got_through, self._failures = got_through, failures
        self._tries: dict[bytes, int] = {}
        self.given_up, self.taken_apart = 0, 0

    def append(self, commit: Commit, worker: str | None) -> bool:
        return False  # every one is a batch

    def commit(self, batch: Batch, answered: Answered) -> None:
        kind = pickle.dumps(batch)
        tries = self._tries[kind] = self._tries.get(kind, 0) + 1
        if tries > (self._failures if len(batch) == 1 else 1) and _is_one(batch):
            self.inner.commit(batch, answered)
            return
        self.given_up += 1
        self.taken_apart += len(batch) > 1
        if self._got_through(self.given_up):
            self.inner.commit(batch, lambda answer, error: answered(None, TookTooLong("it was given up")))
        else:
            asyncio.get_running_loop().call_soon(answered, None, TookTooLong("it was given up"))


def _is_one(batch: Batch) -> bool:
    """One item, or twins, which must not be told apart."""
    names = {start.id for start in batch.starts} | {(item.event.source, item.event.id) for item in batch.accepts}
    return len(names) + len(batch.commits) + len(batch.requests) + len(batch.looks) == 1


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
async def test_nothing_is_lost_or_doubled(scenario: Scenario, how: str, ground: Ground) -> None:
    if not THOROUGH and how != "every other batch got through":
        pytest.skip("played in full with ROMANCY_TEST_THOROUGH=1")
    expected, _ = await undisturbed(scenario, ground)
    async with stage(scenario.workflows) as it:
        app = it.env.app
        await app._runtime.crash()
        app._runtime.storage = overloaded = Overloaded(it.storage.inner, HOW[how])
        await it.restart()
        await scenario.script(it)
        outcome = await it.outcome()
    assert scenario.normal(outcome) == expected
    assert overloaded.given_up > 3


@asynccontextmanager
async def overloaded_environment(got_through: bool = True) -> AsyncGenerator[tuple[Environment, Overloaded], None]:
    async with environment(workflows=[one_event, placed, sleeps, talk]) as env:
        inner = env.app._runtime.storage
        env.app._runtime.storage = overloaded = Overloaded(inner, lambda n: got_through)  # type: ignore[assignment]
        await env.restart()
        yield env, overloaded
        env.app._runtime.storage = inner


async def test_twins_of_a_batch_that_is_taken_apart_are_told_apart() -> None:
    async with overloaded_environment() as (env, overloaded):
        overloaded._failures = 0
        receipts = await asyncio.gather(*(env.app.send_event("go", "test", id=id) for id in "aebebecde"))
        assert [(id, r.duplicate) for id, r in zip("aebebecde", receipts, strict=True)] == [
            *[("a", False), ("e", False), ("b", False), ("e", True), ("b", True), ("e", True)],
            *[("c", False), ("d", False), ("e", True)],
        ]
        assert overloaded.taken_apart


@pytest.mark.parametrize("got_through", [True, False])
async def test_requests_of_a_batch_that_is_taken_apart_are_all_heard(ground: Ground, got_through: bool) -> None:
    async with overloaded_environment(got_through) as (env, overloaded):
        ids = [f"i{n}" for n in range(8)]
        await asyncio.gather(*(env.app.start_workflow(sleeps, instance_id=id) for id in ids))
        await asyncio.gather(*(env.app.cancel_workflow(id) for id in ids))
        await env.settle()
        assert {(await env.app.get_instance(id)).status for id in ids} == {"cancelled"}
        assert await ground.read("SELECT * FROM romancy.requests") == []
        assert overloaded.taken_apart


async def test_started_once_and_told_so() -> None:
    async with overloaded_environment() as (env, _):
        named = one_event.options(instance_id="a")
        handles = await asyncio.gather(*(env.app.start_workflow(named, n) for n in (1, 1, 2)), return_exceptions=True)
        assert [getattr(h, "created", type(h)) for h in handles] == [True, False, InstanceExists]


class Sticky(MortalStorage):
    """What holds the word takes too long, as long as it does: somebody has locked a row of it."""

    is_stuck = True
    tried = 0

    def append(self, commit: Commit, worker: str | None) -> bool:
        return False

    def commit(self, batch: Batch, answered: Answered) -> None:
        if self.is_stuck and any(c.instance == "stuck" and c.entries for c in batch.commits):
            self.tried += len(batch) == 1
            asyncio.get_running_loop().call_soon(answered, None, TookTooLong("canceling statement"))
        else:
            super().commit(batch, answered)


async def test_what_takes_too_long_alone_stops_nobody_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with environment(workflows=[talk]) as env:
        inner = env.app._runtime.storage
        env.app._runtime.storage = sticky = Sticky(inner)  # type: ignore[assignment]
        await env.restart()
        with caplog.at_level(logging.WARNING, "romancy"):
            names = ["stuck" if n == 5 else f"t{n}" for n in range(12)]
            handles = [await env.app.start_workflow(talk, n, instance_id=n) for n in names]
            others = [handle for handle in handles if handle.instance_id != "stuck"]
            assert await asyncio.gather(*(handle.result(10) for handle in others)) == [
                f"{name}!" for name in names if name != "stuck"
            ]
            async with asyncio.timeout(10):
                while sticky.tried < TOLD_AFTER:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert await env.app.handle("stuck").status() == "running"
            sticky.is_stuck = False
            assert await env.app.handle("stuck", talk).result(10) == "stuck!"
        assert "a step of instance 'stuck' can't be stored, though others can" in caplog.text
        assert "t1" not in caplog.text
        env.app._runtime.storage = inner
