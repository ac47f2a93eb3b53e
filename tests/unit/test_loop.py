"""The deterministic loop alone: what of asyncio works on it, in which order, and what it refuses."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import random
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import anyio
import pytest

from romancy import WorkflowContext, workflow
from romancy.api.workflow import definition_of
from romancy.core import loop as loops
from romancy.core.instance import Instance
from romancy.core.loop import TimerHandle, WorkflowLoop
from romancy.core.run import Run
from romancy.errors import IOInWorkflow, WorkflowStuck


class Owner:
    """Stands in for an instance: keeps the timers, and a clock that is turned by ringing them."""

    id = "i-1"

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[TimerHandle] = []
        self.reports: list[dict[str, Any]] = []
        self.loop = WorkflowLoop(self)

    def seconds(self) -> float:
        return self.now

    def arm(self, timer: TimerHandle) -> None:
        self.timers.append(timer)

    def disarm(self, timer: TimerHandle) -> None:
        if timer in self.timers:
            self.timers.remove(timer)

    def report(self, context: dict[str, Any]) -> None:
        self.reports.append(context)

    def exceed(self, problem: str) -> None:
        raise AssertionError(problem)

    def start(self, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        made: list[asyncio.Task[Any]] = []
        self.loop.run(lambda: made.append(self.loop.create_task(coro)))
        return made[0]

    def call(self, callback: Callable[[], Any]) -> None:
        self.loop.run(lambda: void(callback()))

    def ring(self) -> None:
        """The next timer's time has come."""
        timer = min(self.timers, key=lambda t: t.when())
        self.timers.remove(timer)
        self.now = max(self.now, timer.when())
        self.loop.run(timer.ring)

    def finish(self, coro: Coroutine[Any, Any, Any]) -> Any:
        """Run to the end, ringing each timer when nothing else is left."""
        task = self.start(coro)
        while not task.done():
            assert self.timers, "it waits for nothing"
            self.ring()
        return task.result()


def void(_: object) -> None: ...


@pytest.fixture
def owner() -> Owner:
    return Owner()


async def after(seconds: float, value: Any, seen: list[Any] | None = None) -> Any:
    await asyncio.sleep(seconds)
    if seen is not None:
        seen.append(value)
    return value


# --- what works ------------------------------------------------------------------------------------------------------


def test_runs_until_nothing_is_ready_and_no_further(owner: Owner) -> None:
    seen: list[str] = []

    async def main() -> None:
        seen.append("before")
        await asyncio.sleep(5)
        seen.append("after")

    task = owner.start(main())
    assert seen == ["before"]
    assert not task.done()
    owner.ring()
    assert seen == ["before", "after"]
    assert owner.now == 5


def test_ready_tasks_run_first_in_first_out(owner: Owner) -> None:
    seen: list[int] = []

    async def main() -> None:
        async def step(n: int) -> None:
            seen.append(n)
            await asyncio.sleep(0)
            seen.append(10 + n)

        await asyncio.gather(*(step(n) for n in range(4)))

    owner.finish(main())
    assert seen == [0, 1, 2, 3, 10, 11, 12, 13]


def test_gather(owner: Owner) -> None:
    async def main() -> Any:
        return await asyncio.gather(after(3, "a"), after(1, "b"), after(2, "c"))

    assert owner.finish(main()) == ["a", "b", "c"]
    assert owner.now == 3


def test_gather_hands_on_the_first_exception(owner: Owner) -> None:
    async def bad() -> None:
        await asyncio.sleep(1)
        raise KeyError("bad")

    async def main() -> Any:
        try:
            await asyncio.gather(after(9, "a"), bad())
        except KeyError:
            return "caught"

    assert owner.finish(main()) == "caught"
    assert owner.now == 1


def test_task_group_aborts_the_others_in_the_same_order_every_time() -> None:
    assert abort_order() == abort_order()
    assert sorted(abort_order()) == list(range(20))


def abort_order() -> list[int]:
    owner, seen = Owner(), list[int]()
    junk = [bytearray(random.randrange(300)) for _ in range(500)]

    async def child(n: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            seen.append(n)

    async def bad() -> None:
        await asyncio.sleep(1)
        raise ValueError("bad")

    async def main() -> Any:
        try:
            async with asyncio.TaskGroup() as group:
                for n in range(20):
                    group.create_task(child(n))
                group.create_task(bad())
        except ExceptionGroup as errors:
            return len(errors.exceptions)

    del junk[::2]
    task = owner.start(main())
    owner.ring()
    assert task.done()
    assert owner.timers == [], "the timers of the cancelled are withdrawn"
    return seen


def test_timeout_cancels_what_is_inside(owner: Owner) -> None:
    async def main() -> Any:
        try:
            async with asyncio.timeout(2):
                await asyncio.sleep(100)
        except TimeoutError:
            return "late"

    assert owner.finish(main()) == "late"
    assert owner.now == 2
    assert owner.timers == []


def test_timeout_that_is_not_needed_leaves_no_timer(owner: Owner) -> None:
    async def main() -> Any:
        async with asyncio.timeout(2):
            return await after(1, "in time")

    assert owner.finish(main()) == "in time"
    assert owner.timers == []


def test_timeout_in_the_past_ends_at_once(owner: Owner) -> None:
    async def main() -> Any:
        await asyncio.sleep(5)
        try:
            async with asyncio.timeout_at(3):
                await asyncio.sleep(100)
        except TimeoutError:
            return asyncio.get_running_loop().time()

    assert owner.finish(main()) == 5


def test_nested_timeouts_the_outer_one_wins(owner: Owner) -> None:
    async def main() -> Any:
        try:
            async with asyncio.timeout(1):
                try:
                    async with asyncio.timeout(2):
                        await asyncio.sleep(100)
                except TimeoutError:
                    return "inner"
        except TimeoutError:
            return "outer"

    assert owner.finish(main()) == "outer"


def test_wait_first_completed(owner: Owner) -> None:
    async def main() -> Any:
        tasks = [asyncio.create_task(after(n, n)) for n in (3, 1, 2)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return [t.result() for t in done], len(pending)

    assert owner.finish(main()) == ([1], 2)
    assert owner.timers == []


def test_sets_of_tasks_and_futures_are_walked_in_the_same_order_every_time() -> None:
    async def main() -> Any:
        loop, junk, tasks, futures = asyncio.get_running_loop(), list[Any](), list[asyncio.Task[int]](), list[Any]()
        for n in range(50):
            junk.append(bytearray(random.randrange(300)))
            tasks.append(asyncio.create_task(after(0, n)))
            futures.append(loop.create_future())
            futures[-1].set_result(n)
        done, _ = await asyncio.wait([*tasks, *(asyncio.shield(f) for f in futures)])
        return [t.result() for t in done], [t.result() for t in {*tasks, *futures}]

    assert Owner().finish(main()) == Owner().finish(main())


def test_wait_for(owner: Owner) -> None:
    async def main() -> Any:
        first = await asyncio.wait_for(after(1, "in time"), 5)
        try:
            await asyncio.wait_for(after(100, "never"), 5)
        except TimeoutError:
            return first, "late"

    assert owner.finish(main()) == ("in time", "late")
    assert owner.now == 6


def test_queue(owner: Owner) -> None:
    async def main() -> Any:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)

        async def produce() -> None:
            for n in range(5):
                await queue.put(n)
                await asyncio.sleep(1)

        producer = asyncio.create_task(produce())
        got = [await queue.get() for _ in range(5)]
        await producer
        return got

    assert owner.finish(main()) == [0, 1, 2, 3, 4]


def test_lock_semaphore_condition_and_event(owner: Owner) -> None:
    async def main() -> Any:
        seen: list[str] = []
        lock, ready, limit, changed = asyncio.Lock(), asyncio.Event(), asyncio.Semaphore(2), asyncio.Condition()

        async def locked(name: str) -> None:
            async with lock:
                seen.append(f"{name} in")
                await asyncio.sleep(1)
                seen.append(f"{name} out")

        async def limited(name: str) -> None:
            await ready.wait()
            async with limit:
                seen.append(name)
                await asyncio.sleep(1)

        async def notified() -> None:
            async with changed:
                await changed.wait()
                seen.append("changed")

        async with asyncio.TaskGroup() as group:
            group.create_task(notified())
            for name in "xyz":
                group.create_task(limited(name))
            group.create_task(locked("a"))
            group.create_task(locked("b"))
            await asyncio.sleep(5)
            ready.set()
            async with changed:
                changed.notify_all()
        return seen

    order = owner.finish(main())
    assert order[:4] == ["a in", "a out", "b in", "b out"]
    assert [s for s in order if s in "xyz"] == ["x", "y", "z"]
    assert order == Owner().finish(main()), "and the same every time"


def test_shield_lets_the_inner_go_on(owner: Owner) -> None:
    seen: list[str] = []

    async def main() -> Any:
        inner = asyncio.create_task(after(5, "inner", seen))
        try:
            async with asyncio.timeout(1):
                await asyncio.shield(inner)
        except TimeoutError:
            seen.append("gave up")
        return await inner

    assert owner.finish(main()) == "inner"
    assert seen == ["gave up", "inner"]


def test_barrier_and_priority_queue(owner: Owner) -> None:
    async def main() -> Any:
        barrier, queue = asyncio.Barrier(3), asyncio.PriorityQueue[int]()

        async def arrive(n: int) -> int:
            await asyncio.sleep(n)
            await queue.put(-n)
            return await barrier.wait()

        places = await asyncio.gather(*(arrive(n) for n in (1, 2, 3)))
        return places, [queue.get_nowait() for _ in range(3)]

    assert owner.finish(main()) == ([0, 1, 2], [-3, -2, -1])


def test_as_completed_takes_tasks(owner: Owner) -> None:
    async def main() -> Any:
        tasks = [asyncio.create_task(after(n, n)) for n in (3, 1, 2)]
        return [await future for future in asyncio.as_completed(tasks)]

    assert owner.finish(main()) == [1, 2, 3]


def test_as_completed_refuses_bare_coroutines(owner: Owner) -> None:
    async def main() -> Any:
        coroutines = [after(n, n) for n in (3, 1, 2)]
        try:
            return [await future for future in asyncio.as_completed(coroutines)]
        finally:
            for coroutine in coroutines:
                coroutine.close()

    with pytest.raises(IOInWorkflow, match=r"create tasks first"):
        owner.finish(main())


def test_a_class_of_the_users_may_be_called_like_asyncios(owner: Owner) -> None:
    """Only asyncio's own as_completed is refused, not every `__init__` that makes a task."""

    class Runner:
        def __init__(self) -> None:
            self.task = asyncio.ensure_future(after(1, "made in __init__"))

    async def as_completed() -> Any:
        return await Runner().task

    assert owner.finish(as_completed()) == "made in __init__"


def test_contextvars_are_each_tasks_own(owner: Owner) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    async def child(n: int) -> int:
        variable.set(n)
        await asyncio.sleep(1)
        return variable.get()

    async def main() -> Any:
        return await asyncio.gather(child(1), child(2)), variable.get()

    assert owner.finish(main()) == ([1, 2], 0)


def test_timers_keep_the_order_of_their_due_times(owner: Owner) -> None:
    seen: list[int] = []

    async def main() -> None:
        await asyncio.gather(*(after(n, n, seen) for n in (5, 1, 4, 2, 3)))

    owner.finish(main())
    assert seen == [1, 2, 3, 4, 5]


def test_outer_loop_may_be_running(owner: Owner) -> None:
    """The engine activates from a callback of the real loop, which must be current again afterwards."""

    async def outside() -> tuple[Any, bool]:
        real = asyncio.get_running_loop()
        result: list[Any] = []
        real.call_soon(lambda: result.append(owner.finish(after(1, "inside"))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return result[0], asyncio.get_running_loop() is real

    assert asyncio.run(outside()) == ("inside", True)


def test_an_activation_may_be_asked_for_by_a_running_task(owner: Owner) -> None:
    """`testing.replay` in an async test: Python 3.14 lets no task step while another is the current one."""

    async def outside() -> tuple[Any, bool]:
        task = asyncio.current_task()
        async with asyncio.timeout(10):
            result = owner.finish(after(1, "inside"))
            await asyncio.sleep(0)
        return result, asyncio.current_task() is task

    assert asyncio.run(outside()) == ("inside", True)
    assert owner.reports == []


# --- async generators ------------------------------------------------------------------------------------------------


async def counting(name: str, seen: list[str]) -> AsyncGenerator[int, None]:
    try:
        for n in range(10):
            await asyncio.sleep(1)
            yield n
    finally:
        seen.append(f"{name} closed")


def test_garbage_collection_closes_no_generator(owner: Owner) -> None:
    seen: list[str] = []

    async def main() -> list[str]:
        for name in ("a", "b", "c"):
            async for _ in counting(name, seen):
                break
        gc.collect()
        await asyncio.sleep(1)
        gc.collect()
        return list(seen)

    assert owner.finish(main()) == []
    assert len(owner.loop.generators) == 3, "they wait for the end of the workflow, in order"
    hooks = sys.get_asyncgen_hooks()
    assert hooks.firstiter is None, "outside an activation the hooks are whoever's they were"
    generators = list(owner.loop.generators)

    async def close() -> None:
        for generator in generators:
            await generator.aclose()

    owner.finish(close())
    assert seen == ["a closed", "b closed", "c closed"]


def test_finished_generators_do_not_pile_up(owner: Owner) -> None:
    async def two() -> AsyncGenerator[int, None]:
        yield 1
        yield 2

    async def main() -> int:
        return sum([sum([n async for n in two()]) for _ in range(1000)])

    assert owner.finish(main()) == 3000
    assert len(owner.loop.generators) < 200


# --- what is refused -------------------------------------------------------------------------------------------------


async def to_thread() -> None:
    await asyncio.to_thread(print)


async def run_in_executor() -> None:
    await asyncio.get_running_loop().run_in_executor(None, print)


async def open_connection() -> None:
    await asyncio.open_connection("localhost", 1)


async def getaddrinfo() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 1)


async def start_server() -> None:
    await asyncio.start_server(lambda r, w: None, "localhost", 0)


async def subprocess() -> None:
    await asyncio.create_subprocess_exec("true")


async def shell() -> None:
    await asyncio.create_subprocess_shell("true")


async def add_reader() -> None:
    asyncio.get_running_loop().add_reader(0, print)


async def sock_recv() -> None:
    one, other = socket.socketpair()
    try:
        await asyncio.get_running_loop().sock_recv(one, 1)
    finally:
        one.close()
        other.close()


async def add_signal_handler() -> None:
    asyncio.get_running_loop().add_signal_handler(1, print)


async def call_soon_threadsafe() -> None:
    asyncio.get_running_loop().call_soon_threadsafe(print)


async def run_until_complete() -> None:
    coroutine = asyncio.sleep(0)
    try:
        asyncio.get_running_loop().run_until_complete(coroutine)
    finally:
        coroutine.close()


@pytest.mark.parametrize(
    "reach",
    [
        to_thread,
        run_in_executor,
        open_connection,
        getaddrinfo,
        start_server,
        subprocess,
        shell,
        add_reader,
        sock_recv,
        add_signal_handler,
        call_soon_threadsafe,
        run_until_complete,
    ],
)
def test_real_io_is_refused(owner: Owner, reach: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with pytest.raises(IOInWorkflow, match="move this into an activity"):
        owner.finish(reach())


def test_every_method_of_a_loop_works_or_is_refused() -> None:
    """Nothing falls through to AbstractEventLoop's bare NotImplementedError but what is about the loop itself."""
    known = set("set_task_factory get_task_factory get_exception_handler set_exception_handler set_debug".split())
    missing = {
        name
        for name, method in vars(asyncio.AbstractEventLoop).items()
        if not name.startswith("_") and callable(method) and getattr(WorkflowLoop, name, None) is method
    }
    assert missing <= known, missing - known


def test_nothing_is_scheduled_between_activations(owner: Owner) -> None:
    with pytest.raises(RuntimeError, match="while its instance is active"):
        owner.loop.call_soon(print)
    with pytest.raises(RuntimeError, match="while its instance is active"):
        owner.loop.call_later(1, print)


def test_endless_sleep_zero_is_capped(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MAX_CALLBACKS", 10_000)

    async def main() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(WorkflowStuck, match=r"endless loop around asyncio\.sleep\(0\)"):
        owner.start(main())
    for task in owner.loop.tasks.values():
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.get_coro().close()


def test_exceptions_nobody_fetched_are_reported_to_the_owner(owner: Owner) -> None:
    async def bad() -> None:
        raise ValueError("nobody looks")

    async def main() -> None:
        asyncio.create_task(bad())  # noqa: RUF006
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()

    owner.finish(main())
    gc.collect()
    assert [type(report["exception"]) for report in owner.reports] == [ValueError]


# --- nothing is bare -------------------------------------------------------------------------------------------------
METHODS = sorted(name for name in vars(asyncio.AbstractEventLoop) if not name.startswith("_"))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_works_or_refuses_in_words(owner: Owner, name: str) -> None:
    method = getattr(asyncio.AbstractEventLoop, name)
    parameters = list(inspect.signature(method).parameters.values())[1:]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty]

    async def nothing() -> None: ...

    def argument(of: str) -> Any:
        return {"coro": nothing, "delay": lambda: 1.0, "when": lambda: 1.0, "context": dict}.get(of, lambda: void)()

    def call() -> None:
        result = getattr(owner.loop, name)(*(argument(p.name) for p in needed))
        if inspect.iscoroutine(result):
            with pytest.raises(StopIteration):
                result.send(None)

    refusals: list[str] = []
    try:
        owner.loop.run(call)
    except IOInWorkflow as refusal:
        refusals.append(str(refusal))
    assert all(name in words and "activity" in words for words in refusals)


def test_tasks_of_different_instances_hash_differently_but_iterate_alike() -> None:
    """A table of a whole process can have them as keys: anyio's has."""
    loops = [Owner().loop, Owner().loop]
    for n, loop in enumerate(loops):
        loop.open(f"i-{n}")
    numbers = [[loop.next_number() for _ in range(40)] for loop in loops]
    for loop in loops:
        loop.release()
    assert not set(numbers[0]) & set(numbers[1])
    assert [numbers[0].index(n) for n in set(numbers[0])] == [numbers[1].index(n) for n in set(numbers[1])]
    assert [n & 0xFFFF for n in numbers[0]] == list(range(1, 41)), "histories of older versions depend on these bits"


def test_the_time_is_not_before_that_of_the_timer_that_rings(owner: Owner) -> None:
    """Dues are whole microseconds: 0.1 + 0.2 rings at 0.3, which is less. anyio compares, and would wait again."""
    seen: list[bool] = []

    async def main() -> None:
        with anyio.move_on_after(0.1 + 0.2) as scope:
            await asyncio.sleep(9)
        seen.append(scope.cancelled_caught)

    owner.start(main())
    timer = min(owner.timers, key=lambda t: t.when())
    owner.now = 0.3
    owner.loop.run(timer.ring)
    assert seen == [True]


def test_tasks_of_a_fork_hash_as_those_of_its_original() -> None:
    """Else a set of them could have another order, and the fork would not follow the history that it replays."""

    def hash_of_task(id: str, run: Run) -> int:
        instance = Instance(definition_of(sleepy), id, b"{}", 0, run=run)
        instance.begin()
        found = instance.loop.next_number()
        instance.evict()
        return found

    original = hash_of_task("a", Run(1, 0, 0))
    assert hash_of_task("b", Run(1, 0, 0, seeds=[(1, "a", 0), (2, "c", 0)])) == original
    assert hash_of_task("b", Run(1, 0, 0)) != original


@workflow
async def sleepy(ctx: WorkflowContext) -> None:
    await asyncio.sleep(1)
