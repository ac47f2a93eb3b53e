"""The control API: looking at instances, waits, history and events; starting, cancelling, resuming."""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pytest

from romancy import WorkflowContext, wait_event, workflow
from romancy.options import HTTPOptions
from tests.http.conftest import JSON, Live, assert_error

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def get(live: Live, path: str, **params: Any) -> Any:
    answer = live.client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_instance_and_what_it_waits_for(live: Live) -> None:
    live.start("pay", "ORD-1", id="p")
    live.until("p", "waiting_for_event")
    found = get(live, "/api/instances/p")
    assert found["status"] == "waiting_for_event"
    assert found["input"] == {"order": "ORD-1"}
    assert TIME.fullmatch(found["started_at"])
    assert found["finished_at"] is None
    (wait,) = found["waits"]
    assert (wait["kind"], wait["types"], wait["wait_id"]) == ("event", ["paid"], "paid:1")
    assert get(live, "/api/waits")["items"] == [wait]
    assert get(live, "/api/waits", instance_id="p", type="paid")["items"] == [wait]
    assert get(live, "/api/waits", type="other")["items"] == []


def test_an_id_nobody_has_is_told_in_the_words_of_http(live: Live) -> None:
    found = assert_error(live.client.get("/api/instances/nosuch"), 404, "InstanceNotFound")
    assert found["error"] == "no instance has the id 'nosuch'; GET /api/instances lists all instances"
    assert_error(live.client.post("/cancel/nosuch"), 404, "InstanceNotFound")


def test_a_refusal_is_logged_as_text(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "romancy"):
        assert live.client.get("/api/instances", params={"limit": "many"}).status_code == 400
    [said] = [text for text in caplog.messages if "was answered" in text]
    assert said.startswith("""GET '/api/instances' was answered 400: {"error":""")


def test_instances_are_listed_newest_first_in_pages(live: Live) -> None:
    ids = [live.start("nap", id=f"n{i}") for i in range(5)]
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = get(live, "/api/instances", limit=2, **cursor)
        seen += [item["instance_id"] for item in page["items"]]
        if page["cursor"] is None:
            break
        cursor = {"cursor": page["cursor"]}
    assert seen == ids[::-1]


def test_instances_are_filtered(live: Live) -> None:
    live.start("nap", id="sleeper")
    live.until("sleeper", "waiting_for_timer")
    live.start("pay", "ORD-7", id="payer")
    assert live.result(live.start("fails", id="failed"))["status"] == "failed"

    def ids(**params: Any) -> set[str]:
        return {item["instance_id"] for item in get(live, "/api/instances", **params)["items"]}

    assert ids() == {"sleeper", "payer", "failed"}
    assert ids(status="failed") == {"failed"}
    assert ids(status=["failed", "waiting_for_timer"]) == {"failed", "sleeper"}
    assert ids(workflow="pay") == {"payer"}
    assert ids(text="ORD-7") == {"payer"}
    hour = timedelta(hours=1)
    assert ids(started_after=(datetime.now(UTC) - hour).isoformat()) == ids()
    assert ids(started_after=(datetime.now(UTC) + hour).isoformat()) == set()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/api/instances?limit=0", "limit"),
        ("/api/instances?limit=x", "limit"),
        ("/api/instances?limit=5&limit=6", "limit"),
        ("/api/instances?status=sleeping", "status"),
        ("/api/instances?stauts=failed", "stauts"),
        ("/api/instances?started_after=2024-01-01T00:00:00", "started_after"),
        ("/api/instances?cursor=zz", "not a cursor"),
        ("/api/instances?cursor=5b315d", "not a cursor"),
        (f"/api/instances?cursor={(b'[' * 15_000).hex()}", "not a cursor"),
        (f"/api/events?cursor={json.dumps(['x']).encode().hex()}", "not a cursor"),
        (f"/api/waits?cursor={json.dumps([1, 2]).encode().hex()}", "not a cursor"),
        ("/api/instances?text=%ff", "query"),
        ("/api/events?unmatched=perhaps", "unmatched"),
        ("/api/workflows?x=1", "x"),
        ("/api/instances/p/result?timeout=61", "timeout"),
        ("/api/instances/p/result?timeout=nan", "timeout"),
    ],
)
def test_parameters_that_make_no_sense(live: Live, path: str, says: str) -> None:
    assert says in assert_error(live.client.get(path), 400, "InvalidInput")["error"]


@pytest.mark.parametrize(
    "id", ["a/b", "a/b:1", "a b", "a?b#c", "ü/€", "a%2Fb", "x/history", "x/result", "history", "/x/", "{id}"]
)
def test_ids_of_all_kinds(live: Live, id: str) -> None:
    live.start("nap", id=id)
    for path in {quote(id, safe=""), quote(id)} if not id.endswith(("/history", "/result")) else {quote(id, safe="")}:
        assert get(live, f"/api/instances/{path}")["instance_id"] == id
        assert get(live, f"/api/instances/{path}/history")["instance_id"] == id
        assert get(live, f"/api/instances/{path}/result")["instance_id"] == id
    assert live.client.post(f"/cancel/{quote(id, safe='')}").json() == {"instance_id": id, "status": "cancelled"}


@pytest.mark.parametrize("id", ["nobody", "%ff", "%00", "a" * 5000, "%ED%A0%80"])
def test_instances_that_are_not_there(live: Live, id: str) -> None:
    for method, path in [
        ("GET", f"/api/instances/{id}"),
        ("GET", f"/api/instances/{id}/history"),
        ("GET", f"/api/instances/{id}/result?timeout=1"),
        ("POST", f"/api/instances/{id}/resume"),
        ("POST", f"/cancel/{id}"),
    ]:
        assert_error(live.client.request(method, path), 404, "InstanceNotFound")


def test_history_and_events_say_who_received_what(live: Live) -> None:
    live.start("pay", id="p")
    live.until("p", "waiting_for_event")
    live.send("e1", data={"amount": 2}, subject="ORD-1", shade="blue")
    live.send("e2", "other", data="<x>")
    assert live.result("p")["output"] == 2.0
    entries = get(live, "/api/instances/p/history")["entries"]
    assert [entry["kind"] for entry in entries] == ["started", "event_received"]
    assert entries[1]["event"]["id"] == "e1"
    newest, oldest = get(live, "/api/events")["items"]
    assert (newest["id"], newest["received_by"], newest["data"]) == ("e2", [], "<x>")
    assert oldest["received_by"] == [{"instance_id": "p", "wait_id": "paid:1"}]
    assert (oldest["subject"], oldest["extensions"]) == ("ORD-1", {"shade": "blue"})
    assert TIME.fullmatch(oldest["accepted_at"])
    assert [e["id"] for e in get(live, "/api/events", unmatched=True)["items"]] == ["e2"]
    assert [e["id"] for e in get(live, "/api/events", type="paid")["items"]] == ["e1"]
    assert [e["id"] for e in get(live, "/api/events", instance_id="p")["items"]] == ["e1"]
    page = get(live, "/api/events", limit=1)
    assert [e["id"] for e in get(live, "/api/events", limit=1, cursor=page["cursor"])["items"]] == ["e1"]


def test_everything_stored_can_be_shown(live: Live) -> None:
    live.start("odd", "x", id="o")
    assert live.result("o")["status"] == "completed"
    assert get(live, "/api/instances/o")["output"] == {"text": "x", "number": "NaN", "far": "-Infinity"}
    assert get(live, "/api/instances/o/history")["entries"][1]["kind"] == "activity_completed"
    with sqlite3.connect(live.app.database) as other:
        other.execute("""UPDATE romancy_instances SET output = '{"half": "\\ud83d"}', input = x'ff'""")
    other.close()
    found = live.client.get("/api/instances").json()["items"][0]
    assert found["output"] == {"half": "\ud83d"}
    assert found["input"] == {"base64": "/w=="}


def test_workflows_are_listed(live: Live) -> None:
    items = {item["name"]: item for item in get(live, "/api/workflows")["items"]}
    assert items["pay"] == {
        "name": "pay",
        "description": "Waits for a payment.",
        "parameters": ["order"],
        "on_event": [],
    }
    assert items["placed"]["on_event"] == ["order.placed"]


# --- starting -------------------------------------------------------------------------------------------------------
def start(live: Live, name: str, body: Any) -> Any:
    return live.client.post(f"/api/workflows/{name}/start", json=body)


def test_arguments_are_read_by_the_annotations(live: Live) -> None:
    body = {"args": [{"sku": "tea", "count": 2}], "kwargs": {"gift": True}, "instance_id": "b"}
    first = start(live, "buy", body)
    assert (first.status_code, first.json()) == (201, {"instance_id": "b"})
    assert live.result("b")["output"] == "2 tea as a gift"
    again = start(live, "buy", body)
    assert (again.status_code, again.json()) == (200, {"instance_id": "b"})
    other = start(live, "buy", {**body, "kwargs": {}})
    assert "a different input" in assert_error(other, 409, "InstanceExists")["error"]
    assert_error(start(live, "nap", {"instance_id": "b"}), 409)
    by_name = start(live, "buy", {"kwargs": {"order": {"sku": "milk"}}})
    assert live.result(by_name.json()["instance_id"])["output"] == "1 milk"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "order"),
        ({"args": [1, 2]}, "too many"),
        ({"args": ["tea"]}, "order"),
        ({"args": [{"sku": "tea", "count": "many"}]}, "count"),
        ({"kwargs": {"order": {"sku": "tea"}, "wrapped": 1}}, "wrapped"),
        ({"args": [{"sku": "tea"}], "kwargs": {"instance_id": "x"}}, "instance_id"),
        ({"args": {}}, "args"),
        ({"arguments": []}, "arguments"),
        ({"args": [{"sku": "tea"}], "instance_id": ""}, "instance id"),
        ({"args": [{"sku": "tea"}], "instance_id": "a\nb"}, "instance id"),
        ({"args": [{"sku": "tea"}], "instance_id": 7}, "instance_id"),
        ([], "object"),
    ],
)
def test_arguments_that_do_not_fit(live: Live, body: Any, says: str) -> None:
    found = assert_error(start(live, "buy", body), 400, "InvalidInput")
    assert says in found["error"]
    assert "stored" not in found["error"]
    assert get(live, "/api/instances")["items"] == []


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"args": [NaN]}',
        b'{"args": ["\\ud800"]}',
        b'{"args": [1' + b"0" * 5000 + b"]}",
        b'{"args":' * 900,
        b"\xff",
    ],
)
def test_bodies_that_are_no_json(live: Live, content: bytes) -> None:
    for path in ("/api/workflows/unheard/start", "/cancel/x"):
        assert_error(live.client.post(path, content=content, headers=JSON), 400, "InvalidInput")


def test_a_body_of_another_kind(live: Live) -> None:
    answer = live.client.post("/cancel/x", content="reason=x", headers={"content-type": "text/plain"})
    assert "application/json" in assert_error(answer, 415)["error"]
    assert live.start("nap", id="n") == "n"
    with_charset = {"content-type": "Application/JSON; charset=utf-8"}
    assert live.client.post("/cancel/n", content=b"{}", headers=with_charset).status_code == 200


def test_a_body_that_is_too_large(serve: Any) -> None:
    live = serve(http=HTTPOptions(max_body=100))
    assert_error(start(live, "nap", {"args": ["x" * 100]}), 413)


def test_a_workflow_that_another_worker_has(live: Live) -> None:
    id = live.start("elsewhere", 1, id="e", x=2)
    assert get(live, f"/api/instances/{id}")["input"] == {"args": [1], "kwargs": {"x": 2}}


def test_a_workflow_that_events_start(live: Live) -> None:
    assert "order.placed" in assert_error(start(live, "placed", {"args": [{}]}), 400)["error"]


# --- acting ---------------------------------------------------------------------------------------------------------
def test_cancelling(live: Live) -> None:
    live.start("nap", id="n")
    assert live.client.post("/cancel/n", json={"reason": "too late"}).json() == {
        "instance_id": "n",
        "status": "cancelled",
    }
    assert "too late" in json.dumps(get(live, "/api/instances/n"))
    again = assert_error(live.client.post("/cancel/n"), 409)
    assert again["status"] == "cancelled"
    assert live.result(live.start("fails", id="f"))["status"] == "failed"
    assert assert_error(live.client.post("/cancel/f"), 409)["status"] == "failed"
    assert_error(live.client.post("/cancel/n", json={"reason": 7}), 400)
    assert_error(live.client.post("/cancel/n", json={"because": "x"}), 400)


def test_cancelling_what_ends_in_that_very_moment(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    live.start("pay", id="p")
    cancel = live.app.cancel_workflow

    async def ends_first(id: str, **more: Any) -> None:
        await live.app.send_event("paid", "bank", {"amount": 1})
        await live.app.handle(id).result(timeout=20)
        await cancel(id, **more)

    monkeypatch.setattr(live.app, "cancel_workflow", ends_first)
    assert assert_error(live.client.post("/cancel/p"), 409)["status"] == "completed"


def test_resuming(live: Live) -> None:
    live.start("nap", id="n")
    live.until("n", "waiting_for_timer")
    assert assert_error(live.client.post("/api/instances/n/resume"), 409)["status"] == "waiting_for_timer"
    with sqlite3.connect(live.app.database) as other:
        other.execute("UPDATE romancy_instances SET status = 9, owner = NULL WHERE id = 'n'")
    other.close()
    answer = live.client.post("/api/instances/n/resume")
    assert answer.status_code == 200
    assert answer.json()["status"] != "blocked"


def test_waiting_for_a_result(live: Live) -> None:
    live.start("pay", id="p")
    live.until("p", "waiting_for_event")
    now = get(live, "/api/instances/p/result")
    assert now == {"instance_id": "p", "status": "waiting_for_event", "output": None, "error": None}
    assert get(live, "/api/instances/p/result", timeout=0.1) == now
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(live.result("p")))
    waiting.start()
    live.send(data={"amount": 3})
    waiting.join(20)
    assert found == [{"instance_id": "p", "status": "completed", "output": 3.0, "error": None}]
    failed = live.result(live.start("fails", id="f"))
    assert (failed["status"], failed["error"]["type"], failed["error"]["message"]) == (
        "failed",
        "RuntimeError",
        "no way",
    )


def test_head_has_the_headers_of_get(live: Live) -> None:
    head, got = live.client.head("/api/instances"), live.client.get("/api/instances")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


def test_methods_that_are_not_there(live: Live) -> None:
    for path, allowed in (
        ("/api/instances", "GET, HEAD"),
        ("/cancel/x", "POST"),
        ("/health/live", "GET, HEAD"),
        ("/openapi.json", "GET, HEAD"),
    ):
        answer = live.client.delete(path)
        assert_error(answer, 405)
        assert answer.headers["allow"] == allowed


def test_a_filter_with_an_exact_number_is_shown(serve: Callable[..., Live]) -> None:
    @workflow
    async def priced(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "priced", where={"price": Decimal("1.50"), "n": 3})  # type: ignore[dict-item]

    live = serve(workflows=[priced])
    live.start("priced", id="one")
    live.until("one", "waiting_for_event")
    [wait] = live.client.get("/api/waits").json()["items"]
    assert wait["where"] == {"price": "1.5", "n": 3}


def test_a_page_ends_when_it_has_grown_large(live: Live) -> None:
    """However many items were asked for: a page must neither fill the memory nor hold up everybody else."""
    for n in range(12):
        assert live.send(f"e{n}", "big", "x" * 900_000).status_code == 202
    pages: list[list[str]] = []
    cursor = None
    while True:
        answer = live.client.get("/api/events", params={"limit": 1000, **({"cursor": cursor} if cursor else {})})
        assert len(answer.content) < 15_000_000
        pages.append([item["id"] for item in answer.json()["items"]])
        cursor = answer.json()["cursor"]
        if cursor is None:
            break
    assert len(pages) > 1
    assert [id for page in pages for id in page] == [f"e{n}" for n in reversed(range(12))]


def test_many_small_items_come_in_one_page(live: Live) -> None:
    for n in range(70):
        live.send(f"e{n}", "small", n)
    page = get(live, "/api/events", limit=60)
    assert [item["id"] for item in page["items"]] == [f"e{n}" for n in range(69, 9, -1)]
    assert [item["id"] for item in get(live, "/api/events", cursor=page["cursor"])["items"]] == [
        f"e{n}" for n in range(9, -1, -1)
    ]


def test_a_number_that_is_too_large_is_refused(live: Live) -> None:
    answer = live.client.post("/api/workflows/pay/start", content=b'{"args":[1e400]}', headers=JSON)
    assert "1e400" in assert_error(answer, 400)["error"]
