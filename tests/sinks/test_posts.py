"""`HTTPSink` on real sockets: what is sent, and what counts as delivered."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from romancy import App, Event, HTTPSink
from romancy.core.events import make_event
from romancy.core.sinks import NotDelivered
from romancy.sinks.posts import Poster
from romancy.webhooks.schemes import Arrival, make_verifier
from tests.sinks.receiver import Receiver, Request, gave_up, receiving, reply, until

KEY, OLD_KEY = ("whsec_" + base64.b64encode(text).decode() for text in (b"new " * 8, b"old " * 8))
MakePoster = Callable[..., Poster]
EVENT = make_event("order.paid", "shop", {"total": 12.50}, subject="ORD-1", id="e-1", ext={"tenant": "x"})


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def poster(receiver: Receiver) -> AsyncIterator[Callable[..., Poster]]:
    made: list[Poster] = []

    def make(*keys: str, **headers: str) -> Poster:
        decoded = [base64.b64decode(key.removeprefix("whsec_")) for key in keys]
        made.append(Poster(receiver.url, decoded, headers))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def test_what_is_sent(receiver: Receiver, poster: MakePoster) -> None:
    sink = poster(KEY, OLD_KEY, authorization="Bearer me")
    await sink.post(EVENT)
    [request] = receiver.requests
    assert request.line == "POST /events?tenant=7 HTTP/1.1"
    assert json.loads(request.body) == {
        "specversion": "1.0", "id": "e-1", "source": "shop", "type": "order.paid", "subject": "ORD-1",
        "datacontenttype": "application/json", "tenant": "x", "data": {"total": 12.5},
    }  # fmt: skip
    assert request.headers["content-type"] == "application/cloudevents+json"
    assert request.headers["authorization"] == "Bearer me"
    assert request.headers["webhook-id"] == "e-1"
    assert request.headers["accept-encoding"] == "identity"
    now = float(request.headers["webhook-timestamp"])
    for key in (KEY, OLD_KEY):
        arrival = Arrival(receiver.url, request.headers, request.body, now)
        make_verifier("standard", [key]).check(arrival)


async def test_the_trace_of_an_event_is_sent_as_headers(receiver: Receiver, poster: MakePoster) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await poster().post(make_event("paid", "shop", None, id="1", ext={"traceparent": parent, "tracestate": " a=1"}))
    await poster().post(make_event("paid", "shop", None, id="2", ext={"traceparent": "é"}))
    traced, odd = receiver.requests
    assert (traced.headers["traceparent"], traced.headers["tracestate"]) == (parent, "a=1")
    assert "traceparent" not in odd.headers


async def test_numbers_are_sent_as_they_are(receiver: Receiver, poster: MakePoster) -> None:
    event = make_event("order.paid", "shop", None, id="e")
    event.data, event.datacontenttype = b'{"price":0.10000000000000000001,"n":1e2}', "application/json"
    await poster().post(event)
    assert b'"data":{"price":0.10000000000000000001,"n":1e2}' in receiver.requests[0].body


async def test_connections_are_used_again(receiver: Receiver, poster: MakePoster) -> None:
    sink = poster()
    for _ in range(5):
        await sink.post(EVENT)
    assert (len(receiver.requests), receiver.connections) == (5, 1)


async def test_one_that_the_server_has_closed_is_replaced(receiver: Receiver, poster: MakePoster) -> None:
    async def once(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    receiver.answer = once
    sink = poster()
    for _ in range(3):
        await sink.post(EVENT)
    assert len(receiver.requests) == 3


@pytest.mark.parametrize(
    ("status", "body", "headers", "message", "wish"),
    [
        (500, b"out of\n order", [], "the server answered 500: out of order", None),
        (429, b"", ["retry-after: 7"], "the server answered 429", 7.0),
        (503, b"", ["Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"], "the server answered 503", None),
        (
            302,
            b"",
            ["location: http://else.example/"],
            "a redirect to 'http://else.example/', which is not followed",
            None,
        ),
        (400, b"\xff\x00" * 3000, [], "the server answered 400", None),
    ],
)
async def test_answers_that_refuse(
    receiver: Receiver,
    poster: MakePoster,
    status: int,
    body: bytes,
    headers: list[str],
    message: str,
    wish: float | None,
) -> None:
    receiver.answer = reply(status, body, *headers)
    with pytest.raises(NotDelivered) as caught:
        await poster().post(EVENT)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500
    assert caught.value.retry_after == wish


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_answers_that_accept(receiver: Receiver, poster: MakePoster, status: int) -> None:
    receiver.answer = reply(status) if status != 204 else receiver.answer
    await poster().post(EVENT)


async def test_the_status_decides_however_the_answer_goes_on(receiver: Receiver, poster: MakePoster) -> None:
    """An endless body, or one that never comes, costs neither memory nor time."""

    async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        with suppress(OSError):
            while True:
                writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                await writer.drain()

    async def silent(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
        await asyncio.sleep(30)

    for answer in (endless, silent):
        receiver.answer = answer
        async with asyncio.timeout(10):
            await poster().post(EVENT)


async def test_what_is_no_answer(receiver: Receiver, poster: MakePoster) -> None:
    async def nothing(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def garbage(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")

    for answer, message in ((nothing, "closed the connection"), (garbage, "not HTTP")):
        receiver.answer = answer
        with pytest.raises(NotDelivered, match=message):
            await poster().post(EVENT)


async def test_nobody_is_there() -> None:
    with pytest.raises(NotDelivered, match="no connection to 127"):
        await Poster("http://127.0.0.1:1/", [], {}).post(EVENT)


async def test_an_answer_that_drips_is_cut_off(receiver: Receiver) -> None:
    """Every byte comes in time, but the whole does not."""

    async def drip(request: Request, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            for byte in b"HTTP/1.1 200 OK\r\nx-slow: " + b"y" * 10_000:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.05)

    receiver.answer = drip
    sink = HTTPSink("crm", receiver.url, types="order.*", timeout=0.5, give_up_after=0)
    async with App(":memory:", sinks=[sink]) as app:
        await app.send_event("order.paid", "shop")
        letters = await gave_up(app)
    assert letters[0].error == "no answer within 0.5 seconds"


async def test_ids_of_any_characters(receiver: Receiver, poster: MakePoster) -> None:
    await poster().post(make_event("order.paid", "shop", None, id="zażółć 1\u2028"))
    [request] = receiver.requests
    assert request.headers["webhook-id"] == "za%c5%bc%c3%b3%c5%82%c4%87%201%e2%80%a8"
    assert json.loads(request.body)["id"] == "zażółć 1\u2028"


async def test_an_app_signs_what_it_sends(tmp_path: Path) -> None:
    verifier = make_verifier("standard", [KEY])
    async with receiving() as receiver:
        sink = HTTPSink("crm", receiver.url, types=["order.*"], secrets=[KEY])
        async with App(tmp_path / "a.db", sinks=[sink]) as app:
            await app.send_events([Event("order.paid", "shop", {"n": n}, subject=str(n % 3)) for n in range(30)])
            await until(lambda: len(receiver.requests) == 30)
    for request in receiver.requests:
        now = float(request.headers["webhook-timestamp"])
        verifier.check(Arrival(receiver.url, request.headers, request.body, now))
    assert [json.loads(r.body)["data"]["n"] % 3 for r in receiver.requests].count(0) == 10


@pytest.mark.parametrize("delay", [0.0, 0.05])
async def test_an_answer_too_many_is_not_taken_for_the_next_one(
    receiver: Receiver, poster: MakePoster, delay: float
) -> None:
    async def twice(request: Request, writer: asyncio.StreamWriter) -> None:
        await reply(200)(request, writer)
        if delay:
            await writer.drain()
            await asyncio.sleep(delay)
        await reply(200)(request, writer)
        receiver.answer = reply(503)

    receiver.answer = twice
    sink = poster()
    await sink.post(EVENT)
    await until(lambda: not sink._idle or bool(sink._idle[0]._reader._buffer))  # type: ignore[attr-defined]
    with pytest.raises(NotDelivered, match="503"):
        await sink.post(EVENT)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "ftp://x/"}, "url must be an address"),
        ({"url": "https://user:secret@x/"}, "url must be an address"),
        ({"url": None}, "is the variable it comes from set"),
        ({"url": "https://x:99999/"}, "url must be an address"),
        ({"secrets": "whsec_abc"}, "secrets must be a list"),
        ({"secrets": [None]}, "secrets must be a list"),
        ({"secrets": ["whsec_!"]}, "a secret must be base64"),
        ({"headers": {"Content-Type": "x"}}, "is set by the sink itself"),
        ({"headers": {"webhook-id": "x"}}, "is set by the sink itself"),
        ({"headers": {"x": "a\r\nb: c"}}, "sink 'crm'"),
        ({"headers": {"x": 1}}, "headers must be texts"),
        ({"types": []}, "types must name"),
    ],
)
def test_what_can_not_be_declared(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        HTTPSink(**{"name": "crm", "url": "https://crm.example/", "types": "order.*", **given})
    assert "secret@" not in str(caught.value)


def test_what_is_shown_has_no_secrets() -> None:
    sink = HTTPSink("crm", "https://crm.example/x?key=hidden", types="*", secrets=[KEY], headers={"authorization": "x"})
    assert repr(sink) == "<HTTPSink 'crm' crm.example>"
