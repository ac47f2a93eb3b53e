"""A sender that uses an id again for something else is told, and so is whoever looks."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from romancy.client import Client
from tests.http.conftest import BATCH, CE, Live, event

DUPLICATE = {"status": "accepted", "duplicate": True, "delivered": 0, "started": 0, "mismatched": 0}


def test_the_receipt_says_that_it_differs(live: Live) -> None:
    live.send(data={"amount": 5, "currency": "EUR"})
    again = json.dumps(event(data={"currency": "EUR", "amount": 5.0}), indent=2)
    assert live.client.post("/", content=again, headers=CE).json() == DUPLICATE, "it was only written anew"
    binary = {"ce-id": "1", "ce-source": "bank", "ce-type": "paid", "ce-specversion": "1.0"}
    headers = {**binary, "ce-traceparent": "00-x", "content-type": "application/json"}
    assert live.client.post("/", content='{"amount":5,"currency":"EUR"}', headers=headers).json() == DUPLICATE
    assert live.send(data={"amount": 6}).json() == {**DUPLICATE, "differs": True}


def test_twins_in_one_batch(live: Live) -> None:
    events = [event("a", data=1), event("a", data=1), event("a", data=2), event("b", data=2)]
    answer = live.client.post("/", content=json.dumps(events), headers=BATCH).json()
    assert [receipt.get("differs") for receipt in answer["events"]] == [None, None, True, None]


def test_it_is_shown(live: Live) -> None:
    live.send("a", data=1)
    live.send("b", data=1)
    live.send("a", data=2)
    shown = {item["id"]: item for item in live.client.get("/api/events").json()["items"]}
    assert shown["b"]["differed_at"] is None
    assert shown["a"]["differed_at"].endswith("Z")
    assert shown["a"]["data"] == 1
    assert live.client.get("/viewer/events").text.count(">conflict<") == 1
    page = live.client.get("/viewer/event", params={"source": "bank", "id": "a"}).text
    assert "but different content, was sent and not stored" in page
    assert "other content" not in live.client.get("/viewer/event", params={"source": "bank", "id": "b"}).text
    assert "romancy_events_differing_total 1.0" in live.client.get("/metrics").text


def test_the_log_says_it_once(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "romancy"):
        live.send("a", data=1)
        live.send("a", data=1)
        assert caplog.messages == []
        for n in range(5):
            live.send("a", data=f"a secret {n}")
    [said] = caplog.messages
    assert "sent event 'a' from source 'bank' again with different content" in said
    assert "secret" not in said


async def test_clients_are_told(live: Live) -> None:
    async with Client(live.url) as client:
        receipts = [await client.send_event("paid", "bank", n, id="a") for n in (1, 1, 2)]
        assert [(r.duplicate, r.differs) for r in receipts] == [(False, False), (True, False), (True, True)]
        [record] = (await client.list_events()).items
    [here] = live.on_loop(live.app.list_events).items
    assert record.differed_at == here.differed_at
    assert here.differed_at is not None
    receipt: Any = live.on_loop(lambda: live.app.send_event("paid", "bank", 3, id="a"))
    assert receipt.differs
