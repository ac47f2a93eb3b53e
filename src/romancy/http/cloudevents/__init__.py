"""CloudEvents 1.0 over HTTP: requests to events, and back. The rules on one page.

Mode: the Content-Type alone decides, whatever its case and parameters. `application/cloudevents-batch+json` is a batch,
`application/cloudevents+json` one event (ce- headers beside it are copies and not looked at), anything else or nothing
is binary mode. Other CloudEvents formats, no event at all, JSON in another charset than UTF-8: `UnsupportedFormat`.

Attributes: `specversion` ("1.0"), `id`, `source`, `type` must be there; nothing is ever made up. null is absent. Names
are a-z and 0-9. Values are texts without control characters, integers of 32 bits, booleans; in headers always texts.
Texts of the core are not empty and at most 1024 characters; `source` is a URI reference, `dataschema` an absolute URI,
`datacontenttype` a media type, `time` RFC 3339. Any extension is kept; two mean something here: `romancyinstanceid`
names the one instance the event is for, `expirytime` says until when it is of use.

Data: `event.data` is the bytes that were sent: the body, the decoded `data_base64`, the UTF-8 of a text, or the very
slice of the body that is the JSON of `data` (type `application/json` if none is said). What says it is JSON must be
JSON. `"data": null` is data, the JSON null; with a type that is not JSON it is no data. An empty body is no data.

Batches: all or nothing; `InvalidBatch.failures` names every event that failed. The same event twice is fine.

    model.py        limits, what comes out, how things are refused
    headers.py      binary mode
    json_format.py  structured and batched mode
    members.py      the outermost level of a JSON text
    attributes.py   what attributes may hold
    writing.py      the way back
"""

from __future__ import annotations

from collections.abc import Iterable

from romancy.core.model import show
from romancy.http.cloudevents.headers import check_charset, parse_binary, split
from romancy.http.cloudevents.json_format import parse_batch, parse_structured
from romancy.http.cloudevents.model import InvalidBatch, Limits, Parsed, TooLarge, UnsupportedFormat
from romancy.http.cloudevents.writer import batched, binary, structured

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
# Without a suffix the format is not said; JSON is the one everybody has to understand.
_ONE = frozenset((_ANY, f"{_ANY}+json"))
_BATCH = frozenset((f"{_ANY}-batch", f"{_ANY}-batch+json"))
_DEFAULT = Limits()


def parse(headers: Iterable[tuple[bytes, bytes]], body: bytes, limits: Limits = _DEFAULT) -> Parsed:
    """The events a request holds.

    Raises `InvalidEvent` (for a batch `InvalidBatch`), `UnsupportedFormat` or `TooLarge`, and nothing else.
    """
    content_type, attributes = split(headers)
    kind = (content_type or "").partition(";")[0].rstrip().lower()
    if kind.startswith(_ANY):
        return _parse_json(kind, content_type or "", body, limits)
    if not attributes:
        raise UnsupportedFormat(
            f"this is no CloudEvent: its Content-Type is {show(content_type)} and it has no ce- headers; "
            "send application/cloudevents+json, or ce-specversion, ce-id, ce-source and ce-type"
        )
    return Parsed([parse_binary(content_type, attributes, body, limits)], batched=False)


def _parse_json(kind: str, content_type: str, body: bytes, limits: Limits) -> Parsed:
    if kind not in _ONE | _BATCH:
        raise UnsupportedFormat(f"events as {show(kind)} are not understood; send {_ANY}+json or {_ANY}-batch+json")
    check_charset(content_type)
    if kind in _BATCH:
        return Parsed(parse_batch(body, limits), batched=True)
    return Parsed([parse_structured(body, limits)], batched=False)
