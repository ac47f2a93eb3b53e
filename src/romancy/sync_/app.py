"""The same app for code that does not await: Flask, Django, threads, scripts. Every verb blocks.

>>> from romancy.sync import App
>>> with App("workflow.db", workflows=[payment]) as app:
...     handle = app.start_workflow(payment, "ORD-1", instance_id="order-1")
...     app.send_event("payment.completed.ORD-1", "bank", {"status": "success"})
...     print(handle.result(timeout=10))

The engine runs on an event loop in a thread of its own. Workflows are `async def` as ever; activities may be both.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from types import ModuleType, TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, TypeVarTuple, overload

from romancy.api.context import WorkflowContext
from romancy.api.workflow import Workflow
from romancy.app import App as AsyncApp
from romancy.core.model import Attribute, Duration, Status
from romancy.core.registry import WorkflowDefinition
from romancy.core.retry import RetryPolicy
from romancy.errors import AppNotRunning, RomancyError
from romancy.handle import WorkflowHandle as AsyncHandle
from romancy.hooks import HooksBase
from romancy.records import EventRecord, HistoryEntry, Instance, Page, Receipt, Wait

__all__ = ["App", "WorkflowHandle"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
Ts = TypeVarTuple("Ts")


class _Background:
    """An event loop in a thread of its own, and the way to have something done there."""

    def __init__(self) -> None:
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
        """Refuse what could never be answered."""
        if threading.current_thread() is self._thread:
            raise RomancyError(
                "romancy.sync.App was called on its own event loop, where it would wait for itself: in a workflow use "
                "ctx, in an `async def` activity use send_event(ctx, ...), or make the activity a plain `def`"
            )
        if os.getpid() != self._process:
            raise AppNotRunning("the app was started before this process was forked; start it after the fork")

    def do(self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine over there and wait for it; giving up the wait (Ctrl-C) cancels it."""
        self.check()
        with self._door:  # what comes in before the door closes is run or cancelled, never forgotten
            if self._closed:
                raise AppNotRunning(_STOPPED)
            future = asyncio.run_coroutine_threadsafe(work(*args, **kwargs), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise AppNotRunning(_STOPPED) from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        with self._door:
            self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


_STOPPED = "the app was stopped meanwhile; use `with app:` around the call"


class WorkflowHandle(Generic[R_co]):
    """What `app.start_workflow` returns. `created` is false if the instance was there already."""

    def __init__(self, app: App, handle: AsyncHandle[R_co]) -> None:
        self.instance_id = handle.instance_id
        self.created = handle.created
        self._app, self._handle = app, handle

    def __repr__(self) -> str:
        return f"<WorkflowHandle {self.instance_id!r}>"

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end: the workflow's return value, or `WorkflowFailed`, `WorkflowCancelled`, `WorkflowBlocked`.

        `TimeoutError` after `timeout`; the instance goes on.
        """
        return self._app.background.do(self._handle.result, timeout)

    def status(self) -> Status:
        """How it stands now."""
        return self._app.background.do(self._handle.status)

    def cancel(self, reason: str | None = None) -> None:
        """Ask it to stop; its code sees `asyncio.CancelledError` and may clean up."""
        self._app.background.do(self._handle.cancel, reason)


class App:
    """Your workflows on your database, for code that blocks. Safe to use from any number of threads.

    The arguments are those of `romancy.App`. Start it in the process that uses it: threads don't survive a fork. A
    program that ends without `stop()` is to the others one that crashed: nothing is lost, they take over.
    """

    def __init__(
        self,
        database: str | os.PathLike[str] | None = None,
        *,
        workflows: Sequence[Workflow[..., Any] | ModuleType] = (),
        hooks: HooksBase | Sequence[HooksBase] = (),
        worker: bool = True,
        retry: RetryPolicy | None = None,
        state: Any = None,
        tokens: Sequence[str] = (),
        max_activities: int = 100,
        retention: Duration = timedelta(days=7),
        lease: Duration = timedelta(seconds=10),
        durability: str = "full",
        max_resident: int = 10_000,
        grace: Duration = timedelta(seconds=10),
    ) -> None:
        self._app = AsyncApp(
            database,
            workflows=workflows,
            hooks=hooks,
            worker=worker,
            retry=retry,
            state=state,
            tokens=tokens,
            max_activities=max_activities,
            retention=retention,
            lease=lease,
            durability=durability,
            max_resident=max_resident,
            grace=grace,
        )
        self._background: _Background | None = None
        self._life = threading.Lock()

    def __repr__(self) -> str:
        return f"<sync {self._app!r}>"

    @property
    def database(self) -> str:
        """Where everything is kept."""
        return self._app.database

    @property
    def workflows(self) -> Mapping[str, WorkflowDefinition]:
        """What is registered, by name."""
        return self._app.workflows

    @property
    def background(self) -> _Background:
        """The machinery; not for everyday use."""
        if self._background is None:
            raise AppNotRunning("the app is not started; use `with app:` around the call, or app.start()")
        return self._background

    def register(self, *workflows: Workflow[..., Any] | ModuleType) -> None:
        """Make workflows known: workflows themselves, or modules with all the workflows in them."""

        async def register() -> None:
            self._app.register(*workflows)

        if self._background is None:
            self._app.register(*workflows)
        else:
            self._background.do(register)

    # --- life --------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Open the database and begin to work, in a thread; `with app:` does it for you."""
        with self._life:
            if self._background is not None:
                raise RomancyError("the app is running already")
            background = _Background()
            try:
                background.do(self._app.start)
            except BaseException:
                background.close()
                raise
            self._background = background

    def stop(self) -> None:
        """Finish or hand back what runs, store everything, close the database. Not running: nothing."""
        if self._background is not None:
            self._background.check()
        with self._life:
            background = self._background
            if background is None:
                return
            try:
                background.do(self._app.stop)
            finally:
                self._background = None
                background.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.stop()

    def run(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """For scripts: register, start, run to the end, stop."""
        self.register(wf)
        with self:
            return self.start_workflow(wf, *args, **kwargs).result()

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
        """Start an instance; returns when it is stored. The same id, workflow and input again: the existing one."""
        start: Callable[..., Coroutine[Any, Any, AsyncHandle[Any]]] = self._app.start_workflow
        return WorkflowHandle[Any](self, self.background.do(start, wf, *args, **kwargs))

    @overload
    def handle(self, instance_id: str, wf: Workflow[..., R], /) -> WorkflowHandle[R]: ...
    @overload
    def handle(self, instance_id: str, /) -> WorkflowHandle[Any]: ...
    def handle(self, instance_id: str, wf: Workflow[..., Any] | None = None, /) -> WorkflowHandle[Any]:
        """A handle on an instance started earlier, perhaps by another process."""
        return WorkflowHandle(self, self._app.handle(instance_id, wf) if wf else self._app.handle(instance_id))

    # --- events, cancel, resume --------------------------------------------------------------------------------------
    def send_event(
        self,
        type: str,
        source: str,
        data: object = None,
        *,
        subject: str | None = None,
        id: str | None = None,
        to: str | None = None,
        extensions: Mapping[str, Attribute] | None = None,
    ) -> Receipt:
        """Send an event; returns when it is stored for good. The same `(source, id)` again is a duplicate."""
        send = self._app.send_event
        return self.background.do(send, type, source, data, subject=subject, id=id, to=to, extensions=extensions)

    def cancel_workflow(self, instance_id: str, *, reason: str | None = None) -> None:
        """Cancel an instance: its code sees `asyncio.CancelledError` and may clean up. Finished already: nothing."""
        self.background.do(self._app.cancel_workflow, instance_id, reason=reason)

    def resume_workflow(self, instance_id: str) -> None:
        """Try a blocked instance again, after its code was mended. Not blocked: nothing."""
        self.background.do(self._app.resume_workflow, instance_id)

    # --- reading -----------------------------------------------------------------------------------------------------
    def get_instance(self, instance_id: str) -> Instance:
        """One instance with what it waits for."""
        return self.background.do(self._app.get_instance, instance_id)

    def list_instances(
        self,
        *,
        status: Status | Collection[Status] = (),
        workflow: str | None = None,
        text: str | None = None,
        started_after: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Instance]:
        """Instances, newest first."""
        return self.background.do(
            self._app.list_instances,
            status=status,
            workflow=workflow,
            text=text,
            started_after=started_after,
            limit=limit,
            cursor=cursor,
        )

    def list_waits(
        self, *, instance_id: str | None = None, type: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Wait]:
        """What instances wait for, by instance."""
        return self.background.do(self._app.list_waits, instance_id=instance_id, type=type, limit=limit, cursor=cursor)

    def list_events(
        self,
        *,
        type: str | None = None,
        instance_id: str | None = None,
        unmatched: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[EventRecord]:
        """The event log, newest first, with who received each."""
        read = self._app.list_events
        return self.background.do(
            read, type=type, instance_id=instance_id, unmatched=unmatched, limit=limit, cursor=cursor
        )

    def get_history(self, instance_id: str) -> list[HistoryEntry]:
        """Everything recorded of an instance, in order; the first entry is its start."""
        return self.background.do(self._app.get_history, instance_id)
