"""Reads a request: its headers in one pass, its body within limits of size and time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast, get_origin
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from romancy.core.attributes import read_attribute
from romancy.core.strict_json import Reader
from romancy.errors import InvalidInput
from romancy.http.cloudevents import TooLarge, UnsupportedFormat
from romancy.http.responses import ClientGone, Header, HTTPError, Receive
from romancy.http.time_limits import TimeLimit
from romancy.tokens import Credential

M = TypeVar("M", bound=BaseModel)
_ATTRIBUTE = re.compile(r"where(?:\.(.+)|\[(.+)\])", re.DOTALL)
_BODY = Reader("the body", InvalidInput, exact=False)


@dataclass(slots=True)
class Head:
    """The headers that are needed; the values of a repeated header are joined by a comma."""

    fields: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    size: int = 0
    token: bytes = b""
    """The digest of the token, once it is verified."""
    granted: Sequence[Credential] = ()
    """The tokens with this secret that allow the request."""
    who: str | None = None
    """The name of the token."""

    def get(self, name: bytes) -> bytes | None:
        return self.fields.get(name)


_NEEDED = frozenset(
    {
        b"accept",
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"cookie",
        b"host",
        b"last-event-id",
        b"origin",
        b"sec-fetch-site",
        b"transfer-encoding",
        b"webhook-request-origin",
    }
)


def read_head(headers: Sequence[Header]) -> Head:
    fields: dict[bytes, bytes] = {}
    size = 0
    for name, value in headers:
        size += len(name) + len(value) + 4
        if name in _NEEDED:
            known = fields.get(name)
            fields[name] = value if known is None else known + b"," + value
    return Head(fields, size)


Hold = Callable[[int], None]
"""Called with the number of bytes held while a body is received; raises if there are too many."""
_SMALL = 64 * 1024


def _hold_any(size: int) -> None: ...


async def read_body(head: Head, receive: Receive, limit: int, timeout: TimeLimit, hold: Hold = _hold_any) -> bytes:
    """Return the whole body. A body that is too long is refused as soon as that is known."""
    declared = head.get(b"content-length")
    if declared is not None and declared.isdigit() and (len(declared) > 18 or int(declared) > limit):
        raise _too_large(limit)
    if head.get(b"content-encoding") not in (None, b"identity"):
        raise UnsupportedFormat("compressed bodies are not supported; send the body without Content-Encoding")
    try:
        with timeout.wait():
            return await _read_all(receive, limit, hold)
    except TimeoutError:
        text = f"the body did not arrive within {timeout.seconds:g} s"
        raise HTTPError(408, text, kind="RequestTimeout", headers=[(b"connection", b"close")]) from None


async def _read_all(receive: Receive, limit: int, hold: Hold) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        has_more = message.get("more_body", False)
        if has_more or size > _SMALL:  # a small body that arrives at once is not held for long
            hold(len(part))
        if not has_more:
            return b"".join((*parts, part)) if parts else part
        parts.append(part)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than the {limit:,} bytes allowed; send less, or a reference to the data")


# --- query and body -------------------------------------------------------------------------------------------------
def read_query(query: bytes, model: type[M]) -> M:
    """Validate the query parameters; the error names an unknown or invalid one."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        raise InvalidInput(f"the query is malformed: {error}") from None
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    repeatable = {name for name, info in model.model_fields.items() if get_origin(info.annotation) is list}
    given = {name: values if name in repeatable or len(values) > 1 else values[0] for name, values in found.items()}
    if "where" in model.model_fields:
        given = _with_attributes(given)
    return _validated(given, model, "the query")


def _with_attributes(given: dict[str, Any]) -> dict[str, Any]:
    """Gather `where.customer=c-7` and `where[customer]=c-7`, as typed by people and by generated clients."""
    where: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in given.items():
        found = _ATTRIBUTE.fullmatch(name)
        if found is None:
            others[name] = value
        elif isinstance(value, str):
            where[found[1] or found[2]] = read_attribute(value)
        else:
            raise InvalidInput(f"the query has {name!r} twice; an attribute has one value")
    return {**others, "where": where} if where else others


def read_model(head: Head, body: bytes, model: type[M]) -> M:
    """Validate a JSON body; an empty body counts as an empty object."""
    kind = (head.get(b"content-type") or b"application/json").partition(b";")[0].strip().lower()
    if body and kind != b"application/json":
        raise UnsupportedFormat(f"the body must be application/json, not {kind.decode('latin-1')!r}")
    if not body:
        return _validated({}, model, "the body")
    found = _BODY.read(body)
    if not isinstance(found, dict):
        raise InvalidInput("the body must be a JSON object")
    return _validated(cast("dict[str, Any]", found), model, "the body")


def _validated(found: dict[str, Any], model: type[M], what: str) -> M:
    try:
        return model.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        known = ", ".join(model.model_fields) or "none"
        raise InvalidInput(f"{what} is invalid at {where!r}: {first['msg']}; known names: {known}") from None
