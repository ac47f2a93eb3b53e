"""Webhooks that a function of the user verifies, or makes into an event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from romancy import Event, Webhook, WebhookRequest
from tests.http.conftest import assert_error
from tests.webhooks import deliveries as made
from tests.webhooks.conftest import Serve, deliver, stored
from tests.webhooks.deliveries import SECRET


def is_acme(request: WebhookRequest) -> bool:
    return request.headers["X-Acme-Key"] == "open sesame"


def from_acme(request: WebhookRequest) -> Event | None:
    content = request.json()
    if content.get("skip"):
        return None
    return Event("acme.order", "acme", content, subject=request.query.get("shop"), id=content.get("id"))


ACME = Webhook("acme", verify=is_acme, to_event=from_acme)
KEY = {"x-acme-key": "open sesame"}


def test_functions_of_your_own(serve: Serve) -> None:
    live = serve(webhooks=[ACME])
    answer = live.client.post("/webhooks/acme?shop=berlin", content=b'{"id":"o-1","n":1.50}', headers=KEY)
    assert (answer.status_code, answer.json()) == (200, {"status": "accepted"})
    (event,) = stored(live)
    assert (event.type, event.source, event.id, event.subject) == ("acme.order", "acme", "o-1", "berlin")
    assert live.client.post("/webhooks/acme", content=b'{"skip":true}', headers=KEY).json() == {"status": "ignored"}
    for headers in ({}, {"x-acme-key": "wrong"}):
        assert_error(live.client.post("/webhooks/acme", content=b"{}", headers=headers), 401)
    assert_error(live.client.post("/webhooks/acme", content=b"{", headers=KEY), 400)
    assert len(stored(live)) == 1


def test_without_an_id_the_same_body_is_the_same_event(serve: Serve) -> None:
    live = serve(webhooks=[ACME])
    for body in (b'{"n":1}', b'{"n":1}', b'{"n":2}'):
        live.client.post("/webhooks/acme", content=body, headers=KEY)
    assert [json.loads(event.data)["n"] for event in stored(live)] == [1, 2]


def test_a_mapping_of_your_own_for_a_known_sender(serve: Serve) -> None:
    def to_event(request: WebhookRequest) -> Event:
        return Event("paid", "shop", request.json()["data"]["object"]["id"])

    live = serve(webhooks=[Webhook("stripe", scheme="stripe", secrets=[SECRET], to_event=to_event)])
    deliver(live, made.stripe())
    deliver(live, made.stripe(pending_webhooks=0))
    (event,) = stored(live)
    assert (event.type, event.id) == ("paid", "evt_1MqqbKLt4dXK03v5qaIbiNCC"), "the sender's id, by which it is once"


def test_a_function_that_fails_loses_nothing(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    def to_event(request: WebhookRequest) -> Event:
        raise KeyError("order")

    live = serve(webhooks=[Webhook("acme", verify=is_acme, to_event=to_event)])
    assert_error(live.client.post("/webhooks/acme", content=b"{}", headers=KEY), 500)
    assert "webhook 'acme': to_event failed" in caplog.text


@pytest.mark.parametrize("made_up", [Event("romancy.answered", "x"), Event("x", "romancy:ask"), Event("", "x"), "text"])
def test_a_function_that_makes_no_event(serve: Serve, made_up: Any) -> None:
    live = serve(webhooks=[Webhook("acme", verify=is_acme, to_event=lambda request: made_up)])
    assert_error(live.client.post("/webhooks/acme", content=b"{}", headers=KEY), 400, "InvalidEvent")
    assert not stored(live)
