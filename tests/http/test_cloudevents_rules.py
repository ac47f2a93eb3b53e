"""What is an event and what is not, rule by rule; the tables say it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from romancy.core.model import Event
from romancy.errors import InvalidEvent, RomancyError
from romancy.http.cloudevents import InvalidBatch, Limits, TooLarge, UnsupportedFormat, parse
from tests.http.cloudevents_cases import (
    BATCHED,
    BINARY_ACCEPTED,
    BINARY_REFUSED,
    JSON,
    KEPT,
    MINIMAL,
    STRUCTURED,
    STRUCTURED_ACCEPTED,
    STRUCTURED_REFUSED,
    UNSUPPORTED,
    Headers,
    body,
    ce,
    event,
    raw,
)


def table(cases: dict[str, Any]) -> Any:
    """One test per row, named by its reason."""
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


def batch(*events: Any) -> bytes:
    return json.dumps(events).encode()


@table(STRUCTURED_ACCEPTED)
def test_structured_events(case: tuple[bytes, Event]) -> None:
    sent, expected = case
    parsed = parse(STRUCTURED, sent)
    assert parsed.events == [expected]
    assert parsed.batched is False


@table(STRUCTURED_REFUSED)
def test_no_structured_events(case: tuple[bytes, str]) -> None:
    sent, says = case
    with pytest.raises(InvalidEvent) as error:
        parse(STRUCTURED, sent)
    assert says in str(error.value)
    assert len(str(error.value)) < 400
    str(error.value).encode()  # it can be sent back


@table(STRUCTURED_ACCEPTED)
def test_what_is_an_event_is_one_in_a_batch_too(case: tuple[bytes, Event]) -> None:
    sent, expected = case
    parsed = parse(BATCHED, b"[" + sent + b" , " + sent + b"]")
    assert parsed.events == [expected, expected]
    assert parsed.batched is True


@table(BINARY_ACCEPTED)
def test_binary_events(case: tuple[Headers, bytes, Event]) -> None:
    headers, sent, expected = case
    parsed = parse(headers, sent)
    assert parsed.events == [expected]
    assert parsed.batched is False


@table(BINARY_REFUSED)
def test_no_binary_events(case: tuple[Headers, bytes, str]) -> None:
    headers, sent, says = case
    with pytest.raises(InvalidEvent) as error:
        parse(headers, sent)
    assert says in str(error.value)


@table(UNSUPPORTED)
def test_formats_not_understood(case: tuple[Headers, bytes]) -> None:
    with pytest.raises(UnsupportedFormat) as error:
        parse(*case)
    assert isinstance(error.value, RomancyError)
    assert "send" in str(error.value) or "UTF-8" in str(error.value)


@pytest.mark.parametrize("data", KEPT, ids=lambda text: text[:20].encode("ascii", "backslashreplace").decode())
def test_data_keeps_its_bytes(data: str) -> None:
    expected = event(data=data.encode(), datacontenttype=JSON)
    assert parse(STRUCTURED, raw(f'"data":  {data} ')).events == [expected]
    assert parse(STRUCTURED, raw(f'"data":{data},"ext":"x"')).events[0].data == data.encode()
    assert parse(ce(content_type=JSON), data.encode()).events == [expected]


@pytest.mark.parametrize(
    ("content_type", "batched"),
    [
        ("application/cloudevents+json", False),
        ("application/cloudevents+json; charset=utf-8", False),
        ("Application/CloudEvents+JSON;Charset=UTF-8", False),
        (" application/cloudevents+json ; x=y", False),
        ("application/cloudevents", False),
        ("application/cloudevents-batch+json", True),
        ("APPLICATION/CLOUDEVENTS-BATCH+JSON; charset=UTF-8", True),
        ("application/cloudevents-batch", True),
    ],
)
def test_the_content_type_alone_decides(content_type: str, batched: bool) -> None:
    sent = b"[" + body() + b"]" if batched else body()
    headers = [
        *ce(id="from a header", ext="x", data="bad"),
        (b"ce-id", b"again"),
        (b"CONTENT-TYPE", content_type.encode()),
    ]
    parsed = parse(headers, sent)
    assert parsed.events == [event()]
    assert parsed.batched is batched


def test_a_batch_may_be_empty() -> None:
    assert parse(BATCHED, b" [ ] ").events == []


def test_a_batch_says_everything_that_is_wrong() -> None:
    bad = [MINIMAL, {**MINIMAL, "specversion": "0.9"}, "no object", [], None, {}, {**MINIMAL, "x": 1.5}, MINIMAL]
    with pytest.raises(
        InvalidBatch, match=r"6 of 8 events are invalid, so none was accepted: event 1: .*and 3 more"
    ) as error:
        parse(BATCHED, batch(*bad))
    assert isinstance(error.value, InvalidEvent)
    assert [index for index, _ in error.value.failures] == [1, 2, 3, 4, 5, 6]
    reasons = dict(error.value.failures)
    assert "'0.9'" in reasons[1]
    assert "must be a JSON object" in reasons[2]
    assert "lacks specversion, id" in reasons[5]
    assert "'x'" in reasons[6]


def test_a_name_twice_fails_one_event_of_a_batch() -> None:
    with pytest.raises(InvalidBatch) as error:
        parse(BATCHED, b"[" + body() + b"," + raw('"id": "2"') + b"]")
    assert [index for index, _ in error.value.failures] == [1]


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"{}", "a JSON array of events"),
        (body(), "a single event is application/cloudevents+json"),
        (b"", "found nothing"),
        (b"[" + body(), "expected a comma or ]"),
        (b"[" + body() + b",]", "not JSON"),
        (b"[" + body() + b"}", "expected a comma or ]"),
        (b"[]]", "continues after its JSON"),
        (b"[NaN]", "NaN"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\xef\xbb\xbf[]", "byte order mark"),
    ],
)
def test_no_batches(sent: bytes, says: str) -> None:
    with pytest.raises(InvalidEvent) as error:
        parse(BATCHED, sent)
    assert says in str(error.value)
    assert not isinstance(error.value, InvalidBatch)


def test_a_batch_has_a_limit() -> None:
    limits = Limits(max_batch=3)
    assert len(parse(BATCHED, batch(*[MINIMAL] * 3), limits).events) == 3
    with pytest.raises(TooLarge, match="more than the 3 events allowed"):
        parse(BATCHED, batch(*[MINIMAL] * 4), limits)
    with pytest.raises(TooLarge, match="1,000"):
        parse(BATCHED, batch(*[MINIMAL] * 1001))


@pytest.mark.parametrize("levels", [1, 5, 64, 200])
@pytest.mark.parametrize("nest", [lambda n: "[" * n + "]" * n, lambda n: '{"a":' * n + "1" + "}" * n])
def test_depth_counts_the_levels_of_the_data(levels: int, nest: Any) -> None:
    limits = Limits(max_depth=levels)
    for headers, write in ((STRUCTURED, raw), (ce(content_type=JSON), lambda text: text[8:].encode())):
        assert parse(headers, write(f'"data": {nest(levels)}'), limits).events[0].data == nest(levels).encode()
        with pytest.raises(InvalidEvent, match=f"nested deeper than {levels} levels"):
            parse(headers, write(f'"data": {nest(levels + 1)}'), limits)


def test_many_brackets_are_not_deep() -> None:
    data = "[" + ",".join(["[]", '"[[[["', "{}"] * 100) + "]"
    assert parse(STRUCTURED, raw(f'"data": {data}'), Limits(max_depth=2)).events[0].data == data.encode()


@pytest.mark.parametrize("source", ["/a|b", "/{a}", "/100%", "/%zz", "http://host/\u00a3", "/a^b", "/a`b"])
def test_strictly_a_source_is_rfc_3986(source: str) -> None:
    assert parse(STRUCTURED, body(source=source)).events == [event(source=source)]
    with pytest.raises(InvalidEvent, match="source must be a URI"):
        parse(STRUCTURED, body(source=source), Limits(strict=True))


@pytest.mark.parametrize(
    "source", ["/a%20b", "urn:x:y", "http://[::1]:80/a?b=c#d", "mailto:a@b.c", "a-b_c~d!$&'()*+,;="]
)
def test_strictly_too_a_source_is_a_source(source: str) -> None:
    assert parse(STRUCTURED, body(source=source), Limits(strict=True)).events == [event(source=source)]


def test_twenty_megabytes() -> None:
    text = "x" * 20_000_000
    (one,) = parse(STRUCTURED, body(data=text)).events
    assert one.data == f'"{text}"'.encode()
    (two,) = parse(ce(content_type=JSON), b'"' + text.encode() + b'"').events
    assert two.data == one.data
    with pytest.raises(InvalidEvent) as error:
        parse(STRUCTURED, body(id=text))
    assert len(str(error.value)) < 400


def test_a_long_row_of_digits_takes_no_time() -> None:
    digits = "9" * 2_000_000
    assert parse(STRUCTURED, raw(f'"data": {digits}')).events[0].data == digits.encode()


def test_a_name_twice_among_very_many_is_found_at_once() -> None:
    many = ",".join(f'"x{n}":1' for n in range(100_000))
    with pytest.raises(InvalidEvent, match="'x99999' twice"):
        parse(STRUCTURED, raw(f'{many},"x99999":2'))
