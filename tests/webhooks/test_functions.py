"""Webhooks that a function of the user verifies, or makes into an event."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from romancy import Event, InvalidEvent, Webhook, WebhookRequest
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


async def answers_later(request: WebhookRequest) -> Any:
    return True


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


NO_EVENTS: dict[str, Callable[[], Any]] = {
    "a reserved type": lambda: Event("romancy.answered", "x"),
    "a reserved source": lambda: Event("x", "romancy:ask"),
    "no type": lambda: Event("", "x"),
    "data that is not JSON": lambda: Event("x", "x", {"key-of-ours": object()}),
    "a text": lambda: "key-of-ours",
    "a dict": lambda: {"type": "x", "key-of-ours": 1},
    "a list": lambda: [Event("x", "key-of-ours")],
    "a coroutine": lambda: answers_later(cast(Any, None)),
    "something unprintable": Unprintable,
}


@pytest.mark.parametrize("make", NO_EVENTS.values(), ids=NO_EVENTS)
def test_what_is_no_event_is_our_mistake(
    serve: Serve, make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The sender keeps the delivery and sends it again, and learns nothing about us."""
    live = serve(webhooks=[Webhook("acme", verify=is_acme, to_event=lambda request: make())])
    answer = assert_error(live.client.post("/webhooks/acme", content=b"{}", headers=KEY), 500, "InternalError")
    assert answer["error"] == "this delivery could not be made into an event; see the log of the server"
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "webhook 'acme': to_event did not return a valid event" in record.getMessage()
    assert not stored(live)


def test_an_event_of_a_coroutine_is_explained(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    live = serve(webhooks=[Webhook("acme", verify=is_acme, to_event=lambda request: answers_later(request))])  # type: ignore[arg-type,return-value]
    live.client.post("/webhooks/acme", content=b"{}", headers=KEY)
    assert "it returned a coroutine; to_event must be a plain function" in caplog.text


def test_a_function_can_say_that_a_delivery_is_invalid(serve: Serve) -> None:
    def to_event(request: WebhookRequest) -> Event:
        raise InvalidEvent("an order has a number")

    live = serve(webhooks=[Webhook("acme", verify=is_acme, to_event=to_event)])
    answer = assert_error(live.client.post("/webhooks/acme", content=b"{}", headers=KEY), 400, "InvalidEvent")
    assert answer["error"] == "an order has a number"


def test_a_verify_that_returns_a_coroutine_is_explained(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    live = serve(webhooks=[Webhook("acme", verify=lambda request: answers_later(request), to_event=from_acme)])  # type: ignore[arg-type,return-value]
    assert_error(live.client.post("/webhooks/acme", content=b"{}", headers=KEY), 401, "Unauthorized")
    assert "it returned a coroutine; verify must be a plain function" in caplog.text


@pytest.mark.parametrize("truthy", [1, "yes", object()])
def test_only_true_is_verified(serve: Serve, truthy: Any) -> None:
    live = serve(webhooks=[Webhook("acme", verify=lambda request: truthy, to_event=from_acme)])
    assert_error(live.client.post("/webhooks/acme", content=b"{}", headers=KEY), 401, "Unauthorized")
