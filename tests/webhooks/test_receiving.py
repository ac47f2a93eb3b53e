"""Webhooks on a real socket: what a delivery becomes, what is refused, and what the sender is told."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from romancy import App, Event, HTTPOptions, Webhook, WorkflowContext, wait_event, workflow
from romancy.app import http_app
from romancy.testing import environment
from romancy.webhooks.schemes import SCHEMES
from tests.http.conftest import Live, assert_error
from tests.webhooks import deliveries as made
from tests.webhooks.conftest import Serve, deliver, hooks, stored
from tests.webhooks.deliveries import SECRET, Delivery, stripe

SENDERS: list[Callable[[], Delivery]] = [
    made.stripe,
    made.standard,
    made.svix,
    made.github,
    made.github_form,
    made.slack,
    made.slack_button,
    made.slack_command,
    made.shopify,
    made.adyen,
]
TIMED = [made.stripe, made.standard, made.svix, made.slack]


# --- what becomes an event -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("make", SENDERS, ids=lambda make: make.__name__)
def test_a_delivery_becomes_an_event(live: Live, make: Callable[[], Delivery]) -> None:
    delivery = make()
    assert deliver(live, delivery).status_code == 200
    (event,) = stored(live)
    assert (event.type, event.id, event.subject) == (
        f"{delivery.scheme}.{delivery.type}",
        delivery.id,
        delivery.subject,
    )
    assert (event.source, event.datacontenttype) == (f"/webhooks/{delivery.scheme}", "application/json")
    assert json.loads(event.data) == delivery.data


def test_twilio_signs_the_address(serve: Serve) -> None:
    live = serve(webhooks=hooks("twilio"), public_url="https://shop.example")
    delivery = made.twilio("https://shop.example/webhooks/twilio")
    answer = deliver(live, delivery)
    assert (answer.status_code, answer.text, answer.headers["content-type"]) == (200, "<Response/>", "text/xml")
    (event,) = stored(live)
    assert (event.type, event.id, event.subject) == ("twilio.delivered", "idem-1", "SM2xxxxxx")
    assert json.loads(event.data) == delivery.data
    elsewhere = made.twilio("https://other.example/webhooks/twilio")
    assert_error(deliver(live, elsewhere), 401, "Unauthorized")


def test_without_a_public_url_the_requested_address_counts(live: Live) -> None:
    assert deliver(live, made.twilio(f"{live.url}/webhooks/twilio")).status_code == 200
    assert len(stored(live)) == 1


def test_twilio_signs_another_body_by_its_hash(live: Live) -> None:
    body = b'{"type":"com.twilio.call","n":1}'
    path = f"/webhooks/twilio?bodySHA256={made.sha256(body)}"
    headers = {"content-type": "application/json", **made.sign_twilio(live.url + path, {})}
    assert live.client.post(path, content=body, headers=headers).status_code == 200
    assert_error(live.client.post(path, content=body + b" ", headers=headers), 401)
    plain = {"content-type": "application/json", **made.sign_twilio(f"{live.url}/webhooks/twilio", {})}
    assert_error(live.client.post("/webhooks/twilio", content=body, headers=plain), 401)
    assert [event.type for event in stored(live)] == ["twilio.com.twilio.call"]


def test_each_notification_of_a_batch_is_an_event(live: Live) -> None:
    answer = deliver(live, made.adyen(made.adyen_item("A"), made.adyen_item("B")))
    assert (answer.status_code, answer.text) == (200, "[accepted]")
    assert [event.id for event in stored(live)] == ["A/AUTHORISATION/true", "B/AUTHORISATION/true"]


def test_the_data_is_as_it_was_sent(live: Live) -> None:
    """Spaces, the order of names and 1.50 are kept, and a workflow can filter by any of it."""
    delivery = made.svix()
    deliver(live, delivery)
    assert stored(live)[0].data == delivery.body


@workflow
async def collects(ctx: WorkflowContext) -> str:
    return (await wait_event(ctx, "stripe.invoice.paid", where={"data.object.id": "in_1MqqbK"})).id


def test_a_workflow_gets_it(serve: Serve) -> None:
    live = serve(webhooks=hooks("stripe"), workflows=[collects])
    id = live.start("collects")
    deliver(live, made.stripe())
    assert live.result(id)["output"] == "evt_1MqqbKLt4dXK03v5qaIbiNCC"


def test_when_it_happened(live: Live) -> None:
    for make in (made.stripe, made.standard, made.slack, made.shopify, made.adyen):
        deliver(live, make())
    assert [event.time // 1_000_000 for event in stored(live)] == [
        1680064028,
        1793737570,
        1234567890,
        1793556027,
        1793555401,
    ]


# --- again, and questions --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("make", SENDERS, ids=lambda make: make.__name__)
def test_the_same_delivery_again_is_stored_once(live: Live, make: Callable[[], Delivery]) -> None:
    assert [deliver(live, make()).status_code for _ in range(3)] == [200, 200, 200]
    assert len(stored(live)) == 1


def test_slack_asks_whether_the_address_is_ours(live: Live) -> None:
    body = b'{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV","type":"url_verification"}'
    headers = {"content-type": "application/json", **made.sign_slack(body)}
    answer = live.client.post("/webhooks/slack", content=body, headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"challenge": "3eZbrw1aBm2rZgRNFdxV"})
    assert_error(live.client.post("/webhooks/slack", content=body), 401)
    assert not stored(live)


# --- what is refused -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("make", SENDERS, ids=lambda make: make.__name__)
def test_a_changed_or_unsigned_delivery_is_refused(live: Live, make: Callable[[], Delivery]) -> None:
    delivery = make()
    signed = (b"1000", b"1001") if make is made.adyen else (b"a", b"b")
    assert_error(deliver(live, delivery, body=delivery.body.replace(*signed, 1)), 401, "Unauthorized")
    kept = {name: value for name, value in delivery.headers.items() if not re.search("signature|hmac", name)}
    body = delivery.body.replace(b"hmacSignature", b"signature")
    assert_error(live.client.post(f"/webhooks/{delivery.scheme}", content=body, headers=kept), 401, "Unauthorized")
    assert not stored(live)


@pytest.mark.parametrize("make", SENDERS, ids=lambda make: make.__name__)
def test_another_secret_is_wrong(serve: Serve, make: Callable[[], Delivery]) -> None:
    delivery = make()
    other = {"standard": "whsec_d3Jvbmc=", "svix": "whsec_d3Jvbmc=", "adyen": "00" * 32}.get(delivery.scheme, "wrong")
    live = serve(webhooks=[Webhook(delivery.scheme, scheme=delivery.scheme, secrets=[other])])  # type: ignore[call-overload]
    assert_error(deliver(live, delivery), 401, "Unauthorized")
    assert not stored(live)


@pytest.mark.parametrize("make", [made.stripe, made.github, made.slack, made.shopify], ids=lambda make: make.__name__)
def test_a_second_signature_header_is_no_way_around(live: Live, make: Callable[[], Delivery]) -> None:
    delivery = make()
    headers = [*delivery.headers.items()]
    headers += [(name, "t=1,v1=00") for name in delivery.headers if re.search("signature|hmac", name)]
    answer = live.client.post(f"/webhooks/{delivery.scheme}", content=delivery.body, headers=headers)
    assert_error(answer, 401, "Unauthorized")


def test_a_forged_notification_in_a_batch(live: Live) -> None:
    forged = {**made.adyen_item("B"), "pspReference": "FORGED"}
    assert_error(deliver(live, made.adyen(made.adyen_item("A"), forged)), 401, "Unauthorized")
    assert not stored(live)


@pytest.mark.parametrize("make", TIMED, ids=lambda make: make.__name__)
@pytest.mark.parametrize("off", [-400, 400])
def test_a_delivery_of_another_time_is_refused(live: Live, make: Callable[..., Delivery], off: int) -> None:
    assert_error(deliver(live, make(at=time.time() + off)), 401)
    assert deliver(live, make(at=time.time() + off / 2)).status_code == 200
    assert len(stored(live)) == 1


def test_what_is_wrong_is_only_in_the_log(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "romancy"):
        late = deliver(live, made.stripe(at=time.time() - 900))
        wrong = deliver(live, made.stripe(), body=b"{}")
        none = live.client.post("/webhooks/stripe", content=b"{}")
    assert late.json()["error"] == wrong.json()["error"] == none.json()["error"]
    assert "webhook 'stripe' refused a delivery: its time is -90" in caplog.text
    assert caplog.text.count("refused a delivery") == 1, "an attacker can't fill the log"
    assert SECRET not in caplog.text


def test_each_webhook_has_its_turn_in_the_log(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever floods one does not hide what is wrong with another."""
    for name in ("stripe", "stripe", "github"):
        live.client.post(f"/webhooks/{name}", content=b"{}")
    assert caplog.text.count("webhook 'stripe' refused a delivery") == 1
    assert caplog.text.count("webhook 'github' refused a delivery") == 1


@pytest.mark.parametrize("tokens", [[], ["a-token-of-the-shop"]], ids=["without tokens", "with tokens"])
async def test_unknown_ones_and_other_methods(tokens: list[str]) -> None:
    """The address is no secret, so other machines are told as well what is wrong."""
    async with App(":memory:", webhooks=hooks("stripe"), tokens=tokens) as app:
        transport = httpx2.ASGITransport(app, client=("203.0.113.7", 4000))
        async with httpx2.AsyncClient(transport=transport, base_url="https://shop.example") as client:
            assert_error(await client.post("/webhooks/paypal", content=b"{}"), 404, "NotFound")
            answer = await client.get("/webhooks/stripe")
            assert_error(answer, 405, "MethodNotAllowed")
            assert answer.headers["allow"] == "POST"
            assert (await client.get("/elsewhere")).status_code == (401 if tokens else 403)


def test_who_changes_what_github_does_not_sign(serve: Serve) -> None:
    """The type is in a header that nothing signs; `types` is what limits it."""
    live = serve(webhooks=[Webhook("github", scheme="github", secrets=[SECRET], types=["issues"])])
    captured = made.github()
    answer = deliver(live, captured, headers={"x-github-event": "deployment"})
    assert (answer.status_code, answer.json()) == (200, {"status": "ignored"})
    assert not stored(live)
    assert deliver(live, captured).json() == {"status": "accepted"}


@pytest.mark.parametrize("types", [["invoice.*"], ["stripe.invoice.*"], ["invoice.paid"], ["*"]])
def test_types_that_are_taken(serve: Serve, types: list[str]) -> None:
    live = serve(webhooks=[Webhook("stripe", scheme="stripe", secrets=[SECRET], types=types)])
    deliver(live, made.stripe())
    deliver(live, made.stripe(id="evt_2", type="invoices.odd"))
    others = ["stripe.invoices.odd"] if types == ["*"] else []
    assert [event.type for event in stored(live)] == ["stripe.invoice.paid", *others]


def test_secrets_are_replaced_without_a_gap(serve: Serve) -> None:
    live = serve(webhooks=[Webhook("stripe", scheme="stripe", secrets=["the next one", SECRET])])
    assert deliver(live, made.stripe()).status_code == 200
    body = made.stripe(id="evt_2").body
    signed = made.sign_stripe(body, "the next one")
    assert live.client.post("/webhooks/stripe", content=body, headers=signed).status_code == 200
    assert len(stored(live)) == 2


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{}", b'{"type":7}', b'{"a":NaN}', b'{"a":1,"a":2}', b"["])
def test_a_signed_delivery_that_is_no_event(live: Live, body: bytes) -> None:
    headers = {"content-type": "application/json", **made.sign_stripe(body)}
    assert_error(live.client.post("/webhooks/stripe", content=body, headers=headers), 400, "InvalidEvent")
    assert not stored(live)


def test_limits_hold_as_for_all_events(serve: Serve) -> None:
    live = serve(webhooks=hooks("stripe"), http=HTTPOptions(max_body=1000))
    assert_error(live.client.post("/webhooks/stripe", content=b"x" * 1001), 413)
    assert_error(live.client.post("/webhooks/stripe", content=b"x", headers={"content-encoding": "gzip"}), 415)
    assert 'deliveries_total{outcome="invalid",webhook="stripe"} 2.0' in live.client.get("/metrics").text
    live.drain()
    assert_error(deliver(live, made.stripe()), 503)


def test_a_large_delivery(serve: Serve) -> None:
    live = serve(webhooks=hooks("stripe"), http=HTTPOptions(max_body=2_000_000))
    large = made.stripe(padding="x" * 1_000_000)
    assert deliver(live, large).status_code == 200
    assert stored(live)[0].data == large.body


def test_tokens_are_for_others(serve: Serve) -> None:
    """A sender needs no token, and a token is no signature."""
    live = serve(webhooks=hooks("stripe"), tokens=["a-token-of-the-shop"])
    assert deliver(live, made.stripe()).status_code == 200
    bearer = {"authorization": "Bearer a-token-of-the-shop"}
    assert_error(live.client.post("/webhooks/stripe", content=b"{}", headers=bearer), 401)


async def test_other_machines_are_answered() -> None:
    async with App(":memory:", webhooks=hooks("stripe")) as app:
        transport = httpx2.ASGITransport(app, client=("203.0.113.7", 4000))
        async with httpx2.AsyncClient(transport=transport, base_url="https://shop.example") as client:
            delivery = made.stripe()
            answer = await client.post("/webhooks/stripe", content=delivery.body, headers=delivery.headers)
            assert answer.status_code == 200
            assert (await client.get("/api/instances")).status_code == 403


# --- garbage ---------------------------------------------------------------------------------------------------------
def test_garbage_is_only_refused(live: Live) -> None:
    bodies = [b"", b"[]", b"null", b"\xff\xfe", b"[" * 5000, b'{"notificationItems":[{}]}', b'{"notificationItems":{}}']
    bodies += [b'{"notificationItems":[{"NotificationRequestItem":[]}]}', b'{"notificationItems":[]}']
    bodies += [b"a=%ff&b", b"=&="]
    values = ["", "t=1", "v0=zz", "t=9e9,v1=é", "1" * 30, "v1,,,", "sha256=", "-1", "=", ",", "algorithm=x", "v1,====="]
    names = ["stripe-signature", "x-slack-signature", "x-slack-request-timestamp", "webhook-id", "webhook-timestamp"]
    names += ["webhook-signature", "svix-id", "x-twilio-signature", "x-hub-signature-256", "x-shopify-hmac-sha256"]
    names += ["x-twilio-webhooks-signature-settings"]
    tries = [(scheme, body) for scheme in SCHEMES for body in bodies]
    for n, (scheme, body) in enumerate(tries):
        value, kind = values[n % len(values)], ("application/json", made.FORM)[n % 2]
        headers = {**{name: value.encode("latin-1") for name in names}, "content-type": kind.encode()}
        answer = live.client.post(f"/webhooks/{scheme}", content=body, headers=headers)
        assert answer.status_code == 401, (scheme, body, value, kind, answer.text)
    assert not stored(live)


def test_deliveries_are_counted(live: Live) -> None:
    deliver(live, made.stripe())
    deliver(live, made.stripe())
    deliver(live, made.stripe(), body=b"{}")
    text = live.client.get("/metrics").text
    for outcome in ("accepted", "duplicate", "refused"):
        assert f'romancy_webhook_deliveries_total{{outcome="{outcome}",webhook="stripe"}} 1.0' in text


def test_the_route_is_described_where_there_are_webhooks(live: Live, serve: Serve) -> None:
    operation = live.client.get("/openapi.json").json()["paths"]["/webhooks/{name}"]["post"]
    assert "401" in operation["responses"]
    assert "security" not in operation


# --- romancy's own events --------------------------------------------------------------------------------------------
def test_events_that_only_romancy_sends(live: Live) -> None:
    for event in ({"type": "romancy.answered", "source": "x"}, {"type": "x", "source": "romancy:ask"}):
        answer = live.client.post(
            "/",
            content=json.dumps({"specversion": "1.0", "id": "1", **event}),
            headers={"content-type": "application/cloudevents+json"},
        )
        assert_error(answer, 400, "InvalidEvent")
    assert not stored(live)


async def test_several_events_are_stored_together() -> None:
    async with App(":memory:") as app:
        good = [Event("a", "b", {"n": n}, id=str(n)) for n in range(3)]
        receipts = await app.send_events([*good, good[0]])
        assert [receipt.duplicate for receipt in receipts] == [False, False, False, True]
        with pytest.raises(ValueError, match="dataschema must be an absolute URI"):
            await app.send_events([Event("a", "b", id="4"), Event("a", "b", dataschema="relative")])
        assert len((await app.list_events()).items) == 3
        assert await app.send_events([]) == []


def test_form_without_json(live: Live) -> None:
    """A GitHub form whose payload is missing has the fields of the form as its data."""
    body = urlencode({"zen": "Keep it logically awesome."}).encode()
    headers = {**made.github().headers, "content-type": made.FORM, **made.sign_github(body)}
    assert live.client.post("/webhooks/github", content=body, headers=headers).status_code == 200
    assert json.loads(stored(live)[0].data) == {"zen": "Keep it logically awesome."}


async def test_a_database_that_is_slow_does_not_outlast_slacks_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slack waits for 3 s. It is told before that, and sends the same delivery again."""
    from romancy.service import runtime_of

    app = App(":memory:", webhooks=hooks("slack"))
    async with app:
        engine = runtime_of(app).engine

        async def never(events: Any) -> Any:
            await asyncio.sleep(3600)

        monkeypatch.setattr(engine, "accept_all", never)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
            delivery = made.slack()
            answer = await client.post("/webhooks/slack", content=delivery.body, headers=delivery.headers)
        assert "within 2.5 s" in assert_error(answer, 503)["error"]


async def test_the_clock_of_a_test_decides_how_old_a_signature_is() -> None:
    async with environment(webhooks=hooks("stripe")) as env:
        await env.advance(timedelta(days=2))
        transport = httpx2.ASGITransport(http_app(env.app))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as sender:
            for at, status in ((env.now.timestamp(), 200), (env.now.timestamp() - 86_400, 401)):
                sent = stripe(at)
                answer = await sender.post("/webhooks/stripe", content=sent.body, headers=sent.headers)
                assert answer.status_code == status, answer.text
