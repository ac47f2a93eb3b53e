"""The service: start, send, cancel, resume and read. The interfaces (HTTP, viewer, blocking) use it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from types import ModuleType, TracebackType
from typing import Any, Never, ParamSpec, Self, TypeVar, TypeVarTuple, Unpack, cast, overload

from romancy.acts import to_act
from romancy.api.context import WorkflowContext
from romancy.api.workflow import Workflow, definition_of
from romancy.bulk import SCAN, BulkVerb, add_up, cancelling, check_most, parts, resuming, retrying
from romancy.core.actor import current_actor
from romancy.core.ids import check_lookup, check_reason
from romancy.core.model import Duration, Scalar, Status, from_us
from romancy.core.payloads import PayloadCodec
from romancy.core.redaction import Redact, choose_redaction
from romancy.core.retry import RetryPolicy, check_policy
from romancy.core.tickets import Links, choose_signing_keys
from romancy.cursors import check_limit, read_cursor, read_wait_cursor, write_cursor
from romancy.desk_verbs import DeskVerbs
from romancy.engine import Engine
from romancy.errors import InstanceNotFound
from romancy.handle import ScheduleVerbs, WorkflowHandle
from romancy.hooks import HooksBase
from romancy.inventory import InventoryVerbs
from romancy.middleware import MiddlewareBase, check_middleware
from romancy.obstacles import queue_wait, with_cuts
from romancy.options import (
    Database,
    HTTPOptions,
    HTTPSink,
    Retention,
    Sink,
    Token,
    Webhook,
    WorkerOptions,
    check_count,
    check_lease,
    check_public_url,
    choose_database,
    choose_retention,
    choose_tokens,
    choose_worker,
    refuse,
)
from romancy.question_verbs import QuestionVerbs
from romancy.records import (
    BulkResult,
    EventRecord,
    HistoryEntry,
    Instance,
    InstanceFilter,
    Page,
    QueueRecord,
    Wait,
    started_entry,
    to_event_record,
    to_histories,
    to_instance,
    to_queue_record,
    to_wait,
)
from romancy.reruns import Steps, fork, retry_one
from romancy.runtime import Runtime
from romancy.searches import some, to_search
from romancy.sending import SendingVerbs
from romancy.sink_verbs import SinkVerbs
from romancy.sinks.declaration import outlets
from romancy.starts import around_start, check_handle, is_named, prepare, store, to_request
from romancy.storage.batch import Start
from romancy.storage.catalog import MOST_QUEUES
from romancy.storage.instances import InstanceRow
from romancy.webhooks.declaration import check_webhooks
from romancy.within import Desk, Within

P = ParamSpec("P")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")
_logger = logging.getLogger("romancy")


class Service(SendingVerbs, ScheduleVerbs, InventoryVerbs, SinkVerbs, QuestionVerbs, DeskVerbs):
    """Workflows on a database: the verbs on a running engine. `App` adds HTTP and the viewer."""

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
        tokens: Sequence[str | Token] = (),
        webhooks: Sequence[Webhook] = (),
        public_url: str | None = None,
        signing_keys: Sequence[str | bytes] = (),
        http: HTTPOptions | None = None,
        worker: bool | WorkerOptions = True,
        max_activities: int = 100,
        lease: Duration = timedelta(seconds=10),
        retention: Duration | Retention = timedelta(days=7),
        **unknown: Never,
    ) -> None:
        refuse(unknown)
        check_count("max_activities", max_activities)
        self._workflows: dict[str, Workflow[..., Any]] = {}
        self._runtime = Runtime(
            database=choose_database(database),
            works=worker is not False,
            worker=choose_worker(worker),
            hooks=(hooks,) if isinstance(hooks, HooksBase) else tuple(hooks),
            middleware=check_middleware(middleware),
            retry=RetryPolicy() if retry is None else check_policy(retry, "App") or RetryPolicy(),
            state=state,
            tokens=choose_tokens(tokens),
            http=http or HTTPOptions(),
            public_url=(address := check_public_url(public_url)),
            links=Links(choose_signing_keys(signing_keys), address),
            webhooks=check_webhooks(webhooks),
            sinks=outlets(sinks),
            max_activities=max_activities,
            lease=check_lease(lease),
            retention=choose_retention(retention),
            codec=codec,
            redact=choose_redaction(redact),
        )
        self.register(*((workflows,) if isinstance(workflows, Workflow | ModuleType) else workflows))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._runtime}>"

    @property
    def database(self) -> str:
        """The URL or path of the database."""
        return self._runtime.database.url

    @property
    def workflows(self) -> Mapping[str, Workflow[..., Any]]:
        """The registered workflows, by name."""
        return {name: self._workflows[name] for name in self._runtime.registry.names}

    def register(self, *workflows: Workflow[..., Any] | ModuleType) -> None:
        """Register workflows, or modules with all the workflows in them."""
        for item in workflows:
            if isinstance(item, ModuleType):
                for found in vars(item).values():
                    if isinstance(found, Workflow):
                        self._register(cast("Workflow[..., Any]", found))
            elif isinstance(item, Workflow):  # pyright: ignore[reportUnnecessaryIsInstance]
                self._register(item)
            else:
                raise TypeError(f"register() takes workflows and modules, not {item!r}; is @workflow missing?")
        self._runtime.announce()

    def _register(self, wf: Workflow[..., Any]) -> None:
        self._runtime.registry.add(definition_of(wf))
        self._workflows.setdefault(wf.name, wf)

    # --- life -------------------------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Open the database and start to work. `async with app:` does it for you."""
        await self._runtime.start(self)

    async def stop(self) -> None:
        """Finish running work or hand it back, store everything, close the database."""
        await self._runtime.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.stop()

    @property
    def is_running(self) -> bool:
        return self._runtime.is_running

    # --- starting ---------------------------------------------------------------------------------------------------
    @overload
    async def start_workflow(
        self,
        wf: Callable[[WorkflowContext, *Ts], Coroutine[Any, Any, R]],
        /,
        *args: *Ts,
        instance_id: str | None,
    ) -> WorkflowHandle[R]: ...
    @overload
    async def start_workflow(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]: ...
    @overload
    async def start_workflow(
        self, wf: str, /, *args: Any, instance_id: str | None = None, **kwargs: Any
    ) -> WorkflowHandle[Any]: ...
    async def start_workflow(self, wf: Any, /, *args: Any, instance_id: str | None = None, **kwargs: Any) -> Any:
        """Start an instance and return when it is stored. The same id, workflow and input return the existing one.

        A name means the highest version registered here, `"payment@1"` a version of its own; an object means itself.
        """
        engine = self._runtime.writer
        start, definition = prepare(self._runtime, wf, args, kwargs, instance_id)
        may_exist = start.place is not None and is_named(wf, instance_id)
        if engine.around.has_starts:
            request = to_request(start, definition, args, kwargs)
            begin = partial(self._begin, engine, start, definition, may_exist)
            return check_handle(await around_start(engine.around, start, request, begin))
        of = await store(engine, start, definition, may_exist)
        handle: WorkflowHandle[Any] = WorkflowHandle(self, self._runtime, start.id, *of)
        return handle

    async def _begin(self, engine: Engine, start: Start, *more: Any) -> WorkflowHandle[Any]:
        return WorkflowHandle(self, self._runtime, start.id, *await store(engine, start, *more))

    @overload
    def handle(self, instance_id: str, wf: Workflow[..., R], /) -> WorkflowHandle[R]: ...
    @overload
    def handle(self, instance_id: str, /) -> WorkflowHandle[Any]: ...
    def handle(self, instance_id: str, wf: Workflow[..., Any] | None = None, /) -> WorkflowHandle[Any]:
        """Return a handle for an instance started earlier, perhaps by another process."""
        return WorkflowHandle(self, self._runtime, instance_id, definition_of(wf).signature.result if wf else None)

    # --- cancel, resume -------------------------------------------------------------------------------------
    def within(self, connection: object, /, *, wake: bool = True) -> Within:
        """Return the verbs that take effect if and when the transaction of your own connection commits.

        >>> async with pool.acquire() as connection, connection.transaction():
        ...     await connection.execute("INSERT INTO orders ...")
        ...     tx = app.within(connection)
        ...     pending = await tx.start_workflow(fulfil, "ORD-1")

        It takes connections of asyncpg, psycopg 3, sqlite3, aiosqlite, SQLAlchemy and Django, and SQLAlchemy sessions.
        Raise `NotInTransaction` if no transaction is open, or if it is a connection to another database than the
        app's. With `wake=False` workers are not notified on commit; they find it within a second.
        """
        return Within(desk_of(self, wake), connection)

    async def cancel_workflow(self, instance_id: str, *, reason: str | None = None) -> bool:
        """Cancel an instance: its code sees `asyncio.CancelledError` and can clean up.

        Return True if cancellation was requested or done at once, False if the instance had already ended.
        """
        check_lookup(instance_id)
        check_reason(reason)
        who = current_actor()
        answer = await self._runtime.writer.cancel(instance_id, reason, who)
        if answer.status is None:
            await self._row(instance_id)
            answer = await self._runtime.writer.cancel(instance_id, reason, who)
        return answer.took

    async def resume_workflow(self, instance_id: str) -> bool:
        """Run a blocked instance again, after you fix its code. Return False, and do nothing, if it is not blocked."""
        check_lookup(instance_id)
        status = await self._runtime.writer.storage.resume(instance_id, current_actor())
        if status is None:
            await self._row(instance_id)
        self._runtime.engine.kick()
        return status == "blocked"

    @overload
    async def retry_workflow(
        self, instance_id: str, wf: Workflow[..., R], /, *, steps: Steps = None
    ) -> WorkflowHandle[R]: ...
    @overload
    async def retry_workflow(self, instance_id: str, /, *, steps: Steps = None) -> WorkflowHandle[Any]: ...
    async def retry_workflow(
        self, instance_id: str, wf: Workflow[..., Any] | None = None, /, *, steps: Steps = None
    ) -> WorkflowHandle[Any]:
        """Let an instance that failed or was cancelled go on from there, under its own id.

        What led to its end runs again; everything else that is recorded stays. `steps="failed"`: everything that
        failed runs again, even if the code handled it. `steps=["charge:1"]`: these operations run again. A call that
        failed keeps its idempotency key. Time limits begin again.

        Raise `NotRetryable` if the instance has not ended, has completed, or has undone its steps.
        """
        engine = self._runtime.writer
        await engine.found(lambda: retry_one(engine, instance_id, steps, current_actor()))
        return self.handle(instance_id, wf) if wf is not None else self.handle(instance_id)

    async def fork_workflow(
        self, instance_id: str, /, *, at: int = 0, new_id: str | None = None
    ) -> WorkflowHandle[Any]:
        """Start a new instance that begins with the history of another one, up to the entry with the number `at`.

        With 0 it starts again from the input. What comes after the entry happens anew: calls have other idempotency
        keys, and events are sent again, under other ids. The original is left as it is, whatever its status.

        If the entry is one of an event that was sent, that event is sent again, too: the code runs from the last entry
        before it that it was fed.

        Events that it would wait for may have been removed since. Time limits of waits that were open at the entry are
        not extended. If the fork fails, it undoes only what it did itself, and nothing that was copied.
        """
        engine = self._runtime.writer
        id, workflow = await engine.found(lambda: fork(engine, instance_id, at, new_id, current_actor()))
        definition = self._runtime.registry.get(workflow)
        result = definition.signature.result if definition else None
        return WorkflowHandle(self, self._runtime, id, result, created=True)

    # --- many instances ---------------------------------------------------------------------------------------------
    async def cancel_workflows(
        self, *, reason: str | None = None, limit: int | None = None, **which: Unpack[InstanceFilter]
    ) -> BulkResult:
        """Cancel all instances that match a filter, as `cancel_workflow` does; at most `limit`, newest first.

        >>> await app.cancel_workflows(workflow="order", started_before=yesterday, reason="sold out")
        BulkResult(matched=120, changed=118, errors={})

        Raise `ValueError` if no filter is given. If it is interrupted, call it again: it does nothing twice.
        """
        check_reason(reason)
        return await self._act(cancelling(self._runtime.writer, reason), "cancel_workflows", which, limit)

    async def resume_workflows(self, *, limit: int | None = None, **which: Unpack[InstanceFilter]) -> BulkResult:
        """Run all blocked instances that match a filter again, after you fix their code; at most `limit`, newest first.

        Raise `ValueError` if no filter is given.
        """
        return await self._act(resuming(self._runtime.writer), "resume_workflows", which, limit)

    async def retry_workflows(self, *, limit: int | None = None, **which: Unpack[InstanceFilter]) -> BulkResult:
        """Retry all failed and cancelled instances that match a filter; at most `limit`, newest first.

        >>> await app.retry_workflows(workflow="order", error_type="ActivityError", started_after=yesterday)
        BulkResult(matched=120, changed=119, errors={"order-7": "instance 'order-7' can't be retried: ..."})

        Each goes on from what led to its end, as with `retry_workflow`. Raise `ValueError` if no filter is given.
        """
        return await self._act(retrying(self._runtime.writer), "retry_workflows", which, limit)

    async def _act(self, verb: BulkVerb, name: str, which: InstanceFilter, limit: int | None) -> BulkResult:
        search = to_search(some(which, name))
        found = parts(self._runtime.engine.storage.catalog, search, verb, check_most(limit))
        return add_up([part.result async for part in found])

    # --- reading ----------------------------------------------------------------------------------------------------
    async def get_instance(self, instance_id: str) -> Instance:
        """Return one instance, with its waits, and who did what to it."""
        row = await self._row(instance_id)
        stored = await self._runtime.engine.storage.catalog.all_waits(instance_id, 1000)
        shown = await self._runtime.engine.storage.catalog.shown([instance_id])
        waits = self._with_slots([*(to_wait(w) for w in stored), *self._open_without_row(instance_id, stored)])
        waits = await with_cuts(self._runtime.engine.storage.catalog, row.created_at, waits)
        if row.status == "queued":
            runtime = self._runtime
            waits = [await queue_wait(runtime.engine.storage, runtime.registry, row, runtime.clock.now()), *waits]
        acts = await self._runtime.engine.storage.acts.of(instance_id)
        return to_instance(row, waits, shown.get(instance_id), tuple(map(to_act, acts)))

    async def _row(self, instance_id: str) -> InstanceRow:
        """Return an instance as it is stored. If it is still in the inbox, take it in."""
        check_lookup(instance_id)
        engine = self._runtime.engine

        async def read() -> InstanceRow:
            row = await engine.storage.catalog.instance(instance_id)
            if row is None:
                raise InstanceNotFound(instance_id=instance_id)
            return row

        return await engine.found(read)

    def _open_without_row(self, instance_id: str, stored: Sequence[Any]) -> list[Wait]:
        """Return the open operations that only their worker knows, such as running activities."""
        resident = self._runtime.engine.scheduler.residents.get(instance_id)
        if resident is None:
            return []
        listed = {w.op for w in stored}
        found = [op for op in resident.instance.ops.values() if not op.has_row and op.id not in listed]
        return [Wait(instance_id, op.id, op.name, (), {}, from_us(op.opened_at), None, op.location) for op in found]

    def _with_slots(self, waits: Sequence[Wait]) -> list[Wait]:
        """Add to activities that wait for a slot of this worker how many run in it."""
        tell = self._runtime.engine.activities.describe_wait
        slots = [tell(w.instance_id, w.wait_id) if w.kind in ("activity", "retry") else None for w in waits]
        return [w if slot is None else replace(w, slot=slot) for w, slot in zip(waits, slots, strict=True)]

    async def list_instances(
        self,
        *,
        status: Status | Collection[Status] = (),
        workflow: str | None = None,
        where: Mapping[str, Scalar] | None = None,
        text: str | None = None,
        error_type: str | None = None,
        parent: str | None = None,
        queue: str | None = None,
        key: str | None = None,
        started_after: datetime | None = None,
        started_before: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Instance]:
        """Return instances that match all filters, newest first. `InstanceFilter` explains the filters."""
        search = to_search(
            InstanceFilter(
                status=status,
                workflow=workflow,
                where=where,
                text=text,
                error_type=error_type,
                parent=parent,
                queue=queue,
                key=key,
                started_after=started_after,
                started_before=started_before,
            )
        )
        position = read_cursor(cursor, int, str)
        catalog = self._runtime.engine.storage.catalog
        rows = await catalog.instances(search, check_limit(limit) + 1, position and (position[0], position[1]))
        shown = await catalog.shown([row.id for row in rows[:limit]])
        more = (rows[limit - 1].created_at, rows[limit - 1].id) if len(rows) > limit else None
        return Page([to_instance(row, shown=shown.get(row.id)) for row in rows[:limit]], write_cursor(more))

    async def count_instances(self, **which: Unpack[InstanceFilter]) -> int:
        """Return how many instances match all filters; without filters, how many there are."""
        return await self._runtime.engine.storage.catalog.count(to_search(which), SCAN)

    async def list_queues(self) -> list[QueueRecord]:
        """Return the queues, by name: how many instances run, and how many wait."""
        known, catalog = self._runtime.registry.queues, self._runtime.engine.storage.catalog
        rows = page = await catalog.queues(known)
        while len(page) == MOST_QUEUES:
            page = await catalog.queues(known, after=page[-1][0])
            rows += page
        return list(map(to_queue_record, rows))

    async def list_waits(
        self,
        *,
        instance_id: str | None = None,
        type: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Wait]:
        """Return the waits of instances, by instance; with `instance_id`, also those for its unfinished children."""
        catalog, most = self._runtime.engine.storage.catalog, check_limit(limit) + 1
        if instance_id is not None:
            check_lookup(instance_id)
        if instance_id is None or type is not None:
            position = read_cursor(cursor, str, str)
            rows = await catalog.waits(instance=instance_id, type=type, limit=most, cursor=position)
        else:
            rows = await catalog.all_waits(instance_id, most, read_wait_cursor(cursor))
        more = rows[limit - 1].position if len(rows) > limit else None
        return Page([to_wait(row) for row in rows[:limit]], write_cursor(more))

    async def list_events(
        self,
        *,
        type: str | None = None,
        instance_id: str | None = None,
        unmatched: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[EventRecord]:
        """Return the event log, newest first, with the instances that received each event."""
        before = read_cursor(cursor, int)
        rows = await self._runtime.engine.storage.catalog.events(
            type=type,
            instance=instance_id,
            unmatched=unmatched,
            limit=check_limit(limit) + 1,
            before=before[0] if before else None,
        )
        more = (rows[limit - 1].event.seq,) if len(rows) > limit else None
        return Page([to_event_record(row) for row in rows[:limit]], write_cursor(more))

    async def get_history(self, instance_id: str) -> list[HistoryEntry]:
        """Return the whole history of an instance, in order. The first entry is its start.

        Entries that were `dropped` by a retry no longer count; a `retried` entry follows them.
        """
        row = await self._row(instance_id)
        entries = await self._runtime.engine.storage.catalog.history(instance_id)
        return [started_entry(row), *to_histories(entries)]


def runtime_of(service: Service) -> Runtime:
    """Return the parts of an app, for the interfaces and for tests."""
    return service._runtime  # pyright: ignore[reportPrivateUsage]


def desk_of(service: Service, wake: bool) -> Desk:
    """Return what makes rows for the inbox, for the interfaces."""
    runtime = runtime_of(service)
    return Desk(service, runtime, wake, partial(prepare, runtime))
