"""Rules for context attributes, the same in every mode."""

from __future__ import annotations

import re
from typing import Any

from romancy.core.cloudevents import VERSION
from romancy.core.events import (
    MAX_PARSED,
    TARGET,
    check_data,
    check_dataschema,
    check_extension,
    check_not_ours,
    check_text,
)
from romancy.core.history import is_json
from romancy.core.model import Event, show
from romancy.core.strict_json import parse_json
from romancy.core.timestamps import parse_time
from romancy.errors import InvalidEvent
from romancy.http.cloudevents.model import Limits

_REQUIRED = ("specversion", "id", "source", "type")
_TEXTS = ("id", "source", "type", "subject", "datacontenttype", "dataschema")
_MEDIA_TYPE = re.compile(r"[!#-'*+.\w^`|~-]+/[!#-'*+.\w^`|~-]+[ \t]*(;[\t -~]*)?", re.ASCII)
_NO_URI = re.compile(r'[\s"<>\\]')
_NO_STRICT_URI = re.compile(r'[\s"<>\\^`{|}]|[^\x00-\x7f]|%(?![0-9A-Fa-f]{2})')


def make(attributes: dict[str, Any], data: bytes | None, limits: Limits, parsed: Any = None) -> Event:
    """The event that has these attributes, none of them null; raises `InvalidEvent` with what is wrong.

    `parsed`: the data, where it is JSON and was parsed and checked already.
    """
    _check_required(attributes)
    rest = dict(attributes)
    del rest["specversion"]
    core = {name: rest.pop(name, None) for name in _TEXTS}
    for name, value in core.items():
        if value is not None:
            check_text(name, value)
    check_not_ours(core["type"], core["source"])
    _check_formats(core, limits.strict)
    time = rest.pop("time", None)
    for name, value in rest.items():
        check_extension(name, value)
    target, expiry = rest.get(TARGET), rest.get("expirytime")
    if target is not None:
        check_text(TARGET, target)
    if data is not None:
        check_data(data, core["type"] or "")
    if parsed is None and data is not None and is_json(core["datacontenttype"]):
        parsed = parse_json(data, limits.max_depth)
    return Event(
        **core,
        data=data,
        time=None if time is None else parse_time("time", time),
        extensions=rest or None,
        target=target,
        expires_at=None if expiry is None else parse_time("expirytime", expiry),
        parsed=None if data is None or len(data) > MAX_PARSED else parsed,
        origin="http",
    )


def _check_required(attributes: dict[str, Any]) -> None:
    missing = [name for name in _REQUIRED if name not in attributes]
    if missing:
        them = "it" if len(missing) == 1 else "them"
        raise InvalidEvent(f"the event lacks {', '.join(missing)}; the sender must set {them}")
    version = attributes["specversion"]
    if version != VERSION:
        raise InvalidEvent(f"specversion must be {VERSION!r}, the only supported version, got {show(version)}")


def _check_formats(core: dict[str, Any], strict: bool) -> None:
    _check_uri("source", core["source"], strict)
    schema, content_type = core["dataschema"], core["datacontenttype"]
    if schema is not None:
        _check_uri("dataschema", schema, strict)
        check_dataschema(schema)
    if content_type is not None:
        _check_media_type(content_type)


def _check_media_type(text: str) -> None:
    """Refuse a datacontenttype that is not a media type."""
    if not _MEDIA_TYPE.fullmatch(text):
        raise InvalidEvent(f"datacontenttype must be a media type such as application/json, got {show(text)}")


def _check_uri(name: str, text: str, strict: bool) -> None:
    odd = (_NO_STRICT_URI if strict else _NO_URI).search(text)
    if odd:
        raise InvalidEvent(
            f"{name} must be a URI, which can't contain {odd[0]!r}, got {show(text)}; "
            "percent-encode it (and in a header once more: %20 is sent as %2520)"
        )
