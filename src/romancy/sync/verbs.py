"""The blocking verbs, for apps and clients alike. They run on an event loop in another thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, TypeVarTuple, overload

from romancy.api.context import WorkflowContext
from romancy.api.workflow import Workflow
from romancy.core.model import Duration, Status
from romancy.core.schedules import Schedule
from romancy.emission_records import Emission, check_wanted
from romancy.errors import AppNotRunning, RomancyError
from romancy.reruns import Steps
from romancy.service import Service
from romancy.verbs import Handle, Verbs

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
Ts = TypeVarTuple("Ts")


class Background:
    """An event loop in its own thread, and a way to run coroutines there. `whose` is "app" or "client"."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._door = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="romancy", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    def check(self) -> None:
        """Raise an error for a call that would never return."""
        if threading.current_thread() is self._thread:
            raise RomancyError(
                f"romancy.sync.{self._whose.title()} was called on its own event loop, where it would wait for itself: "
                "in a workflow use ctx, in an `async def` activity use send_event(ctx, ...), or make the activity a "
                "plain `def`"
            )
        if os.getpid() != self._process:
            raise AppNotRunning(
                f"the {self._whose} was started before this process was forked; start it after the fork"
            )

    def do(self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine in the thread and wait for it. Interrupting the wait (Ctrl-C) cancels it."""
        self.check()
        with self._door:  # coroutines submitted before `close` are run or cancelled, never forgotten
            if self._closed:
                raise AppNotRunning(self._stopped)
            future = asyncio.run_coroutine_threadsafe(work(*args, **kwargs), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise AppNotRunning(self._stopped) from None
        except BaseException:
            future.cancel()
            raise

    @property
    def is_open(self) -> bool:
        return not self._closed

    def close(self) -> None:
        with self._door:
            self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def _stopped(self) -> str:
        return f"the {self._whose} was stopped; use `with {self._whose}:` around the call"


class WorkflowHandle(Generic[R_co]):
    """Returned by `start_workflow`. `created` is false if the instance already existed."""

    def __init__(self, owner: Blocking, handle: Handle[R_co]) -> None:
        self.instance_id = handle.instance_id
        self.created = handle.created
        self._owner, self._handle = owner, handle

    def __repr__(self) -> str:
        return f"<WorkflowHandle {self.instance_id!r}>"

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the workflow to end and return its result.

        Raise `WorkflowFailed`, `WorkflowCancelled` or `WorkflowBlocked` if there is none, and `TimeoutError` after
        `timeout`; the instance then keeps running.
        """
        return self._owner.background.do(self._handle.result, timeout)

    def status(self) -> Status:
        """Return the current status."""
        return self._owner.background.do(self._handle.status)

    @overload
    def view(self, model: type[T], /) -> T: ...
    @overload
    def view(self, /) -> Any: ...
    def view(self, model: Any = Any, /) -> Any:
        """Return what the workflow last gave to `ctx.set_view`; None if it has not set a view."""
        return self._owner.background.do(self._handle.view, model)

    @overload
    def emitted(self, topic: str | None = None, /, *, model: type[T], after: int = 0) -> Iterator[Emission[T]]: ...
    @overload
    def emitted(self, topic: str | None = None, /, *, after: int = 0) -> Iterator[Emission[Any]]: ...
    def emitted(self, topic: str | None = None, /, *, model: Any = Any, after: int = 0) -> Iterator[Emission[Any]]:
        """Return what the instance has emitted on a topic, or on all, and then emits, until it has ended.

        >>> for emission in handle.emitted("tokens", model=str, after=seen):
        ...     print(emission.n, emission.value)
        """
        check_wanted(topic, after)

        async def begin() -> AsyncIterator[Emission[Any]]:
            return self._handle.emitted(topic, model=model, after=after)

        return _each(self._owner.background, self._owner.background.do(begin))

    def cancel(self, reason: str | None = None) -> bool:
        """Request cancellation; the code sees `asyncio.CancelledError` and can clean up. False if already ended."""
        return self._owner.background.do(self._handle.cancel, reason)

    def retry(self) -> WorkflowHandle[R_co]:
        """Let the instance go on after it failed or was cancelled, as `retry_workflow` does. Return a handle."""
        return WorkflowHandle(self._owner, self._owner.background.do(self._handle.retry))


def _each(background: Background, source: AsyncIterator[T]) -> Iterator[T]:
    """Yield what comes from the event loop, one after the other."""
    over = object()

    async def following() -> Any:
        return await anext(source, over)

    async def close() -> None:
        if isinstance(source, AsyncGenerator):
            await source.aclose()

    try:
        while (item := background.do(following)) is not over:
            yield item
    finally:
        if background.is_open:
            background.do(close)


def blocking(verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a blocking verb with the same arguments and result."""

    @wraps(verb)
    def call(self: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.background.do(getattr(self._verbs, verb.__name__), *args, **kwargs)  # pyright: ignore[reportPrivateUsage]

    return call


class Blocking(ABC):
    """The verbs of an app or a client, for code that blocks."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    @property
    @abstractmethod
    def background(self) -> Background:
        """The event loop and its thread. Internal."""

    # --- starting ----------------------------------------------------------------------------------------------------
    @overload
    def start_workflow(
        self,
        wf: Callable[[WorkflowContext, *Ts], Coroutine[Any, Any, R]],
        /,
        *args: *Ts,
        instance_id: str | None,
    ) -> WorkflowHandle[R]: ...
    @overload
    def start_workflow(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]: ...
    @overload
    def start_workflow(
        self, wf: str, /, *args: Any, instance_id: str | None = None, **kwargs: Any
    ) -> WorkflowHandle[Any]: ...
    def start_workflow(self, wf: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Start an instance and return when it is stored. The same id, workflow and input return the existing one."""
        start: Callable[..., Coroutine[Any, Any, Handle[Any]]] = self._verbs.start_workflow
        return WorkflowHandle[Any](self, self.background.do(start, wf, *args, **kwargs))

    @overload
    def handle(self, instance_id: str, wf: Workflow[..., R], /) -> WorkflowHandle[R]: ...
    @overload
    def handle(self, instance_id: str, /) -> WorkflowHandle[Any]: ...
    def handle(self, instance_id: str, wf: Workflow[..., Any] | None = None, /) -> WorkflowHandle[Any]:
        """Return a handle for an instance started earlier, perhaps by another process."""
        return WorkflowHandle(self, self._verbs.handle(instance_id, wf) if wf else self._verbs.handle(instance_id))

    @overload
    def retry_workflow(
        self, instance_id: str, wf: Workflow[..., R], /, *, steps: Steps = None
    ) -> WorkflowHandle[R]: ...
    @overload
    def retry_workflow(self, instance_id: str, /, *, steps: Steps = None) -> WorkflowHandle[Any]: ...
    @wraps(Service.retry_workflow)
    def retry_workflow(
        self, instance_id: str, wf: Workflow[..., Any] | None = None, /, *, steps: Steps = None
    ) -> WorkflowHandle[Any]:
        retry, do = self._verbs.retry_workflow, self.background.do
        handle = do(retry, instance_id, steps=steps) if wf is None else do(retry, instance_id, wf, steps=steps)
        return WorkflowHandle[Any](self, handle)

    def fork_workflow(self, instance_id: str, /, *, at: int = 0, new_id: str | None = None) -> WorkflowHandle[Any]:
        """Start a new instance that begins with the history of another one, up to the entry with the number `at`."""
        return WorkflowHandle[Any](
            self, self.background.do(self._verbs.fork_workflow, instance_id, at=at, new_id=new_id)
        )

    cancel_workflow = blocking(Service.cancel_workflow)
    resume_workflow = blocking(Service.resume_workflow)
    cancel_workflows = blocking(Service.cancel_workflows)
    resume_workflows = blocking(Service.resume_workflows)
    retry_workflows = blocking(Service.retry_workflows)
    get_instance = blocking(Service.get_instance)
    get_history = blocking(Service.get_history)
    list_instances = blocking(Service.list_instances)
    count_instances = blocking(Service.count_instances)
    list_queues = blocking(Service.list_queues)
    list_waits = blocking(Service.list_waits)
    list_events = blocking(Service.list_events)

    # --- schedules ---------------------------------------------------------------------------------------------------
    def set_schedule(
        self, name: str, schedule: str | Schedule, wf: Workflow[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Start a workflow again and again, with these arguments. The same name again changes the schedule."""
        self.background.do(self._verbs.set_schedule, name, schedule, wf, *args, **kwargs)

    def trigger_schedule(self, name: str) -> WorkflowHandle[Any]:
        """Start an instance of a schedule now, even if it is paused or one is running. Its ticks stay as they are."""
        return WorkflowHandle[Any](self, self.background.do(self._verbs.trigger_schedule, name))

    pause_schedule = blocking(Service.pause_schedule)
    resume_schedule = blocking(Service.resume_schedule)
    delete_schedule = blocking(Service.delete_schedule)
    list_schedules = blocking(Service.list_schedules)

    # --- what is kept aside ------------------------------------------------------------------------------------------
    list_inbox = blocking(Service.list_inbox)
    forget_refused = blocking(Service.forget_refused)
    list_held_events = blocking(Service.list_held_events)

    # --- questions ---------------------------------------------------------------------------------------------------
    list_questions = blocking(Service.list_questions)
    answer_question = blocking(Service.answer_question)

    # --- operators ---------------------------------------------------------------------------------------------------
    list_workers = blocking(Service.list_workers)
    retry_now = blocking(Service.retry_now)

    # --- sinks -------------------------------------------------------------------------------------------------------
    list_sinks = blocking(Service.list_sinks)
    list_dead_letters = blocking(Service.list_dead_letters)
    retry_dead_letters = blocking(Service.retry_dead_letters)
