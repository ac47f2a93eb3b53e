"""The CloudEvents SDK for Python and ours understand each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from cloudevents.core.bindings import http as sdk
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from romancy.core.model import Event, to_us
from romancy.http.cloudevents import binary, parse, structured

WHEN = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=2)))
ATTRIBUTES: dict[str, Any] = {
    "specversion": "1.0",
    "id": "id-1",
    "source": "/orders/eu",
    "type": "order.placed",
    "subject": 'Euro \u20ac \U0001f600 100% "quoted"',
    "time": WHEN,
    "dataschema": "https://example.com/schema",
    "tenant": "a b",
}
OURS = Event(
    id="id-1",
    source="/orders/eu",
    type="order.placed",
    subject='Euro \u20ac \U0001f600 100% "quoted"',
    time=to_us(WHEN),
    dataschema="https://example.com/schema",
    extensions={"tenant": "a b"},
)
DATA = [
    pytest.param("application/json", {"a": [1, 2.5, None, "\u20ac"]}, b'{"a": [1, 2.5, null, "\\u20ac"]}', id="JSON"),
    pytest.param("text/plain", "h\u00e9llo", "h\u00e9llo".encode(), id="text"),
    pytest.param("application/octet-stream", b"\x00\xff", b"\x00\xff", id="bytes"),
    pytest.param("application/json", None, None, id="nothing"),
]


def ours(content_type: str, data: bytes | None) -> Event:
    return Event(
        **{**{name: getattr(OURS, name) for name in OURS.__slots__}, "data": data, "datacontenttype": content_type}
    )


def headers(message: sdk.HTTPMessage) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in message.headers.items()]


@pytest.mark.parametrize(("content_type", "data", "raw"), DATA)
@pytest.mark.parametrize("write", [sdk.to_structured, sdk.to_binary])
def test_what_the_sdk_writes_is_read_here(write: Any, content_type: str, data: Any, raw: bytes | None) -> None:
    message = write(CloudEvent({**ATTRIBUTES, "datacontenttype": content_type}, data), JSONFormat())
    assert parse(headers(message), message.body).events == [ours(content_type, raw)]


@pytest.mark.parametrize(("content_type", "data", "raw"), DATA)
@pytest.mark.parametrize("write", [structured, binary])
def test_what_is_written_here_the_sdk_reads(write: Any, content_type: str, data: Any, raw: bytes | None) -> None:
    sent, body = write(ours(content_type, raw))
    message = sdk.HTTPMessage({name.decode(): value.decode() for name, value in sent}, body)
    read = sdk.from_http(message, JSONFormat(), CloudEvent)
    expected = {**ATTRIBUTES, "time": WHEN.astimezone(UTC), "datacontenttype": content_type}
    assert {name: value for name, value in read.get_attributes().items() if value is not None} == expected
    assert read.get_data() == data
