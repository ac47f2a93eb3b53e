"""Constraints on texts and events as JSON Schema, so that `/openapi.json` does not promise more than is accepted.

A schema can't express everything: a text of fewer than 1024 characters can have too many bytes, data can be nested too
deeply, bytes in base64 may not be JSON, 1.0 is not an integer in a CloudEvent, and each workflow has its own arguments.
"""

from __future__ import annotations

from typing import Any

from romancy.core.attributes import MAX_NAME
from romancy.core.attributes import MAX_TEXT as MAX_VALUE
from romancy.core.events import MAX_BYTES, MAX_TEXT, TARGET

Schema = dict[str, Any]

_PLANES = "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
_NO_TEXT = rf"\u0000-\u001f\u007f-\u009f\ufdd0-\ufdef{_PLANES}"
_NO_URI = r'\s"<>\\'
_TOKEN = r"[!#-'*+.0-9A-Z^_`a-z|~-]+"
_JSON_TYPE = r"^[^;]*[/+][jJ][sS][oO][nN][ \t]*(;|$)"
_BASE64 = r"^([0-9A-Za-z+/]{4})*([0-9A-Za-z+/]{2}==|[0-9A-Za-z+/]{3}=)?$"
_INTEGER = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}


def _text(characters: str = rf"^[^{_NO_TEXT}]+$", **more: Any) -> Schema:
    """A text attribute of an event: limited in characters, and in bytes to what an index takes."""
    short = {"maxLength": MAX_BYTES // 4}
    plain = {"maxLength": MAX_TEXT, "pattern": r"^[ -~]*$"}
    return {"type": "string", "minLength": 1, "pattern": characters, "anyOf": [short, plain], **more}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_TIME: Schema = {"type": "string", "format": "date-time"}
_URI = _text(rf"^[^{_NO_TEXT}{_NO_URI}]+$")
_ABSOLUTE = _text(rf"^[A-Za-z][A-Za-z0-9+.-]*:[^{_NO_TEXT}{_NO_URI}]+$")
_EXTENSION: Schema = {
    "anyOf": [
        {"type": "string", "pattern": rf"^[^{_NO_TEXT}]*$"},
        _INTEGER,
        {"type": "boolean"},
        {"type": "null"},
    ]
}
CLOUD_EVENT: Schema = {
    "type": "object",
    "title": "CloudEvent",
    "description": "An event in the CloudEvents JSON format. Other attributes are kept as extensions.",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0", "type": "string"},
        "id": _text(),
        "source": _URI,
        "type": _text(),
        "subject": _or_null(_text()),
        "time": _or_null(_TIME),
        "datacontenttype": _or_null(_text(rf"^{_TOKEN}/{_TOKEN}[ \t]*(;[\t -~]*)?$")),
        "dataschema": _or_null(_ABSOLUTE),
        "data": {},
        "data_base64": _or_null({"type": "string", "pattern": _BASE64, "contentEncoding": "base64"}),
        TARGET: _or_null(_text(description="The id of an instance. No other instance can take the event.")),
        "expirytime": _or_null(_TIME),
    },
    "propertyNames": {"pattern": r"^([a-z0-9]+|data_base64)$", "maxLength": MAX_TEXT},
    "additionalProperties": _EXTENSION,
    "not": {"required": ["data", "data_base64"], "properties": {"data_base64": {"type": "string"}}},
    "if": {
        "required": ["datacontenttype"],
        "properties": {"datacontenttype": {"type": "string", "not": {"pattern": _JSON_TYPE}}},
    },
    "then": {"properties": {"data": {"type": ["string", "null"]}}},
}
"""Data of a type other than JSON is text. An event has `data` or `data_base64`, not both."""

INSTANCE_ID: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": r"^[\p{L}\p{M}\p{N}\p{P}\p{S} ]+$",
    "description": "Printable characters.",
}
KWARGS: Schema = {"type": "object", "propertyNames": {"not": {"const": "instance_id"}}, "additionalProperties": True}

ATTRIBUTES: Schema = {
    "type": "object",
    "propertyNames": {"pattern": rf"^[A-Za-z0-9_.-]{{1,{MAX_NAME}}}$"},
    "additionalProperties": {
        "anyOf": [
            {"type": "string", "maxLength": MAX_VALUE},
            {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
            {"type": "boolean"},
            {"type": "null"},
        ]
    },
}

# --- cursors: a position, written as JSON and then in hexadecimal -----------------------------------------------------
_NUMBER = "(30|3[1-9](3[0-9]){0,17})"
_DIGIT = "(3[0-9]|6[1-6])"
_WHOLE = f"75((3[0-9]|6[1-356]){_DIGIT}|643[0-7]){_DIGIT}{{2}}"
_PAIR = f"7564(3[89]|6[12]){_DIGIT}{{2}}5c75646[3-6]{_DIGIT}{{2}}"
_ESCAPE = f"5c(22|5c|{_WHOLE}|{_PAIR})"
_STRING = f"22(2[013-9a-f]|[346][0-9a-f]|5[0-9abdef]|7[0-9a-e]|{_ESCAPE})*22"


def cursor(*parts: type) -> Schema:
    """The cursor of a list whose positions consist of numbers and texts."""
    inside = "2c20".join(_NUMBER if part is int else _STRING for part in parts)
    return {"type": "string", "pattern": f"^5b{inside}5d$"}
