"""What Romancy leaves alone: the asyncio of the program that imports it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from asyncio import tasks
from collections.abc import Callable
from typing import Any

from romancy.core.loop import WorkflowLoop, gather_futures

_UNTOUCHED = """
import asyncio, types
def state():
    modules = [asyncio, asyncio.tasks, asyncio.futures, asyncio.events, asyncio.base_events]
    own = {(m.__name__, k): id(v) for m in modules for k, v in vars(m).items() if not k.startswith("__")}
    kinds = [asyncio.tasks._GatheringFuture, asyncio.Future, asyncio.Task, asyncio.BaseEventLoop]
    return own | {(kind, k): id(v) for kind in kinds for k, v in vars(kind).items()}
before = state()
import romancy, romancy.testing
assert {k: v for k, v in state().items() if k in before} == before, "importing romancy changed asyncio"
"""


def test_importing_it_changes_nothing_in_asyncio() -> None:
    done = subprocess.run([sys.executable, "-c", _UNTOUCHED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Owner:
    """No operations, no clock."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_: None


def test_gather_is_ours_only_while_a_workflow_loop_runs() -> None:
    seen: list[type] = []
    original = tasks._GatheringFuture  # type: ignore[attr-defined]
    loop = WorkflowLoop(Owner())  # type: ignore[arg-type]
    loop.run(lambda: seen.append(tasks._GatheringFuture))  # type: ignore[attr-defined]
    assert seen == [gather_futures.kind] != [original]
    assert tasks._GatheringFuture is original  # type: ignore[attr-defined]


def test_two_threads_may_run_workflow_loops_at_a_time() -> None:
    """The one that ends first takes nothing away from the other."""
    original = tasks._GatheringFuture  # type: ignore[attr-defined]
    inside, over = threading.Event(), threading.Event()
    seen: list[type] = []

    def long() -> None:
        inside.set()
        over.wait(30)
        seen.append(tasks._GatheringFuture)  # type: ignore[attr-defined]

    thread = threading.Thread(target=lambda: WorkflowLoop(Owner()).run(long))  # type: ignore[arg-type]
    thread.start()
    assert inside.wait(30)
    WorkflowLoop(Owner()).run(lambda: None)  # type: ignore[arg-type]
    over.set()
    thread.join()
    assert seen == [gather_futures.kind]
    assert tasks._GatheringFuture is original  # type: ignore[attr-defined]


async def test_gathering_outside_a_workflow_is_as_ever() -> None:
    future = asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
    assert hash(future) == object.__hash__(future)
    await future
