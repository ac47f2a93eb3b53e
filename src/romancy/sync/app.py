"""The blocking app."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import ModuleType, TracebackType
from typing import Any, Never, ParamSpec, Self, TypeVar

from romancy.api.workflow import Workflow
from romancy.core.model import Duration
from romancy.core.payloads import PayloadCodec
from romancy.core.redaction import Redact
from romancy.core.retry import RetryPolicy
from romancy.errors import AppNotRunning, RomancyError
from romancy.hooks import HooksBase
from romancy.middleware import MiddlewareBase
from romancy.options import WITHOUT_HTTP, Database, HTTPSink, Retention, Sink, WorkerOptions, refuse
from romancy.service import Service, desk_of
from romancy.sync.verbs import Background, Blocking, blocking
from romancy.sync.within import Within

P = ParamSpec("P")
R = TypeVar("R")


class App(Blocking):
    """Your workflows on your database, for code that blocks. Safe to use from any number of threads.

    The arguments are those of `romancy.App`, except the HTTP ones: it does not serve HTTP. Start it in the process that
    uses it, because threads don't survive a fork. A program that ends without `stop()` looks like a crash to other
    workers: nothing is lost, and they take over.
    """

    def __init__(
        self,
        database: str | os.PathLike[str] | Database | None = None,
        *,
        workflows: Workflow[..., Any] | ModuleType | Sequence[Workflow[..., Any] | ModuleType] = (),
        state: Any = None,
        retry: RetryPolicy | None = None,
        hooks: HooksBase | Sequence[HooksBase] = (),
        middleware: MiddlewareBase | Sequence[MiddlewareBase] = (),
        sinks: Sequence[HTTPSink | Sink] = (),
        codec: PayloadCodec | None = None,
        redact: Sequence[str] | Redact | None = None,
        worker: bool | WorkerOptions = True,
        max_activities: int = 100,
        lease: Duration = timedelta(seconds=10),
        retention: Duration | Retention = timedelta(days=7),
        **unknown: Never,
    ) -> None:
        refuse(unknown)
        self._app = Service(
            database,
            workflows=workflows,
            state=state,
            retry=retry,
            hooks=hooks,
            middleware=middleware,
            sinks=sinks,
            codec=codec,
            redact=redact,
            tokens=WITHOUT_HTTP,
            worker=worker,
            max_activities=max_activities,
            lease=lease,
            retention=retention,
        )
        super().__init__(self._app)
        self._background: Background | None = None
        self._life = threading.Lock()

    def __repr__(self) -> str:
        return f"<sync {self._app!r}>"

    @property
    def database(self) -> str:
        """The URL or path of the database."""
        return self._app.database

    @property
    def is_running(self) -> bool:
        return self._app.is_running

    @property
    def workflows(self) -> Mapping[str, Workflow[..., Any]]:
        """The registered workflows, by name."""
        return self._app.workflows

    @property
    def background(self) -> Background:
        """The event loop and its thread. Internal."""
        if self._background is None:
            raise AppNotRunning("the app is not started; use `with app:` around the call, or app.start()")
        return self._background

    def register(self, *workflows: Workflow[..., Any] | ModuleType) -> None:
        """Register workflows, or modules with all the workflows in them."""

        async def register() -> None:
            self._app.register(*workflows)

        if self._background is None:
            self._app.register(*workflows)
        else:
            self._background.do(register)

    send_event = blocking(Service.send_event)
    send_events = blocking(Service.send_events)

    def within(self, connection: object, /, *, wake: bool = True) -> Within:
        """Return the verbs that take effect if and when the transaction of your own connection commits.

        >>> with transaction.atomic():
        ...     order.save()
        ...     app.within(connection).start_workflow(fulfil, order.id)

        It takes connections of psycopg 3, sqlite3, SQLAlchemy and Django, and SQLAlchemy sessions, and uses them in
        this thread. Otherwise it is as in `romancy.App`.
        """
        self.background.check()
        return Within(self, desk_of(self._app, wake), connection)

    # --- life --------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Open the database and start to work, in a thread. `with app:` does it for you."""
        with self._life:
            if self._background is not None:
                raise RomancyError("the app is already running")
            background = Background("app")
            try:
                background.do(self._app.start)
            except BaseException:
                background.close()
                raise
            self._background = background

    def stop(self) -> None:
        """Finish running work or hand it back, store everything, close the database. Do nothing if not running."""
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
        """Register, start and run a workflow to its end, then stop. For scripts."""
        self.register(wf)
        with self:
            return self.start_workflow(wf, *args, **kwargs).result()
