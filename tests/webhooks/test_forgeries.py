"""Deliveries that an attacker makes from a captured one: whatever is not signed must not change what it means."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from romancy import App
from tests.http.conftest import Live, assert_error
from tests.webhooks import deliveries as made
from tests.webhooks.conftest import deliver, hooks, stored
from tests.webhooks.deliveries import FORM


# --- Adyen -----------------------------------------------------------------------------------------------------------
def hidden_in_amount() -> dict[str, Any]:
    genuine = made.adyen_item("P1")
    names = ("pspReference", "merchantReference", "eventCode", "success", "merchantAccountCode")
    amount = {**genuine["amount"], **{name: genuine[name] for name in names}}
    return {**genuine, "amount": amount, "pspReference": "FORGED", "merchantReference": "ORD-9", "eventCode": "REFUND"}


def amount_beside_itself(amount: Any) -> dict[str, Any]:
    genuine = made.adyen_item("P1")
    return {**genuine, **genuine["amount"], "amount": amount}


def shifted_colons() -> dict[str, Any]:
    """A colon of the reference becomes one between fields, so each field means something else."""
    genuine = made.adyen_item("P1", merchantReference="ORD:1")
    moved = {"pspReference": "P1:", "originalReference": "ShopECOM", "merchantAccountCode": "ORD"}
    return {**genuine, **moved, "merchantReference": "1"}


@pytest.mark.parametrize(
    "forged",
    [
        hidden_in_amount(),
        amount_beside_itself(None),
        amount_beside_itself({}),
        amount_beside_itself(7),
        shifted_colons(),
    ],
    ids=["hidden in amount", "no amount", "empty amount", "amount of another kind", "shifted colons"],
)
def test_fields_of_a_notification_count_where_adyen_signs_them(live: Live, forged: dict[str, Any]) -> None:
    assert_error(deliver(live, made.adyen(forged)), 401, "Unauthorized")
    assert not stored(live)


def test_a_merchant_reference_can_have_colons(live: Live) -> None:
    assert deliver(live, made.adyen(made.adyen_item("P1", merchantReference="ORD:1"))).status_code == 200
    assert stored(live)[0].subject == "ORD:1"


# --- JSON that is sent again as a form -------------------------------------------------------------------------------
@pytest.mark.parametrize("scheme", ["stripe", "standard", "svix", "shopify", "adyen"])
def test_senders_of_json_send_no_forms(live: Live, scheme: str) -> None:
    """The text of a customer is inside the signed JSON, and no header can make it more than text."""
    name = "Bob&type=invoice.paid&id=forged&x="
    body = json.dumps({"id": "1", "type": "customer.updated", "data": {"object": {"name": name}}}).encode()
    signed: dict[str, dict[str, str]] = {
        "stripe": made.sign_stripe(body),
        "standard": made.sign_standard(body),
        "svix": made.sign_standard(body, prefix="svix-"),
        "shopify": {"x-shopify-topic": "t", "x-shopify-webhook-id": "1", **made.sign_shopify(body)},
    }
    body = made.adyen(made.adyen_item("P1", merchantReference=name)).body if scheme == "adyen" else body
    for kind in (FORM, f"{FORM.upper()} ; charset=utf-8"):
        headers = {**signed.get(scheme, {}), "content-type": kind}
        answer = live.client.post(f"/webhooks/{scheme}", content=body, headers=headers)
        assert_error(answer, 400, "InvalidEvent")
    assert not stored(live)


@pytest.mark.parametrize("space", ["", " \r\n\t"])
@pytest.mark.parametrize("scheme", ["github", "slack"])
def test_json_of_a_sender_of_forms_stays_json(live: Live, scheme: str, space: str) -> None:
    forged = quote('{"type":"forged","event_id":"forged","repository":{"full_name":"victim/repo"}}')
    genuine = {"event": {"type": "issues"}, "event_id": "1", "title": f"hello &payload={forged}&x="}
    body = (space + json.dumps(genuine)).encode()
    signed = made.sign_slack(body) if scheme == "slack" else made.sign_github(body)
    headers = {"content-type": FORM, "x-github-event": "issues", "x-github-delivery": "1", **signed}
    assert live.client.post(f"/webhooks/{scheme}", content=body, headers=headers).status_code == 200
    (event,) = stored(live)
    assert (event.type, event.id, json.loads(event.data)) == (f"{scheme}.issues", "1", genuine)


def test_a_list_is_no_form(live: Live) -> None:
    body = b'["&command=/deploy&trigger_id=1&x="]'
    headers = {"content-type": FORM, **made.sign_slack(body)}
    assert_error(live.client.post("/webhooks/slack", content=body, headers=headers), 400, "InvalidEvent")


def test_a_body_that_twilio_signs_by_its_hash_is_no_form(live: Live) -> None:
    body = b'{"type":"call","text":"&MessageStatus=delivered&MessageSid=SM1&x="}'
    path = f"/webhooks/twilio?bodySHA256={made.sha256(body)}"
    headers = {"content-type": FORM, **made.sign_twilio(live.url + path, {})}
    assert_error(live.client.post(path, content=body, headers=headers), 401, "Unauthorized")
    assert not stored(live)


# --- addresses -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("host", ["[", "]", "[::1", "a:b:c", "a:99999999", "", ":", "@", "x y", "a#b"])
async def test_a_malformed_host_is_only_refused(host: str) -> None:
    delivery = made.twilio("http://shop/webhooks/twilio")
    async with App(":memory:", webhooks=hooks("twilio")) as app:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://shop") as client:
            for path in ("/webhooks/twilio", "/webhooks/twilio?bodySHA256=00"):
                headers = {**delivery.headers, "host": host}
                answer = await client.post(path, content=delivery.body, headers=headers)
                assert_error(answer, 401, "Unauthorized")
