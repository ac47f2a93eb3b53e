"""What is written is read back as the same event, and nothing that arrives can do more than be refused."""

from __future__ import annotations

import json
import string
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from romancy.core.model import Event, from_us
from romancy.errors import InvalidEvent
from romancy.http.cloudevents import Limits, TooLarge, UnsupportedFormat, batched, binary, parse, structured
from tests.http.cloudevents_cases import BATCHED, STRUCTURED, ce, event

NO_TEXT = [chr(plane << 16 | code) for plane in range(17) for code in (0xFFFE, 0xFFFF)]
NO_TEXT += [chr(code) for code in range(0xFDD0, 0xFDF0)]
CHARACTERS = st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="".join(NO_TEXT))
TEXT = st.text(CHARACTERS, min_size=1, max_size=30).filter(lambda text: text.strip(" \t") == text)
URI = st.text(string.ascii_letters + string.digits + "/:?#@!$&'()*+,;=-._~%\u00e9\u20ac", min_size=1, max_size=30)
TAKEN = "specversion id source type subject time datacontenttype dataschema data expirytime romancyinstanceid".split()
NAMES = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=25).filter(lambda name: name not in TAKEN)
VALUES = st.one_of(TEXT, st.booleans(), st.integers(-(2**31), 2**31 - 1), st.just(""))
TIMES = st.datetimes().map(lambda moment: int((moment - from_us(0).replace(tzinfo=None)).total_seconds() * 1000) * 1000)
PLAIN_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


def as_json(value: Any, ascii: bool, indent: int | None) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=ascii, indent=indent).encode()
    except UnicodeEncodeError:
        return b'"\\u0000"'


JSON_DATA = st.one_of(
    st.builds(as_json, PLAIN_JSON, st.booleans(), st.sampled_from([None, 2])),
    st.sampled_from([b"1.0", b"1e400", b"-0", b"9" * 30, b' {"a": 1}\n', b"null"]),
).filter(lambda raw: b"\\ud" not in raw)
CONTENT = st.one_of(
    st.tuples(st.sampled_from(["application/json", "Application/X+JSON; v=1"]), st.none() | JSON_DATA),
    st.tuples(st.sampled_from(["text/plain", "text/xml; charset=utf-8"]), st.text(CHARACTERS).map(str.encode)),
    st.tuples(st.sampled_from([None, "image/png", "text/plain"]), st.none() | st.binary(max_size=40)),
)


@st.composite
def events(draw: st.DrawFn) -> Event:
    content_type, data = draw(CONTENT)
    extensions = draw(st.dictionaries(NAMES, VALUES, max_size=4))
    target = draw(st.none() | TEXT)
    if target is not None:
        extensions["romancyinstanceid"] = target
    return Event(
        id=draw(TEXT),
        source=draw(URI),
        type=draw(TEXT),
        data=data,
        subject=draw(st.none() | TEXT),
        time=draw(st.none() | TIMES),
        datacontenttype=content_type,
        dataschema=draw(st.none() | URI.map(lambda text: f"urn:{text}")),
        extensions=extensions or None,
        target=target,
    )


def as_headers(event: Event) -> Event:
    """An event as binary mode can say it: all attributes are texts, and empty data is none."""
    said = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in (event.extensions or {}).items()
    }
    return replace(event, data=event.data or None, extensions=said or None)


@given(events())
@example(event(data=b"1e400", datacontenttype="application/json"))
@example(event(data=b"", datacontenttype="text/plain"))
@example(event(data=b"\xff", datacontenttype="text/plain"))
def test_every_mode_brings_back_the_event(sent: Event) -> None:
    assert parse(*structured(sent)).events == [sent]
    assert parse(*batched([sent, sent])).events == [sent, sent]
    assert parse(*binary(sent)).events == [as_headers(sent)]


@given(events())
def test_headers_are_what_the_specification_allows(sent: Event) -> None:
    headers, body = binary(replace(sent, source="/s", dataschema=None))
    for name, value in headers:
        if name != b"content-type":
            assert all(0x21 <= byte <= 0x7E and byte not in b'"' for byte in value)
    assert parse(headers, body, Limits(strict=True)).events == [as_headers(replace(sent, source="/s", dataschema=None))]


def test_the_target_is_written_as_an_extension() -> None:
    for write in (structured, binary):
        (read,) = parse(*write(event(target="order-1"))).events
        assert read == event(target="order-1", extensions={"romancyinstanceid": "order-1"})


def test_no_extension_is_lost_for_want_of_a_target() -> None:
    (read,) = parse(*structured(event(extensions={"romancyinstanceid": "order-1"}))).events
    assert read.extensions == {"romancyinstanceid": "order-1"}


def test_json_stays_json_and_text_stays_text() -> None:
    _, body = structured(event(data=b'{"a": 1.0}', datacontenttype="application/json", time=1))
    assert body.endswith(b',"data":{"a": 1.0}}')
    assert json.loads(body)["time"] == "1970-01-01T00:00:00.000001Z"
    _, body = structured(event(data="\u20ac".encode(), datacontenttype="text/plain"))
    assert json.loads(body)["data"] == "\u20ac"
    _, body = structured(event(data=b"1"))
    assert json.loads(body)["data_base64"] == "MQ=="


def test_an_event_in_an_event_is_not_sent_in_binary_mode() -> None:
    nested = event(data=b"{}", datacontenttype="application/cloudevents+json")
    with pytest.raises(InvalidEvent, match="send it structured"):
        binary(nested)
    assert parse(*structured(nested)).events == [nested]


HEADERS = st.lists(
    st.tuples(
        st.one_of(
            st.binary(max_size=12), st.sampled_from([b"ce-id", b"ce-time", b"ce-x", b"ce-source", b"content-type"])
        ),
        st.one_of(st.binary(max_size=12), st.text('a"%\\0Ee2 ', max_size=8).map(str.encode)),
    ),
    max_size=4,
)
FRAGMENTS = st.lists(
    st.one_of(
        st.sampled_from(
            [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u", b"d800", b"NaN", b"null", b"1e9", b"-"]
        ),
        st.sampled_from([b'"id":"1"', b'"source":"/s"', b'"type":"t"', b'"specversion":"1.0"', b'"data":', b'"x":']),
        st.binary(max_size=4),
    ),
    max_size=20,
).map(b"".join)
TYPES = st.sampled_from(
    [b"application/cloudevents+json", b"application/cloudevents-batch+json", b"application/json", b"x"]
)


@settings(max_examples=500)
@given(HEADERS, st.booleans(), TYPES, FRAGMENTS | st.binary(), st.booleans())
def test_anything_is_an_event_or_refused(
    headers: list[tuple[bytes, bytes]], complete: bool, content_type: bytes, body: bytes, strict: bool
) -> None:
    headers = [*headers, (b"content-type", content_type), *(ce() if complete else [])]
    with suppress(InvalidEvent, UnsupportedFormat, TooLarge):
        for parsed in parse(headers, body, Limits(max_batch=2, max_depth=2, strict=strict)).events:
            assert parse(*structured(parsed)).events == [parsed]


@settings(max_examples=300)
@given(FRAGMENTS)
def test_nothing_is_read_that_is_not_json(inside: bytes) -> None:
    """Whatever comes through is an object to Python's own parser too, with the same data."""
    body = b'{"id":"1","source":"/s","type":"t","specversion":"1.0","data":%b}' % inside
    with suppress(InvalidEvent):
        (read,) = parse(STRUCTURED, body).events
        assert json.loads(body)["data"] == json.loads(read.data or b"")
        assert parse(BATCHED, b"[%b]" % body).events == [read]
