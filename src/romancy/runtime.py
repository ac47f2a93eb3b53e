"""The parts of an app: its options, workflows, storage and engine, and how they start and stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from romancy.api.context import WorkflowContext
from romancy.core.clock import Clock, SystemClock
from romancy.core.instance import current
from romancy.core.payloads import PayloadCodec
from romancy.core.redaction import Redact
from romancy.core.registry import Registry
from romancy.core.retry import Policies, RetryPolicy
from romancy.core.sinks import Outlet
from romancy.core.tickets import Links
from romancy.engine import Engine
from romancy.engine.around import Around
from romancy.engine.build import choose_build
from romancy.engine.timers import WINDOW
from romancy.errors import AppNotRunning, RomancyError, TerminalError
from romancy.hooks import HooksBase
from romancy.middleware import MiddlewareBase
from romancy.options import Database, HTTPOptions, Retention, Webhook, WorkerOptions, seconds
from romancy.storage import open_storage
from romancy.storage.errors import SealedDatabase
from romancy.storage.guests import Inbox
from romancy.storage.protocol import Storage
from romancy.storage.urls import shown, usual_schema
from romancy.tokens import Credential

_logger = logging.getLogger("romancy")


@dataclass(eq=False, repr=False, kw_only=True)
class Runtime:
    """The parts of one app. Users see only the verbs; the interfaces use this."""

    database: Database
    works: bool
    """Whether this app runs workflows. `romancy worker` and `romancy run` set it, whatever the app says."""
    worker: WorkerOptions
    hooks: Sequence[HooksBase]
    middleware: Sequence[MiddlewareBase]
    retry: RetryPolicy
    state: Any
    tokens: Sequence[Credential]
    http: HTTPOptions
    public_url: str | None
    webhooks: Sequence[Webhook]
    links: Links
    sinks: Sequence[Outlet]
    max_activities: int
    lease: int
    retention: Retention
    codec: PayloadCodec | None = None
    """Seals the values in the database."""
    redact: Redact | None = None
    """Hides parts of values from people."""
    registry: Registry = field(default_factory=Registry)
    clock: Clock = field(default_factory=SystemClock)
    timer_window: int = WINDOW
    storage: Storage | None = None
    """A storage that is already open and stays open. If None, one is opened and closed with the app."""
    creates: bool = True
    """Whether to create the tables in an empty database, and say what starts its workflows. Readers should not."""
    _engine: Engine | None = None
    _owns_storage: bool = True
    _is_starting: bool = False
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if self.database.schema is None:
            self.database = replace(self.database, schema=usual_schema(self.database.url))
        self._stopped.set()

    def __repr__(self) -> str:
        return f"<Runtime {self}>"

    def __str__(self) -> str:
        return f"{self.shown_database!r} {self._engine or 'not running'}"

    @property
    def shown_database(self) -> str:
        """The database as it can be shown to people."""
        return shown(self.database.url, self.database.schema)

    @property
    def grace(self) -> float:
        return seconds(self.worker.grace)

    @property
    def is_running(self) -> bool:
        return self._engine is not None

    @property
    def engine(self) -> Engine:
        """The running engine. Raise an error where it can't be used."""
        if isinstance(current.get(None), WorkflowContext):
            raise RomancyError(
                "app.* was called inside a workflow, where it would be repeated on every replay; "
                "use send_event(ctx, ...), or do it in an activity"
            )
        if self._engine is None:
            raise AppNotRunning
        if asyncio.get_running_loop() is not self._engine.loop:
            raise RomancyError(
                "this app runs on another event loop; use romancy.sync.App from threads, "
                "or asyncio.run_coroutine_threadsafe(..., its_loop)"
            )
        return self._engine

    @property
    def writer(self) -> Engine:
        """The running engine, for verbs that write. Raise an error where they would wait for themselves."""
        engine = self.engine
        if engine.transactions.would_wait_for(current.get(None)):
            raise TerminalError(
                "a verb of the app that writes was called in a transactional activity; SQLite has one writer, so each "
                "of them would wait for the other. Use ctx.send_event(...) or app.within(ctx.connection), or call it "
                "in another activity"
            )
        return engine

    @property
    def engine_if_running(self) -> Engine | None:
        """The engine, for those that only read its counts, perhaps in another thread."""
        return self._engine

    @property
    def around(self) -> Around:
        """The middleware, ready to run."""
        return Around(self.middleware) if self._engine is None else self._engine.around

    @property
    def inbox(self) -> Inbox:
        """Where starts and events are left in a caller's own transaction. From any thread."""
        if isinstance(current.get(None), WorkflowContext):
            raise RomancyError("app.within() was called inside a workflow; use it in an activity")
        if self._engine is None:
            raise AppNotRunning
        return self._engine.storage.inbox

    def announce(self) -> None:
        """Announce newly registered workflows."""
        if self._engine is not None:
            self._engine.describe()
        if self._engine is not None and self.registry.triggers:
            self._engine.lease.announce()
        if self._engine is not None and self.registry.scheduled:
            self._engine.schedule()

    async def start(self, app: Any) -> None:
        if self._engine is not None or self._is_starting:
            raise RomancyError("the app is already running")
        self._is_starting = True
        try:
            self._engine = await self._start()
            self._engine.around.attach(app)
        finally:
            self._is_starting = False

    async def _start(self) -> Engine:
        self._owns_storage = self.storage is None
        storage = self.storage or await self._open_storage()
        engine = Engine(
            storage,
            self.clock,
            self.registry,
            worker=self.works,
            hooks=self.hooks,
            around=Around(self.middleware),
            retry=Policies(self.retry, self.worker.compensation_retry),
            state=self.state,
            links=self.links,
            sinks=self.sinks,
            max_activities=self.max_activities,
            max_resident=self.worker.max_resident,
            max_transactions=self.worker.max_transactions,
            retention=self.retention,
            lease=self.lease,
            grace=self.grace,
            build=choose_build(self.worker.build, self.registry) if self.works else "",
            timer_window=self.timer_window,
            proposes=self.creates,
        )
        try:
            await engine.start()
        except BaseException:
            await self._close(storage)
            raise
        known = f"with {', '.join(self.registry.names) or 'no workflows'}" if self.works else "without a worker"
        _logger.info("romancy %s %s %s", "works on" if self.works else "is open on", self.shown_database, known)
        return engine

    async def _open_storage(self) -> Storage:
        storage = self._make_storage()
        try:
            await storage.open()
        except SealedDatabase:
            if self.works:
                raise
            storage = self._make_storage(is_closed=True)  # lists, and verbs that need no values, work without the codec
            await storage.open()
        return storage

    def _make_storage(self, *, is_closed: bool = False) -> Storage:
        of = self.database
        options: dict[str, Any] = {"schema": of.schema, "notify_url": of.notify_url, "create": self.creates}
        if self.codec is not None or is_closed:
            from romancy.storage.sealed import Vault, VaultOpener, sealed  # lazy: few need it

            vault = Vault(self.codec)
            options["opener"] = VaultOpener(vault)
            return sealed(open_storage(of.url, durability=of.durability, clock=self.clock, **options), vault)
        return open_storage(of.url, durability=of.durability, clock=self.clock, **options)

    async def _close(self, storage: Storage) -> None:
        if self._owns_storage:
            await storage.close()

    async def stop(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            self._stopped.clear()
            try:
                await engine.stop()
            finally:
                await self._close(engine.storage)
                self._stopped.set()
        else:
            await self._stopped.wait()  # another task may be stopping the app

    async def crash(self) -> None:
        """For tests: stop as if the process were killed. Nothing is finished, stored or handed back."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.crash()
            await self._close(engine.storage)
