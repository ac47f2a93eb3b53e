"""The app, blocking."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import ModuleType, TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from romancy.api.workflow import Workflow
from romancy.core.model import Duration
from romancy.core.registry import WorkflowDefinition
from romancy.core.retry import RetryPolicy
from romancy.errors import AppNotRunning, RomancyError
from romancy.hooks import HooksBase
from romancy.service import Service
from romancy.sync.verbs import Background, Blocking

P = ParamSpec("P")
R = TypeVar("R")


class App(Blocking):
    """Your workflows on your database, for code that blocks. Safe to use from any number of threads.

    The arguments are those of `romancy.App`, but for those of the web: it is none for ASGI servers. Start it in
    the process that uses it: threads don't survive a fork. A program that ends without `stop()` is to the others one
    that crashed: nothing is lost, they take over.
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
        schema: str | None = None,
        notify_url: str | None = None,
    ) -> None:
        self._app = Service(
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
            schema=schema,
            notify_url=notify_url,
        )
        super().__init__(self._app)
        self._background: Background | None = None
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
    def background(self) -> Background:
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
            background = Background("app")
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
