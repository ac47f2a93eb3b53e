"""`POST /`: events come in, are stored before they are acknowledged, and what is no event is refused in clear words."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
from typing import Any

import pytest

from romancy.options import HTTPOptions
from tests.http.conftest import BATCH, CE, Live, assert_error, event

SEED = """curl -X POST http://localhost:8001/ \\
-H "Content-Type: application/cloudevents+json" \\
-d '{
"specversion": "1.0",
"type": "payment.completed",
"source": "payment-service",
"id": "evt-001",
"data": {
"payment_id": "PAY-123",
"amount": 99.99,
"status": "success"
}
}'"""
HEAD = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/cloudevents+json\r\n"
NOTHING = {"status": "accepted", "duplicate": False, "delivered": 0, "started": 0, "mismatched": 0}


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_an_event_sent_with_curl(live: Live) -> None:
    command = shlex.split(SEED.replace("\\\n", " ").replace("localhost:8001", f"localhost:{live.port}"))
    done = subprocess.run([*command, "-s"], capture_output=True, check=True)
    assert json.loads(done.stdout) == NOTHING
    stored = live.client.get("/api/events").json()["items"][0]
    assert (stored["id"], stored["source"], stored["data"]["amount"]) == ("evt-001", "payment-service", 99.99)


def test_a_structured_event_wakes_who_waits_for_it(live: Live) -> None:
    id = live.start("pay")
    live.until(id, "waiting_for_event")
    answer = live.send(data={"amount": 5})
    assert answer.status_code == 202
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {**NOTHING, "delivered": 1}
    assert live.result(id) == {"instance_id": id, "status": "completed", "output": 5.0, "error": None}
    assert live.send(data={"amount": 5}).json() == {**NOTHING, "duplicate": True}


def test_an_event_starts_a_workflow_or_does_not_fit(live: Live) -> None:
    assert live.send("1", "order.placed", {"sku": "tea"}).json() == {**NOTHING, "started": 1}
    assert live.send("2", "order.placed", {"sku": 7}).json() == {**NOTHING, "mismatched": 1}


def test_binary_mode(live: Live) -> None:
    headers = {"ce-specversion": "1.0", "CE-ID": "b%201", "ce-source": "/bank", "ce-type": "raw"}
    headers |= {"content-type": "application/octet-stream"}
    assert live.client.post("/", content=b"\x00\xff", headers=headers).json() == NOTHING
    stored = live.client.get("/api/events").json()["items"][0]
    assert (stored["id"], stored["data"], stored["data_base64"]) == ("b 1", None, "AP8=")


def test_a_batch_is_stored_whole_or_not_at_all(live: Live) -> None:
    good = live.client.post("/", content=json.dumps([event("1"), event("2"), event("1")]), headers=BATCH)
    assert good.status_code == 202
    assert good.json() == {"status": "accepted", "events": [NOTHING, NOTHING, {**NOTHING, "duplicate": True}]}
    bad = [event("3"), {"id": "4"}, event("5"), 7]
    found = assert_error(live.client.post("/", content=json.dumps(bad), headers=BATCH), 400)
    assert [failure["index"] for failure in found["failures"]] == [1, 3]
    assert all(failure["error"] for failure in found["failures"])
    assert {e["id"] for e in live.client.get("/api/events").json()["items"]} == {"1", "2"}


def test_an_empty_batch(live: Live) -> None:
    assert live.client.post("/", content=b"[]", headers=BATCH).json() == {"status": "accepted", "events": []}


def test_a_batch_that_is_too_long(serve: Any) -> None:
    live = serve(http=HTTPOptions(max_batch=2))
    content = json.dumps([event(str(n)) for n in range(3)])
    assert_error(live.client.post("/", content=content, headers=BATCH), 413)


@pytest.mark.parametrize("status", [200, 204])
def test_senders_that_want_another_status(serve: Any, status: int) -> None:
    answer = serve(http=HTTPOptions(accepted_status=status)).send()
    assert answer.status_code == status
    assert answer.content == b"" if status == 204 else answer.json() == NOTHING
    assert ("content-type" in answer.headers) == (status == 200)


def test_an_event_is_stored_before_it_is_acknowledged(live: Live) -> None:
    for n in range(20):
        assert live.send(str(n)).status_code == 202
        with sqlite3.connect(live.app.database) as other:
            assert other.execute("SELECT count(*) FROM romancy_events").fetchone() == (n + 1,)
        other.close()


DEEP = b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":' + b"[" * 5000 + b"]" * 5000 + b"}"
GARBAGE: list[tuple[bytes, dict[str, str], int]] = [
    (b"", CE, 400),
    (b"{", CE, 400),
    (b"[]", CE, 400),
    (b"null", CE, 400),
    (b"\xff\xfe", CE, 400),
    (DEEP, CE, 400),
    (b"[" * 500_000, CE, 400),
    (b"[" * 500_000, BATCH, 400),
    (json.dumps(event()).replace("null", "NaN").encode(), CE, 400),
    (json.dumps(event(data="\ud800")).encode(), CE, 400),
    (json.dumps({**event(), "id": ""}).encode(), CE, 400),
    (json.dumps({**event(), "specversion": "0.3"}).encode(), CE, 400),
    (b'{"a":1}', {"content-type": "application/json"}, 415),
    (b"<a/>", {"content-type": "application/cloudevents+xml"}, 415),
    (b"x", {"ce-id": "1", "content-type": "text/plain"}, 400),
    (gzip.compress(json.dumps(event()).encode()), {**CE, "content-encoding": "gzip"}, 415),
    (b"x" * 2_000_000, CE, 413),
    (b"x" * 20_000_000, CE, 413),
]


@pytest.mark.parametrize("case", range(len(GARBAGE)))
def test_garbage_is_refused_and_the_server_goes_on(live: Live, case: int) -> None:
    content, headers, status = GARBAGE[case]
    assert_error(live.client.post("/", content=content, headers=headers), status)
    assert live.send().status_code == 202
    assert len(live.client.get("/api/events").json()["items"]) == 1


def test_a_body_in_chunks(live: Live) -> None:
    def parts(text: bytes) -> Any:
        yield from (text[i : i + 7] for i in range(0, len(text), 7))

    assert live.client.post("/", content=parts(json.dumps(event()).encode()), headers=CE).status_code == 202


def test_a_body_in_chunks_that_is_too_large(serve: Any) -> None:
    live = serve(http=HTTPOptions(max_body=1000))
    answer = live.client.post("/", content=(b"x" * 100 for _ in range(1000)), headers=CE)
    assert_error(answer, 413, "TooLarge")
    assert live.send().status_code == 202


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: nine\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"\x00" + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused(live: Live, request_: bytes) -> None:
    assert re.match(rb"HTTP/1.1 4\d\d ", live.raw(request_, end=True))
    assert live.send().status_code == 202


def test_a_client_that_hangs_up_in_the_middle_stores_nothing(live: Live) -> None:
    body = json.dumps(event()).encode()
    assert live.raw(HEAD + b"content-length: %d\r\n\r\n" % (len(body) + 5) + body, end=True) == b""
    assert live.client.get("/api/events").json()["items"] == []


def test_a_declared_length_that_is_too_short_stores_nothing(live: Live) -> None:
    body = json.dumps(event()).encode()
    head = (
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/cloudevents+json\r\ncontent-length: 9\r\n\r\n"
    )
    assert live.raw(head + body, end=True).startswith(b"HTTP/1.1 400 ")
    assert live.client.get("/api/events").json()["items"] == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
def test_only_post_delivers(live: Live, method: str) -> None:
    answer = live.client.request(method, "/", content=json.dumps(event()), headers=CE)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST, OPTIONS"
    assert live.client.get("/api/events").json()["items"] == []


def test_a_browser_is_shown_to_the_viewer(live: Live) -> None:
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for method in ("GET", "HEAD"):
        answer = live.client.request(method, "/", headers=browser, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/viewer/")
    assert live.client.get("/", headers=browser, follow_redirects=True).status_code == 200
    assert live.client.get("/", headers={"accept": "application/json"}).status_code == 405
    assert live.client.put("/", headers=browser).status_code == 405
    assert live.client.get("/nothing", headers=browser).status_code == 404


def test_nothing_is_ever_a_redirect(live: Live) -> None:
    for path in ("/api/instances/", "/health/live/", "/api", "/cancel", "/openapi.json/"):
        for method in ("GET", "POST"):
            assert_error(live.client.request(method, path), 404)


def test_webhook_senders_are_greeted_if_they_are_known(serve: Any) -> None:
    live = serve(http=HTTPOptions(allowed_origins=["events.example"], allowed_rate=120))
    asks = {"webhook-request-origin": "Events.Example", "webhook-request-rate": "1000"}
    granted = live.client.options("/", headers=asks)
    assert granted.status_code == 200
    assert granted.headers["webhook-allowed-origin"] == "events.example"
    assert granted.headers["webhook-allowed-rate"] == "120"
    assert granted.headers["allow"] == "POST, OPTIONS"
    for headers in ({}, {"webhook-request-origin": "evil.example"}, {"webhook-request-origin": "*"}):
        denied = live.client.options("/", headers=headers)
        assert (denied.status_code, denied.headers["allow"]) == (200, "POST, OPTIONS")
        assert not [name for name in denied.headers if name.startswith("webhook")]
    assert live.send().status_code == 202, "deliveries need no origin"


def test_webhook_senders_of_everywhere(serve: Any) -> None:
    live = serve(http=HTTPOptions(allowed_origins=["*"]))
    granted = live.client.options("/", headers={"webhook-request-origin": "anybody"})
    assert (granted.headers["webhook-allowed-origin"], granted.headers["webhook-allowed-rate"]) == ("*", "*")
    assert "webhook-allowed-origin" not in live.client.options("/").headers, "nobody asked"


def test_nobody_is_greeted_by_default(live: Live) -> None:
    denied = live.client.options("/", headers={"webhook-request-origin": "events.example"})
    assert "webhook-allowed-origin" not in denied.headers
