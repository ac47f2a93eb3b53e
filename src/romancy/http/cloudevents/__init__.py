"""CloudEvents 1.0 over HTTP: requests to events, and back. The rules on one page.

Mode: only the Content-Type decides, regardless of case and parameters. `application/cloudevents-batch+json` is a batch,
`application/cloudevents+json` is one event (ce- headers are then copies and ignored), and any other or missing type is
binary mode. Other CloudEvents formats, requests without an event, and JSON in a charset other than UTF-8 raise
`UnsupportedFormat`.

Attributes: `specversion` ("1.0"), `id`, `source` and `type` are required; no default is ever filled in. null means
absent. Names consist of a-z and 0-9. Values are strings without control characters, 32-bit integers or booleans; in
headers they are always strings. Core strings are not empty and have at most 1024 characters; `source` is a URI
reference, `dataschema` an absolute URI, `datacontenttype` a media type, `time` RFC 3339. All extensions are kept. Two
have a meaning: `romancyinstanceid` is the only instance that can take the event, `expirytime` is when it expires.

Data: `event.data` holds the bytes as sent: the body, the decoded `data_base64`, the UTF-8 of a string, or the exact
slice of the body that is the JSON of `data` (the default type is `application/json`). Data of a JSON type must be
JSON. `"data": null` is data, the JSON null; with any other type it means no data. An empty body means no data.

Batches: all or nothing. `InvalidBatch.failures` lists every invalid event. A batch can contain the same event twice.

    model.py        limits, results and errors
    headers.py      binary mode
    json_format.py  structured and batched mode
    members.py      the outermost level of a JSON text
    attributes.py   rules for attributes
"""

from __future__ import annotations

from collections.abc import Iterable

from romancy.core.cloudevents import batched, binary, structured
from romancy.core.model import show
from romancy.http.cloudevents.headers import check_charset, parse_binary, split
from romancy.http.cloudevents.json_format import parse_batch, parse_structured
from romancy.http.cloudevents.model import InvalidBatch, Limits, Parsed, TooLarge, UnsupportedFormat

__all__ = [
    "InvalidBatch",
    "Limits",
    "Parsed",
    "TooLarge",
    "UnsupportedFormat",
    "batched",
    "binary",
    "parse",
    "structured",
]

_ANY = "application/cloudevents"
# Without a suffix the format is unspecified; JSON is the one that everyone must support.
_ONE = frozenset((_ANY, f"{_ANY}+json"))
_BATCH = frozenset((f"{_ANY}-batch", f"{_ANY}-batch+json"))
_DEFAULT = Limits()


def parse(headers: Iterable[tuple[bytes, bytes]], body: bytes, limits: Limits = _DEFAULT) -> Parsed:
    """Return the events in a request.

    Raises `InvalidEvent` (for a batch `InvalidBatch`), `UnsupportedFormat` or `TooLarge`, and nothing else.
    """
    content_type, attributes = split(headers)
    kind = (content_type or "").partition(";")[0].rstrip().lower()
    if kind.startswith(_ANY):
        return _parse_json(kind, content_type or "", body, limits)
    if not attributes:
        raise UnsupportedFormat(
            f"not a CloudEvent: the Content-Type is {show(content_type)}, and there are no ce- headers; "
            "send application/cloudevents+json, or ce-specversion, ce-id, ce-source and ce-type"
        )
    return Parsed([parse_binary(content_type, attributes, body, limits)], batched=False)


def _parse_json(kind: str, content_type: str, body: bytes, limits: Limits) -> Parsed:
    if kind not in _ONE and kind not in _BATCH:
        raise UnsupportedFormat(f"the format {show(kind)} is not supported; send {_ANY}+json or {_ANY}-batch+json")
    check_charset(content_type)
    if kind in _BATCH:
        return Parsed(parse_batch(body, limits), batched=True)
    return Parsed([parse_structured(body, limits)], batched=False)
