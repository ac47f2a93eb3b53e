"""Answers: JSON, and a status for each error that tells the sender whether to try again."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from romancy.errors import (
    AppNotRunning,
    CodecError,
    InstanceExists,
    InstanceNotFound,
    InvalidEvent,
    InvalidInput,
    NotRetryable,
    NotStorable,
    Overloaded,
    QueueFull,
    RomancyError,
    ScheduleNotFound,
    StorageError,
    UnknownWorkflow,
)
from romancy.http.cloudevents import TooLarge, UnsupportedFormat
from romancy.storage.errors import RefusedValue

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

_logger = logging.getLogger("romancy")
JSON_TYPE: Header = (b"content-type", b"application/json")
_GUARDS: Sequence[Header] = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""Default headers: browsers neither guess the content type nor cache the answer."""
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_LONGEST = 2000
"""Maximum characters of an error's text, since it may quote what was sent."""


@dataclass(slots=True)
class Response:
    """A status, headers and a body (or None). An endless body comes in `parts`."""

    status: int
    body: bytes | None = None
    headers: Sequence[Header] = ()
    parts: AsyncGenerator[bytes] | None = None


class HTTPError(RomancyError):
    """An error with its own HTTP status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str,
        headers: Sequence[Header] = (),
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.headers, self.more = status, kind, headers, more or {}


class ClientGone(Exception):
    """The client has disconnected, so there is nothing to answer."""


STATUSES: Sequence[tuple[type[Exception], int]] = (
    (TooLarge, 413),
    (UnsupportedFormat, 415),
    (InvalidEvent, 400),
    (InvalidInput, 400),
    (NotStorable, 400),
    (InstanceNotFound, 404),
    (UnknownWorkflow, 404),
    (ScheduleNotFound, 404),
    (InstanceExists, 409),
    (NotRetryable, 409),
    (QueueFull, 429),
    (Overloaded, 429),
    (AppNotRunning, 503),
    (RefusedValue, 400),
    (CodecError, 500),
    (StorageError, 503),
)
"""The first match counts."""
RETRYABLE: Mapping[int, bytes] = {429: b"1", 503: b"5"}
"""Statuses that invite a retry, each with its Retry-After in seconds."""


def json_answer(status: int, content: Any, headers: Sequence[Header] = ()) -> Response:
    return Response(status, to_json(content), (JSON_TYPE, *headers))


def to_json(content: Any) -> bytes:
    """JSON in ASCII, which can represent every stored text, even half a surrogate pair."""
    try:
        return _encode(content).encode()
    except ValueError:
        return _encode(_finite(content)).encode()


def _finite(content: Any) -> Any:
    """JSON has no NaN and no infinity, so they become text."""
    if isinstance(content, float) and not math.isfinite(content):
        return "NaN" if math.isnan(content) else "Infinity" if content > 0 else "-Infinity"
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in cast("dict[str, Any]", content).items()}
    return list(map(_finite, cast("list[Any]", content))) if isinstance(content, list | tuple) else content


def error_answer(error: Exception, what: str) -> Response:
    """The answer to a failed request; `what` names it in the log."""
    if isinstance(error, HTTPError):
        return _refused(error.status, str(error), error.kind, error.more, error.headers)
    if isinstance(error, InstanceNotFound):
        text = f"no instance has the id {error.instance_id!r}; GET /api/instances lists all instances"
        return _refused(404, text, InstanceNotFound.__name__)
    for kind, status in STATUSES:
        if isinstance(error, kind):
            return _refused(status, str(error), type(error).__name__, _details(error))
    _logger.error("%s failed", what, exc_info=error)
    return _refused(500, "an unexpected error occurred; see the log of the server", "InternalError")


def _details(error: Exception) -> dict[str, Any]:
    """The invalid events of a refused batch, the two parts of a message that ends with advice, or a status."""
    if isinstance(error, NotRetryable):
        return {"status": error.status}
    if isinstance(error, QueueFull):
        return {"queue": error.queue}
    if isinstance(error, InstanceExists) and error.advice:
        return {"problem": error.problem, "advice": error.advice}
    found: Sequence[tuple[int, str]] = getattr(error, "failures", ())
    return {"failures": [{"index": index, "error": text[:_LONGEST]} for index, text in found]} if found else {}


def _refused(
    status: int, text: str, kind: str, more: Mapping[str, Any] | None = None, headers: Sequence[Header] = ()
) -> Response:
    again = RETRYABLE.get(status)
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    content = {"error": shown, "error_type": kind, "retryable": again is not None or status == 500, **(more or {})}
    if again and not any(name == b"retry-after" for name, _ in headers):
        headers = (*headers, (b"retry-after", again))
    return json_answer(status, content, headers)


async def send_answer(send: Send, answer: Response, *, without_body: bool = False) -> None:
    if answer.parts is not None and not without_body:
        await _send_parts(send, answer, answer.parts)
        return
    headers, body = _guarded(answer.headers), answer.body
    if answer.status != 204:
        headers.append((b"content-length", b"%d" % len(body or b"")))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if without_body or body is None else body})


def _guarded(headers: Sequence[Header]) -> list[Header]:
    names = {name for name, _ in headers}
    return [*headers, *(guard for guard in _GUARDS if guard[0] not in names)]


async def _send_parts(send: Send, answer: Response, parts: AsyncGenerator[bytes]) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": _guarded(answer.headers)})
    try:
        async for part in parts:
            if part:
                await send({"type": "http.response.body", "body": part, "more_body": True})
    finally:
        await parts.aclose()
    await send({"type": "http.response.body", "body": b""})
