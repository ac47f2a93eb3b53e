"""A handle on one instance on a server."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from romancy.core.activation import Outcome
from romancy.core.clock import stopwatch
from romancy.core.codec import Codec
from romancy.core.failure import Failure
from romancy.core.model import SECOND, STOPPED, Duration, Status, duration_us
from romancy.records import Instance

R_co = TypeVar("R_co", covariant=True)
_PLAIN = Codec(Any, "the result")
_ONCE = 20.0
"""Seconds a server is asked to wait for the end before it is asked again."""
_BREATH = 0.5
"""Seconds between two such questions at least: a server that is stopping does not wait."""


class _Client(Protocol):
    """What a handle asks of the client that made it."""

    @property
    def url(self) -> str: ...
    async def ask_result(self, instance_id: str, seconds: float, retry_for: float | None) -> Mapping[str, Any]: ...
    async def get_instance(self, instance_id: str) -> Instance: ...
    async def cancel_workflow(self, instance_id: str, *, reason: str | None = None) -> bool: ...


class RemoteHandle(Generic[R_co]):
    """What `client.start_workflow` returns. `created` is false if the instance was there already."""

    def __init__(self, client: _Client, instance_id: str, result: Codec | None = None, created: bool = False) -> None:
        self.instance_id = instance_id
        self.created = created
        self._client = client
        self._codec = result or _PLAIN

    def __repr__(self) -> str:
        return f"<RemoteHandle {self.instance_id!r} at {self._client.url}>"

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end: the workflow's return value, or `WorkflowFailed`, `WorkflowCancelled`, `WorkflowBlocked`.

        `TimeoutError` after `timeout`; the instance goes on. A server that is away for a while is waited for as long
        as `retry_for` says.
        """
        seconds = None if timeout is None else duration_us(timeout, "timeout") / SECOND
        begun = stopwatch()
        while True:
            asked = stopwatch() - begun
            left = None if seconds is None else max(0.0, seconds - asked)
            found = await self._client.ask_result(self.instance_id, _ONCE if left is None else min(_ONCE, left), left)
            if found["status"] in STOPPED:
                return _outcome(found).result(self.instance_id, self._codec)
            passed = stopwatch() - begun
            if seconds is not None and passed >= seconds:
                raise TimeoutError(f"instance {self.instance_id!r} has not ended within {seconds:g} s; it goes on")
            await asyncio.sleep(max(0.0, min(asked + _BREATH, seconds or math.inf) - passed))

    async def status(self) -> Status:
        """How it stands now."""
        return (await self._client.get_instance(self.instance_id)).status

    async def cancel(self, reason: str | None = None) -> bool:
        """Ask it to stop; its code sees `asyncio.CancelledError` and may clean up. False: it had ended already."""
        return await self._client.cancel_workflow(self.instance_id, reason=reason)


def _outcome(found: Mapping[str, Any]) -> Outcome:
    error: Mapping[str, Any] = found["error"] or {}
    kind, message, traceback = (str(error.get(name, "")) for name in ("type", "message", "traceback"))
    return Outcome(found["status"], json.dumps(found["output"]).encode(), Failure(kind, message, traceback))
