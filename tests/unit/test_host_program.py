"""What Romancy leaves alone: the asyncio of the program that imports it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from asyncio import tasks
from collections.abc import Callable
from typing import Any

import pytest

from romancy import WorkflowContext, sleep, workflow
from romancy.core import loop
from romancy.core.loop import WorkflowLoop
from romancy.testing import environment, replay

_UNTOUCHED = """
import asyncio, types
def state():
    modules = [asyncio, asyncio.tasks, asyncio.futures, asyncio.events, asyncio.base_events]
    own = {(m.__name__, k): id(v) for m in modules for k, v in vars(m).items() if not k.startswith("__")}
    kinds = [asyncio.tasks._GatheringFuture, asyncio.Future, asyncio.Task, asyncio.BaseEventLoop]
    return own | {(kind, k): id(v) for kind in kinds for k, v in vars(kind).items()}
before = state()
import romancy, romancy.testing
after = {k: v for k, v in state().items() if k in before or isinstance(k[0], type)}  # modules may get submodules
assert after == before, f"importing romancy changed asyncio: {after.items() ^ before.items()}"
"""


def test_importing_it_changes_nothing_in_asyncio() -> None:
    done = subprocess.run([sys.executable, "-c", _UNTOUCHED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(autouse=True)
def without_loops_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    if is_ours():
        monkeypatch.delattr(tasks._GatheringFuture, "__hash__")  # type: ignore[attr-defined]
    monkeypatch.setattr(loop, "_gathering", loop._Gathering())


def is_ours() -> bool:
    return "__hash__" in vars(tasks._GatheringFuture)  # type: ignore[attr-defined]


class Owner:
    """No operations, no clock."""

    id = "i-1"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_: None


def opened() -> WorkflowLoop:
    loop = WorkflowLoop(Owner())  # type: ignore[arg-type]
    loop.open("i-1")
    return loop


def test_gather_is_changed_only_while_there_is_a_workflow_loop() -> None:
    assert not is_ours()
    one, other = opened(), opened()
    one.release()
    one.release()
    assert is_ours(), "the other one is still there"
    other.release()
    assert not is_ours()


def test_threads_may_make_and_release_workflow_loops_at_a_time() -> None:
    def many() -> None:
        for _ in range(2000):
            loop = opened()
            seen.append(is_ours())
            loop.release()

    seen: list[bool] = []
    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(seen)
    assert not is_ours()


@workflow
async def gathers(ctx: WorkflowContext) -> list[int]:
    """Which of several gatherings is first in a set is the same on every run, or replay would stop here."""
    all_of = [asyncio.gather(sleep(ctx, 1, timer_id=f"t{n}"), return_exceptions=True) for n in range(30)]
    done, _ = await asyncio.wait(all_of)
    order = [all_of.index(one) for one in done]  # type: ignore[arg-type]
    for n in order:
        await sleep(ctx, 1, timer_id=f"after{n}")
    return order


async def test_an_app_and_a_replay_leave_asyncio_as_it_was() -> None:
    async with environment(workflows=[gathers]) as env:
        handle = await env.start(gathers)
        assert is_ours()
        assert await handle.result() == list(range(30))
        waiting = await env.start(gathers)
        await env.advance(1)
        await env.restart()
        assert await waiting.result() == list(range(30))
        assert not is_ours(), "nothing is in memory"
        await env.start(gathers)
        history = await env.app.get_history(handle.instance_id)
    assert not is_ours(), "the app has stopped"
    assert replay(gathers, history) == "completed"
    assert not is_ours()


async def test_gathering_outside_a_workflow_is_as_ever() -> None:
    before = asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
    kept = {before}
    loop = opened()
    assert before in kept
    future = asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
    assert hash(future) == object.__hash__(future)
    kept.add(future)
    loop.release()
    assert kept == {before, future}
    await asyncio.gather(before, future)
