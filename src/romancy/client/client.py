"""The client: the verbs of an app, sent to a server."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, TypeVarTuple, Unpack, cast, overload

from romancy.api.context import WorkflowContext
from romancy.api.workflow import Workflow, definition_of, start_options
from romancy.bulk import add_up, check_most
from romancy.client import responses
from romancy.client.events import new_event
from romancy.client.handle import RemoteHandle
from romancy.client.outside import OutsideVerbs
from romancy.client.requests import check_token, check_url, looked_up, quoted, schedule_content, start_of
from romancy.client.responses import About, to_error
from romancy.core.clock import SystemClock
from romancy.core.ids import check_id, check_lookup, check_reason, is_text
from romancy.core.ids import new_id as make_id
from romancy.core.instance import current
from romancy.core.model import SECOND, Attribute, Duration, Scalar, Status, duration_us
from romancy.core.model import Event as StoredEvent
from romancy.core.new_events import Event, to_stored
from romancy.core.schedules import Schedule, to_schedule
from romancy.cursors import check_limit
from romancy.errors import IOInWorkflow, NotRetryable, ScheduleNotFound
from romancy.http.cloudevents import batched, structured
from romancy.records import (
    BulkResult,
    EventRecord,
    HistoryEntry,
    Instance,
    InstanceFilter,
    Page,
    QueueRecord,
    Receipt,
    ScheduleRecord,
    Wait,
)
from romancy.reruns import RETRYABLE, Steps
from romancy.searches import some, to_json, to_query

if TYPE_CHECKING:
    from romancy.client.former import Transport
    from romancy.client.wire import Call, Reply

P = ParamSpec("P")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")
T = TypeVar("T")
_JSON = (b"content-type", b"application/json")


class Client(OutsideVerbs):
    """Uses an app through its HTTP API, with the verbs, results and errors of `App`.

    >>> async with Client("http://localhost:8001") as client:
    ...     handle = await client.start_workflow("payment", "ORD-1")
    ...     await client.send_event("payment.completed", "bank", {"order": "ORD-1"})
    ...     print(await handle.result(timeout=10))

    `url` defaults to the environment variable ROMANCY_URL, then to http://localhost:8001; `token` to ROMANCY_TOKEN.
    Temporary failures (no connection, 429, 503) are retried for `retry_for` seconds (0: never). Retries do nothing
    twice. One attempt takes at most `timeout`. `transport` is passed to httpx2, for example for custom TLS or a proxy;
    one of httpx works as well.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        retry_for: Duration = 30.0,
        timeout: Duration = 20.0,
        transport: Transport | None = None,
    ) -> None:
        from romancy.client.wire import Call, Wire  # lazy: only clients need httpx2

        self.url = check_url(url or os.environ.get("ROMANCY_URL") or "http://localhost:8001")
        secret = check_token(token or os.environ.get("ROMANCY_TOKEN") or None)
        patience, limit = duration_us(retry_for, "retry_for") / SECOND, duration_us(timeout, "timeout") / SECOND
        if not limit:
            raise ValueError("timeout must be greater than 0")
        self._call = Call
        self._wire = Wire(self.url, secret, patience, limit, transport)

    def __repr__(self) -> str:
        return f"<Client {self.url}>"

    async def close(self) -> None:
        """Close the connections; `async with` does it for you."""
        await self._wire.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.close()

    async def _ask(self, call: Call, retry_for: float | None = None) -> Reply:
        _check_outside()
        return await self._wire.ask(call, retry_for)

    async def _get(
        self, path: str, reader: Callable[[Any], T], id: str = "", query: Mapping[str, Any] | None = None
    ) -> T:
        reply = await self._ask(self._call("GET", path, About(id), query or {}))
        return responses.read(self.url, reply.content, reader)

    async def _post(self, path: str, content: Mapping[str, Any], id: str, accepts: Collection[int] = ()) -> Reply:
        body = json.dumps(content).encode()
        return await self._ask(self._call("POST", path, About(id), {}, body, [_JSON], accepts))

    # --- starting ---------------------------------------------------------------------------------------------------
    @overload
    async def start_workflow(
        self,
        wf: Callable[[WorkflowContext, *Ts], Coroutine[Any, Any, R]],
        /,
        *args: *Ts,
        instance_id: str | None,
    ) -> RemoteHandle[R]: ...
    @overload
    async def start_workflow(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> RemoteHandle[R]: ...
    @overload
    async def start_workflow(
        self, wf: str, /, *args: Any, instance_id: str | None = None, **kwargs: Any
    ) -> RemoteHandle[Any]: ...
    async def start_workflow(self, wf: Any, /, *args: Any, instance_id: str | None = None, **kwargs: Any) -> Any:
        """Start an instance; returns when it is stored. With the same id, workflow and input: the existing instance.

        If `wf` is a name, arguments and result are plain JSON. If it is a workflow, its annotations convert them.
        """
        known = cast("Workflow[..., Any]", wf) if isinstance(wf, Workflow) else None
        if known is not None and instance_id is None:
            instance_id, _ = start_options(known)
        id = check_id(instance_id) if instance_id is not None else make_id(SystemClock().now())
        name, content = start_of(wf, args, kwargs)
        is_new = await self.store_start(name, content, id)
        # A generated id is unique: if it exists already, an earlier attempt of this call has created it.
        created = is_new or instance_id is None
        return RemoteHandle[Any](self, id, definition_of(known).signature.result if known else None, created)

    async def store_start(self, name: str, content: Mapping[str, Any], instance_id: str) -> bool:
        """Send a start as JSON, and return whether there was no such instance. For the command line."""
        path = f"/api/workflows/{quoted(name)}/start"
        return (await self._post(path, {**content, "instance_id": instance_id}, instance_id)).status == 201

    @overload
    def handle(self, instance_id: str, wf: Workflow[..., R], /) -> RemoteHandle[R]: ...
    @overload
    def handle(self, instance_id: str, /) -> RemoteHandle[Any]: ...
    def handle(self, instance_id: str, wf: Workflow[..., Any] | None = None, /) -> RemoteHandle[Any]:
        """A handle on an instance that was started earlier."""
        return RemoteHandle(self, instance_id, definition_of(wf).signature.result if wf else None)

    async def ask_result(self, instance_id: str, seconds: float, retry_for: float | None) -> Mapping[str, Any]:
        """The state of an instance when it ends, or after so many seconds. For handles."""
        call = self._call(
            "GET",
            f"/api/instances/{looked_up(instance_id)}/result",
            About(instance_id),
            {"timeout": round(seconds, 3)},
            lasts=seconds,
        )
        return responses.read(self.url, (await self._ask(call, retry_for)).content, responses.to_ending)

    def listen(self, path: str, instance_id: str, after: Callable[[], int]) -> AsyncGenerator[str | None]:
        """Yield the lines of a stream, again and again. For handles."""
        _check_outside()
        return self._wire.listen(lambda: self._call("GET", path, About(instance_id), {"after": after()}))

    # --- events, cancel, resume, retry ------------------------------------------------------------------------------
    async def send_event(
        self,
        type: str,
        source: str,
        data: object = None,
        *,
        subject: str | None = None,
        id: str | None = None,
        to: str | None = None,
        extensions: Mapping[str, Attribute] | None = None,
        time: datetime | None = None,
        dataschema: str | None = None,
    ) -> Receipt:
        """Send an event; returns when it is stored. Another event with the same `(source, id)` is a duplicate."""
        return await self.send(
            new_event(
                type,
                source,
                data,
                subject=subject,
                id=id,
                to=to,
                extensions=extensions,
                time=time,
                dataschema=dataschema,
            )
        )

    event = staticmethod(new_event)
    """Create an event for `send` and `send_events`, with the arguments of `send_event`. It gets its id here, so that it
    can be sent again."""

    async def send(self, event: StoredEvent) -> Receipt:
        """Send an event made by `client.event(...)`."""
        headers, body = structured(event)
        about = About(event_id=event.id, events=1)
        reply = await self._ask(self._call("POST", "/", about, {}, body, headers))
        return responses.read(self.url, reply.content, responses.to_receipt)

    async def send_events(self, events: Sequence[Event | StoredEvent], /) -> list[Receipt]:
        """Send several events at once: all are stored, or none. The default limits of a server are 1000 and 1 MiB."""
        if not events:
            return []
        # Here, once: sent again, they must have the same ids.
        made = [event if isinstance(event, StoredEvent) else to_stored(event) for event in events]
        headers, body = batched(made)
        about = About(event_id=made[0].id, events=len(made))
        reply = await self._ask(self._call("POST", "/", about, {}, body, headers))
        if reply.content is None:
            return [Receipt() for _ in made]
        return responses.read(self.url, reply.content, lambda batch: [responses.to_receipt(r) for r in batch["events"]])

    async def cancel_workflow(self, instance_id: str, *, reason: str | None = None) -> bool:
        """Cancel an instance: its code sees `asyncio.CancelledError` and can clean up.

        True if it was asked to stop, or is cancelled at once. False, with no effect, if it had already ended.
        """
        path = f"/cancel/{looked_up(instance_id)}"
        check_reason(reason)
        reply = await self._post(path, {"reason": reason}, instance_id, accepts=(409,))
        # If it is already cancelled, an earlier attempt whose answer was lost did it.
        return reply.status != 409 or (reply.attempts > 1 and reply.content.get("status") == "cancelled")

    async def resume_workflow(self, instance_id: str) -> bool:
        """Run a blocked instance again, after you fix its code. False, with no effect, if it is not blocked."""
        path = f"/api/instances/{looked_up(instance_id)}/resume"
        return (await self._ask(self._call("POST", path, About(instance_id), accepts=(409,)))).status != 409

    @overload
    async def retry_workflow(
        self, instance_id: str, wf: Workflow[..., R], /, *, steps: Steps = None
    ) -> RemoteHandle[R]: ...
    @overload
    async def retry_workflow(self, instance_id: str, /, *, steps: Steps = None) -> RemoteHandle[Any]: ...
    async def retry_workflow(
        self, instance_id: str, wf: Workflow[..., Any] | None = None, /, *, steps: Steps = None
    ) -> RemoteHandle[Any]:
        """Let an instance that failed or was cancelled go on from there, as `App.retry_workflow` does.

        Raise `NotRetryable` if the instance has not ended, has completed, or has undone its steps.
        """
        path = f"/api/instances/{looked_up(instance_id)}/retry"
        content = {"steps": steps if steps is None or isinstance(steps, str) else list(steps)}
        reply = await self._post(path, content, instance_id, accepts=(409,))
        # If it has gone on, an earlier attempt whose answer was lost did it.
        has_gone_on = reply.attempts > 1 and reply.content.get("status") not in RETRYABLE
        if reply.status == 409 and not has_gone_on:
            raise to_error(self.url, 409, reply.content, About(instance_id), with_token=False)
        return self.handle(instance_id, wf) if wf is not None else self.handle(instance_id)

    async def fork_workflow(self, instance_id: str, /, *, at: int = 0, new_id: str | None = None) -> RemoteHandle[Any]:
        """Start a new instance that begins with the history of another one, as `App.fork_workflow` does.

        `at` is the number of the last entry that is kept; with 0 it starts again from the input.
        """
        path = f"/api/instances/{looked_up(instance_id)}/fork"
        id = check_id(new_id) if new_id is not None else make_id(SystemClock().now())
        reply = await self._post(path, {"at": at, "new_id": id}, instance_id, accepts=(409,))
        # A generated id is unique: if it exists already, an earlier attempt of this call has created it.
        is_undone = reply.content.get("error_type") == NotRetryable.__name__
        if reply.status == 409 and (is_undone or new_id is not None or reply.attempts == 1):
            about = About(instance_id if is_undone else id)
            raise to_error(self.url, 409, reply.content, about, with_token=False)
        return RemoteHandle[Any](self, id, created=True)

    # --- many instances ---------------------------------------------------------------------------------------------
    async def cancel_workflows(
        self, *, reason: str | None = None, limit: int | None = None, **which: Unpack[InstanceFilter]
    ) -> BulkResult:
        """Cancel all instances that match a filter, as `cancel_workflow` does; at most `limit`, newest first.

        Raise `ValueError` if no filter is given. If it is interrupted, call it again: it does nothing twice.
        """
        check_reason(reason)
        filters = to_json(some(which, "cancel_workflows"))
        return add_up([done async for done in self.act_in_parts("cancel", limit, {**filters, "reason": reason})])

    async def resume_workflows(self, *, limit: int | None = None, **which: Unpack[InstanceFilter]) -> BulkResult:
        """Run all blocked instances that match a filter again, after you fix their code; at most `limit`, newest first.

        Raise `ValueError` if no filter is given.
        """
        filters = to_json(some(which, "resume_workflows"))
        return add_up([done async for done in self.act_in_parts("resume", limit, filters)])

    async def retry_workflows(self, *, limit: int | None = None, **which: Unpack[InstanceFilter]) -> BulkResult:
        """Retry all failed and cancelled instances that match a filter; at most `limit`, newest first.

        Each goes on from what led to its end. Raise `ValueError` if no filter is given.
        """
        filters = to_json(some(which, "retry_workflows"))
        return add_up([done async for done in self.act_in_parts("retry", limit, filters)])

    async def act_in_parts(
        self, verb: str, limit: int | None, content: Mapping[str, Any]
    ) -> AsyncGenerator[BulkResult]:
        """Act on many instances, with a request for each part. Internal: shows the progress on the command line."""
        cursor, left = None, check_most(limit)
        while True:
            reply = await self._post(f"/api/instances/{verb}", {**content, "limit": left, "cursor": cursor}, "")
            done, cursor = responses.read(self.url, reply.content, responses.to_part)
            left = None if left is None else left - done.changed
            yield done
            if cursor is None or left == 0:
                return

    # --- reading ----------------------------------------------------------------------------------------------------
    async def get_instance(self, instance_id: str) -> Instance:
        """One instance, with its open waits."""
        return await self._get(f"/api/instances/{looked_up(instance_id)}", responses.to_instance, instance_id)

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
        """Instances that match all filters, newest first. `InstanceFilter` explains the filters."""
        which = InstanceFilter(
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
        query = {**to_query(which), "limit": check_limit(limit), "cursor": cursor}
        return await self._get("/api/instances", responses.to_page(responses.to_instance), query=query)

    async def count_instances(self, **which: Unpack[InstanceFilter]) -> int:
        """How many instances match all filters; without filters, how many there are."""
        return await self._get("/api/instance-count", lambda found: int(found["count"]), query=to_query(which))

    async def list_waits(
        self, *, instance_id: str | None = None, type: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Wait]:
        """Open waits, by instance."""
        if instance_id is not None:
            check_lookup(instance_id)
        reader = responses.to_page(responses.to_wait)
        query = {"instance_id": instance_id, "type": type, "limit": check_limit(limit), "cursor": cursor}
        return await self._get("/api/waits", reader, query=query)

    async def list_events(
        self,
        *,
        type: str | None = None,
        instance_id: str | None = None,
        unmatched: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[EventRecord]:
        """The event log, newest first, with the instances that received each event."""
        query = {"type": type, "instance_id": instance_id, "unmatched": "true" if unmatched else None}
        query |= {"limit": check_limit(limit), "cursor": cursor}
        return await self._get("/api/events", responses.to_page(responses.to_event_record), query=query)

    async def list_queues(self) -> list[QueueRecord]:
        """The queues, by name: how many instances run, and how many wait."""
        page = await self._queues(None)
        found = list(page.items)
        while page.cursor is not None:
            page = await self._queues(page.cursor)
            found += page.items
        return found

    def _queues(self, cursor: str | None) -> Coroutine[Any, Any, Page[QueueRecord]]:
        return self._get("/api/queues", responses.to_page(responses.to_queue), query={"limit": 1000, "cursor": cursor})

    async def get_history(self, instance_id: str) -> list[HistoryEntry]:
        """The history of an instance, in order; the first entry is its start."""
        path = f"/api/instances/{looked_up(instance_id)}/history"
        return await self._get(path, lambda found: [responses.to_entry(e) for e in found["entries"]], instance_id)

    async def list_workflows(self) -> list[str]:
        """The names of the workflows registered in the server; other workers may have more."""
        return await self._get("/api/workflows", lambda found: [str(item["name"]) for item in found["items"]])

    # --- schedules --------------------------------------------------------------------------------------------------
    async def set_schedule(
        self, name: str, schedule: str | Schedule, wf: Workflow[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Start a workflow again and again, as `App.set_schedule` does. The same name again changes the schedule."""
        workflow, content = start_of(wf, args, cast("dict[str, Any]", kwargs))
        body = {**content, "workflow": workflow, **schedule_content(to_schedule(schedule))}
        await self._schedule(name, "set", body)

    async def pause_schedule(self, name: str) -> None:
        """Pause a schedule: until it is resumed, it starts nothing. Raise `ScheduleNotFound` if it does not exist."""
        await self._schedule(name, "pause")

    async def resume_schedule(self, name: str) -> None:
        """Let a paused schedule go on with its next tick. Ticks that passed meanwhile are dropped."""
        await self._schedule(name, "resume")

    async def trigger_schedule(self, name: str) -> RemoteHandle[Any]:
        """Start an instance of a schedule now, even if it is paused or one is running. Its ticks stay as they are."""
        id = f"{name}/{make_id(SystemClock().now())}"  # the same in every attempt, so that one is started
        await self._schedule(name, "trigger", {"instance_id": id})
        return RemoteHandle[Any](self, id, None, created=True)

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule. Its instances go on. Raise `InvalidInput` if it is declared in code."""
        reply = await self._schedule(name, "delete", accepts=(404,))
        if reply.status == 404 and reply.attempts == 1:  # otherwise an earlier attempt, whose answer was lost, did it
            raise to_error(self.url, 404, reply.content, About(schedule=name), with_token=False)

    async def list_schedules(self) -> list[ScheduleRecord]:
        """Return all schedules, by name."""
        return await self._get("/api/schedules", lambda found: [responses.to_schedule(i) for i in found["items"]])

    async def _schedule(
        self, name: str, verb: str, content: Mapping[str, Any] | None = None, accepts: Collection[int] = ()
    ) -> Reply:
        if not (name and is_text(name)):
            raise ScheduleNotFound(name=name)
        body = None if content is None else json.dumps(content).encode()
        path, headers = f"/api/schedules/{quoted(name)}/{verb}", [] if body is None else [_JSON]
        return await self._ask(self._call("POST", path, About(schedule=name), {}, body, headers, accepts))


def _check_outside() -> None:
    if isinstance(current.get(None), WorkflowContext):
        raise IOInWorkflow(
            "client.* was called inside a workflow, where it would be repeated on every replay; "
            "use send_event(ctx, ...), or call it in an activity"
        )
