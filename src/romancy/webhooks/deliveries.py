"""The content of a delivery: JSON, or a form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeAlias, cast

from romancy.core.strict_json import parse_json
from romancy.errors import InvalidEvent
from romancy.webhooks.schemes import is_form, read_form


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery whose sender is known."""

    headers: Mapping[str, str]
    body: bytes
    content: bytes
    """The content as JSON: as it was sent, or made from a form."""
    fields: Any
    """The same, parsed."""
    is_exact: bool = True
    """Whether `fields` has numbers as they were sent."""


class Forms(Enum):
    """Which deliveries of a sender are forms.

    Most senders don't sign the Content-Type. Someone who changes it must not get JSON split at each `&`: text of an
    outsider inside the JSON would become fields.
    """

    NONE = auto()
    UNLESS_JSON = auto()
    """Forms and JSON are both signed as bytes. A body that begins like JSON is JSON."""
    AS_DECLARED = auto()
    """Forms are signed field by field, so the Content-Type has been checked with the signature."""


def read_delivery(headers: Mapping[str, str], body: bytes, forms: Forms, wrapped: str | None) -> Delivery:
    """Return the content of a delivery. `wrapped`: the field of a form that has JSON in it."""
    is_json = not is_form(headers) or (forms is Forms.UNLESS_JSON and body.lstrip()[:1] in (b"{", b"["))
    if is_json:
        return Delivery(headers, body, body, parse_json(body))
    if forms is Forms.NONE:
        raise InvalidEvent("this sender sends JSON, but the Content-Type of this delivery is that of a form")
    return _read_form(headers, body, wrapped)


def _read_form(headers: Mapping[str, str], body: bytes, wrapped: str | None) -> Delivery:
    form: dict[str, Any] = {}
    for name, value in read_form(body, InvalidEvent):
        known = form.get(name)
        form[name] = value if known is None else [*(known if isinstance(known, list) else [known]), value]
    inner = form.get(wrapped) if wrapped is not None else None
    if isinstance(inner, str):
        content = inner.encode()
        return Delivery(headers, body, content, parse_json(content))
    return Delivery(headers, body, json.dumps(form, ensure_ascii=False, separators=(",", ":")).encode(), form)


# --- reading values ---------------------------------------------------------------------------------------------------
Get: TypeAlias = Callable[[Delivery], "str | None"]
"""Returns a value of a delivery, or None if it is not there."""


def field(path: str) -> Get:
    """Read a field of the content by its path, as in `data.object.id`."""
    names = path.split(".")

    def get(delivery: Delivery) -> str | None:
        value = delivery.fields
        for name in names:
            value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
        is_plain = isinstance(value, str | int) and not isinstance(value, bool)
        return str(cast("str | int", value)) or None if is_plain else None

    return get


def header(name: str) -> Get:
    return lambda delivery: delivery.headers.get(name) or None


def first(*gets: Get) -> Get:
    """Return the first value that is there."""
    return lambda delivery: next((value for get in gets if (value := get(delivery)) is not None), None)


def named(get: Get, name: str) -> Get:
    """Return this name if the value is there."""
    return lambda delivery: name if get(delivery) is not None else None


def joined(*gets: Get) -> Get:
    """Join values by a slash."""

    def join(delivery: Delivery) -> str | None:
        values = [value for get in gets if (value := get(delivery)) is not None]
        return "/".join(values) if len(values) == len(gets) else None

    return join


def nothing(delivery: Delivery) -> None:
    return None


def digest(delivery: Delivery) -> str:
    """Return a hash of the body: the same delivery again has the same."""
    return hashlib.sha256(delivery.body).hexdigest()
