"""A handle on one instance on a server."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar, overload

from romancy.client.emissions import follow
from romancy.core.clock import stopwatch
from romancy.core.codec import Codec
from romancy.core.failure import Failure
from romancy.core.model import SECOND, STOPPED, Duration, Status, duration_us
from romancy.core.outcome import Outcome
from romancy.core.published import read_view
from romancy.emission_records import Emission, check_wanted
from romancy.records import Instance

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
_PLAIN = Codec(Any, "the result")
_WAIT = 20.0
"""Seconds that one request waits for the end."""
_PAUSE = 0.5
"""Minimum of seconds between two such requests, since a stopping server answers at once."""


class _Client(Protocol):
    """What a handle needs from its client."""

    @property
    def url(self) -> str: ...
    async def ask_result(self, instance_id: str, seconds: float, retry_for: float | None) -> Mapping[str, Any]: ...
    async def get_instance(self, instance_id: str) -> Instance: ...
    async def cancel_workflow(self, instance_id: str, *, reason: str | None = None) -> bool: ...
    async def retry_workflow(self, instance_id: str, /) -> object: ...
    def listen(self, path: str, instance_id: str, after: Callable[[], int]) -> AsyncGenerator[str | None]: ...


class RemoteHandle(Generic[R_co]):
    """What `client.start_workflow` returns. `created` is false if the instance already existed."""

    def __init__(self, client: _Client, instance_id: str, result: Codec | None = None, created: bool = False) -> None:
        self.instance_id = instance_id
        self.created = created
        self._client = client
        self._codec = result or _PLAIN

    def __repr__(self) -> str:
        return f"<RemoteHandle {self.instance_id!r} at {self._client.url}>"

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end. Returns the workflow's result, or raises how it ended.

        Raises `WorkflowFailed`, `WorkflowCancelled` or `WorkflowBlocked`, or `TimeoutError` after `timeout`, while the
        instance keeps running. If the server is unavailable, retries as long as `retry_for` says.
        """
        seconds = None if timeout is None else duration_us(timeout, "timeout") / SECOND
        begun = stopwatch()
        while True:
            asked = stopwatch() - begun
            left = None if seconds is None else max(0.0, seconds - asked)
            found = await self._client.ask_result(self.instance_id, _WAIT if left is None else min(_WAIT, left), left)
            if found["status"] in STOPPED:
                return _outcome(found).result(self.instance_id, self._codec)
            passed = stopwatch() - begun
            if seconds is not None and passed >= seconds:
                raise TimeoutError(f"instance {self.instance_id!r} did not end within {seconds:g} s; it keeps running")
            await asyncio.sleep(max(0.0, min(asked + _PAUSE, seconds or math.inf) - passed))

    async def status(self) -> Status:
        """Its current status."""
        return (await self._client.get_instance(self.instance_id)).status

    @overload
    async def view(self, model: type[T], /) -> T: ...
    @overload
    async def view(self, /) -> Any: ...
    async def view(self, model: Any = Any, /) -> Any:
        """What the workflow last gave to `ctx.set_view`; None if it has not set a view. Without a model, plain JSON."""
        found = (await self._client.get_instance(self.instance_id)).view
        return None if found is None else read_view(json.dumps(found).encode(), model, self.instance_id)

    @overload
    def emitted(self, topic: str | None = None, /, *, model: type[T], after: int = 0) -> AsyncIterator[Emission[T]]: ...
    @overload
    def emitted(self, topic: str | None = None, /, *, after: int = 0) -> AsyncIterator[Emission[Any]]: ...
    def emitted(self, topic: str | None = None, /, *, model: Any = Any, after: int = 0) -> AsyncIterator[Emission[Any]]:
        """What it has emitted on a topic, or on all, and then emits, until it has ended.

        Values come in order, without gaps. If the connection is lost, it goes on where it was, for as long as
        `retry_for` says.
        """
        topic, after = check_wanted(topic, after)
        return follow(self._client.url, self._client.listen, self.instance_id, topic, model, after)

    async def cancel(self, reason: str | None = None) -> bool:
        """Ask it to stop: its code sees `asyncio.CancelledError` and can clean up. False if it had already ended."""
        return await self._client.cancel_workflow(self.instance_id, reason=reason)

    async def retry(self) -> RemoteHandle[R_co]:
        """Let it go on after it failed or was cancelled, as `client.retry_workflow` does. Returns a handle."""
        await self._client.retry_workflow(self.instance_id)
        return RemoteHandle(self._client, self.instance_id, self._codec)


def _outcome(found: Mapping[str, Any]) -> Outcome:
    error: Mapping[str, Any] = found["error"] or {}
    kind, message, traceback = (str(error.get(name, "")) for name in ("type", "message", "traceback"))
    failure = Failure(kind, message, traceback, missing=error.get("missing"), not_undone=error.get("not_undone"))
    return Outcome(found["status"], json.dumps(found["output"]).encode(), failure)
