"""A deterministic event loop: a ready queue, no clock of its own, no I/O.

Every instance has its own loop. It runs only inside an activation (`run`), in first-in-first-out order, so the same
history always leads to the same callbacks. Timers become durable operations of the instance. Everything that would
touch the outside world raises an error that says to move it into an activity.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from asyncio import events, tasks
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from types import CoroutineType, FrameType
from typing import Any, Protocol, TypeVar
from zlib import crc32

from romancy.core import anyio_backend, budget
from romancy.core.culprits import Tag, blame_limit
from romancy.core.scope import current_scope
from romancy.errors import IOInWorkflow, WorkflowStuck

T = TypeVar("T")
MAX_CALLBACKS = 1_000_000
"""Maximum callbacks in one activation; more means that the code never waits for anything (an endless `sleep(0)`)."""


# Shared by the many loops that only wait, and never changed.
_NOTHING: deque[asyncio.Handle] = deque(maxlen=0)
_NO_TASKS: dict[int, NumberedTask[Any]] = {}
_NO_GENERATORS: list[AsyncGenerator[Any, Any]] = []


class LoopOwner(Protocol):
    """The part of the instance that the loop uses."""

    def seconds(self) -> float: ...
    def arm(self, timer: TimerHandle) -> None: ...
    def disarm(self, timer: TimerHandle) -> None: ...
    def report(self, context: dict[str, Any]) -> None: ...
    def exceed(self, problem: str) -> None: ...


class TimerHandle(asyncio.TimerHandle):
    """The handle of a `call_at`. The instance keeps its due time as a durable timer."""

    operation: str | None = None

    def ring(self, tag: Tag | None = None) -> None:
        if not self.cancelled():
            if tag is not None:
                blame_limit(self._callback, tag)  # type: ignore[attr-defined]
            self._loop.rung_at = self._when  # type: ignore[attr-defined]
            self._run()  # type: ignore[attr-defined]


class _ReadyHandle(asyncio.Handle):
    """The handle of a `call_soon`. There is no debug mode, so it is simpler than its base class."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., Any], args: Sequence[Any], loop: WorkflowLoop, context: Context | None
    ) -> None:
        self._callback, self._args, self._loop = callback, args, loop
        self._context = copy_context() if context is None else context
        self._cancelled, self._repr, self._source_traceback = False, None, None


class NumberedFuture(asyncio.Future[T]):
    """Hashes by creation order, so that sets of futures iterate the same on every run."""

    __slots__ = ("_number",)

    def __init__(self, *, loop: WorkflowLoop) -> None:
        self._number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class NumberedTask(asyncio.Task[T]):
    """Hashes by creation order, because `TaskGroup` and `asyncio.wait` keep tasks in sets and iterate over them."""

    __slots__ = ("_number", "scope")

    def __init__(self, coro: Coroutine[Any, Any, T], *, loop: WorkflowLoop, **options: Any) -> None:
        context: Context | None = options.get("context")
        self.scope = current_scope.get(None) if context is None else context.get(current_scope)
        """The innermost `saga` block in which it was created. The task itself may enter others."""
        # asyncio adds every new task to one process-wide set. Small equal hashes from thousands of instances would
        # make that set slow, so the task hashes by its address until it is removed from the set.
        self._number = object.__hash__(self)
        super().__init__(coro, loop=loop, **options)
        tasks._unregister_task(self)  # type: ignore[attr-defined]
        self._number = loop.next_number()

    def __hash__(self) -> int:
        return self._number


class WorkflowLoop(asyncio.AbstractEventLoop):
    """Runs the tasks of one instance until nothing is ready."""

    # Thousands of loops are in memory.
    __slots__ = ("_is_open", "_owner", "_ready", "generators", "halted", "last_number", "rung_at", "running", "tasks")

    def __init__(self, owner: LoopOwner) -> None:
        self._owner = owner
        self._ready: deque[asyncio.Handle] = _NOTHING
        self.running = self._is_open = False
        self.last_number = 0
        self.rung_at = 0.0
        """When the last timer was due. Dues are rounded to microseconds: the time must not be before them, or anyio,
        which compares, would wait again."""
        self.halted = False
        """The code left its history and must not run any further."""
        self.tasks = _NO_TASKS
        """The unfinished tasks, except the root: asyncio only has weak references to them."""
        self.generators = _NO_GENERATORS

    # --- the asyncio loop interface ---------------------------------------------------------------------------------
    get_debug = staticmethod(bool)  # pyright: ignore[reportAssignmentType]
    """Return False. Every future asks, so this is a function in C."""

    def is_running(self) -> bool:
        return self.running

    def is_closed(self) -> bool:
        return False

    def time(self) -> float:
        return max(self._owner.seconds(), self.rung_at)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        if not self.running:
            raise RuntimeError("workflow code can only be scheduled while its instance is active")
        handle = _ReadyHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if not self.running:
            raise RuntimeError("workflow code can only be scheduled while its instance is active")
        handle = TimerHandle(when, callback, args, self, context)
        self._owner.arm(handle)
        return handle

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._owner.disarm(handle)

    def create_future(self) -> asyncio.Future[Any]:
        return NumberedFuture(loop=self)

    def create_root(self, coro: Coroutine[Any, Any, T], name: str, context: Context) -> asyncio.Task[T]:
        """Create the task of the workflow's own code. The caller keeps it."""
        return NumberedTask(coro, loop=self, name=name, context=context)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if caller.f_code is _CREATE_TASK and caller.f_back is not None:
            caller = caller.f_back
        if caller.f_code.co_name == anyio_backend.SPAWN:
            anyio_backend.order_scopes(caller)
        elif caller.f_code is _ENSURE_FUTURE:
            _refuse_as_completed(caller, coro)
        if len(self.tasks) >= budget.MAX_TASKS:
            coro.close()
            self._owner.exceed(f"created {budget.MAX_TASKS:,} tasks")
        task: NumberedTask[Any] = NumberedTask(coro, loop=self, **options)
        if self.tasks:
            self.tasks[hash(task)] = task
        else:
            self.tasks = {hash(task): task}
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(hash(task), None)

    def _adopt(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self.generators:
            self.generators = [generator]
            return
        if len(self.generators) % 64 == 63:
            open_ones = [g for g in self.generators if getattr(g, "ag_frame", None) is not None]
            self.generators[:] = open_ones
        self.generators.append(generator)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._owner.report(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self._owner.report(context)

    def get_task_factory(self) -> None:
        """Return None: tasks are created by the loop itself."""

    def get_exception_handler(self) -> None:
        """Return None: what the loop can't handle goes to the log."""

    def next_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def open(self, name: str) -> None:
        """Code is about to begin. `release` must be called in the end.

        `name`: of the instance. A fork has that of its original, because it replays the history of that.
        """
        anyio_backend.prepare(_is_in_workflow)
        # anyio has a table of all tasks of the process, and thousands of equal hashes would make it slow. The same if
        # anyio is not there: the order in large sets depends on all bits of a hash.
        self.last_number = (crc32(name.encode("utf-8", "surrogatepass")) & 0xFFFFF) << 40
        self._is_open = True
        _gathering.begin()

    def release(self) -> None:
        """Release everything; the instance is no longer needed."""
        self.tasks, self.generators = _NO_TASKS, _NO_GENERATORS
        self._owner = _NOBODY
        if self._is_open:
            self._is_open = False
            _gathering.end()

    # --- running ----------------------------------------------------------------------------------------------------
    def run(self, first: Callable[..., None], *args: Any) -> None:
        """Run one activation: call `first`, then everything that becomes ready, until nothing is."""
        outer = events._get_running_loop()  # type: ignore[attr-defined]
        task = _set_current_task(outer, None) if _HAS_ONE_CURRENT_TASK else None
        hooks = sys.get_asyncgen_hooks()
        events._set_running_loop(self)  # type: ignore[attr-defined]
        sys.set_asyncgen_hooks(self._adopt, _leave_alone)
        self._ready = deque()  # only while running: most loops in memory are waiting
        self.running = True
        try:
            first(*args)
            self._drain()
        finally:
            self.running = False
            self._ready = _NOTHING
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(outer)  # type: ignore[attr-defined]
            if _HAS_ONE_CURRENT_TASK:
                _set_current_task(outer, task)

    def drop_ready(self) -> None:
        """Forget everything that is ready."""
        self._ready.clear()

    def _drain(self) -> None:
        ready, callbacks = self._ready, 0
        while ready:
            handle = ready.popleft()
            if not handle._cancelled:  # type: ignore[attr-defined]
                try:
                    handle._run()  # type: ignore[attr-defined]
                except SystemExit:
                    continue  # a task of the workflow raised it; code that awaits the task sees it
            if self.halted:
                return
            callbacks += 1
            if callbacks > MAX_CALLBACKS:
                raise WorkflowStuck(
                    f"the workflow took {MAX_CALLBACKS} steps without waiting for anything; "
                    "is there an endless loop around asyncio.sleep(0)?"
                )


class _Nobody:
    """Replaces the instance of a released loop. All methods do nothing."""

    def seconds(self) -> float:
        return 0.0

    def arm(self, timer: TimerHandle) -> None: ...
    def disarm(self, timer: TimerHandle) -> None: ...
    def report(self, context: dict[str, Any]) -> None: ...
    def exceed(self, problem: str) -> None: ...


_NOBODY = _Nobody()
_HAS_ONE_CURRENT_TASK = sys.version_info >= (3, 14)
"""Whether a thread has one current task for all its loops, so that no other task can run a step meanwhile."""


def _set_current_task(loop: asyncio.AbstractEventLoop | None, task: asyncio.Task[Any] | None) -> Any:
    """Make `task` the current task of the outer loop, and return the previous one.

    A task can start an activation (`testing.replay` in an async test), so it must not be the current task then.
    """
    return None if loop is None else tasks._swap_current_task(loop, task)  # type: ignore[attr-defined]


def _leave_alone(generator: AsyncGenerator[Any, Any]) -> None:
    """Do nothing on garbage collection: open generators are closed at the end of the workflow."""


def _refuse_as_completed(caller: FrameType, coro: Coroutine[Any, Any, Any]) -> None:
    """Reject `as_completed` with bare coroutines: it starts them in the order of a set, which varies."""
    frame: FrameType | None = caller
    for _ in range(4):
        frame = frame.f_back
        if frame is None or frame.f_code.co_filename != tasks.__file__:
            return
        if frame.f_code.co_name in ("as_completed", "_AsCompletedIterator.__init__", "__init__"):
            coro.close()
            raise IOInWorkflow(
                "asyncio.as_completed starts bare coroutines in no fixed order; "
                "create tasks first: as_completed([asyncio.create_task(c) for c in ...])"
            )


def _number_of_gather(future: Any) -> int:
    """Hash by creation order, too: `asyncio.gather` creates its future without the loop."""
    loop = future.get_loop()
    if not isinstance(loop, WorkflowLoop):
        return object.__hash__(future)
    number: int | None = getattr(future, "_number", None)
    if number is None:
        number = future._number = loop.next_number()
    return number


class _Gathering:
    """Futures of `asyncio.gather` hash by number while workflow loops are open, and as usual while none is.

    Loops are counted, not activations: there are far fewer.
    """

    def __init__(self) -> None:
        self._lock, self._loops = threading.Lock(), 0

    def begin(self) -> None:
        with self._lock:
            self._loops += 1
            if self._loops == 1:
                tasks._GatheringFuture.__hash__ = _number_of_gather  # type: ignore[attr-defined]

    def end(self) -> None:
        with self._lock:
            self._loops -= 1
            if not self._loops:
                del tasks._GatheringFuture.__hash__  # type: ignore[attr-defined]


_gathering = _Gathering()
_CREATE_TASK = tasks.create_task.__code__
_ENSURE_FUTURE = getattr(tasks, "_ensure_future", tasks.ensure_future).__code__


def _is_in_workflow() -> bool:
    return isinstance(events._get_running_loop(), WorkflowLoop)  # type: ignore[attr-defined]


_OUTSIDE = (
    "call_soon_threadsafe run_in_executor set_default_executor add_reader remove_reader add_writer remove_writer "
    "sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into sock_sendall sock_sendto sock_connect sock_accept "
    "sock_sendfile create_connection create_server create_unix_connection create_unix_server start_tls sendfile "
    "create_datagram_endpoint connect_accepted_socket connect_read_pipe connect_write_pipe subprocess_shell "
    "subprocess_exec getaddrinfo getnameinfo add_signal_handler remove_signal_handler run_until_complete run_forever "
    "stop close shutdown_asyncgens shutdown_default_executor"
).split()
_SETTINGS = "set_debug set_exception_handler set_task_factory".split()


def _refusal(name: str, why: str) -> Callable[..., Any]:
    def refuse(self: WorkflowLoop, *args: Any, **kwargs: Any) -> Any:
        for argument in args:
            if isinstance(argument, CoroutineType):
                argument.close()  # otherwise Python also warns that it was never awaited
        raise IOInWorkflow(f"workflow code called {name}(), {why}")

    return refuse


for _name in _OUTSIDE:
    setattr(WorkflowLoop, _name, _refusal(_name, "which acts outside the workflow; move this into an activity"))
for _name in _SETTINGS:
    _why = "but the event loop of a workflow can't be configured; do that in an activity or outside, where asyncio runs"
    setattr(WorkflowLoop, _name, _refusal(_name, _why))
WorkflowLoop.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
