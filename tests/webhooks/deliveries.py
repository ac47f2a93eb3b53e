"""Deliveries as each sender makes them: payloads in the shape of its documentation, signed by its published formula.

The formulas are written here a second time, without the code under test. `test_packages.py` holds both against the
senders' own packages.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

SECRET = "a secret that only the sender knows"
WHSEC = "whsec_" + base64.b64encode(b"0123456789abcdefghijklmn").decode()
ADYEN_KEY = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
SECRETS = {"standard": WHSEC, "svix": WHSEC, "adyen": ADYEN_KEY}


@dataclass
class Delivery:
    """A request that a sender makes, and the event that it becomes."""

    scheme: str
    body: bytes
    headers: dict[str, str]
    type: str = ""
    id: str = ""
    subject: str | None = None
    data: Any = None
    more: list[Any] = field(default_factory=list[Any])

    @property
    def secret(self) -> str:
        return SECRETS.get(self.scheme, SECRET)


def _mac(key: bytes, signed: bytes, algorithm: str = "sha256") -> bytes:
    return hmac.new(key, signed, algorithm).digest()


def _text(payload: Any) -> bytes:
    return json.dumps(payload, indent=2, ensure_ascii=False).encode()


# --- signatures ------------------------------------------------------------------------------------------------------
def sign_stripe(body: bytes, secret: str = SECRET, at: float | None = None) -> dict[str, str]:
    stamp = str(int(time.time() if at is None else at))
    return {"stripe-signature": f"t={stamp},v1={_mac(secret.encode(), f'{stamp}.'.encode() + body).hex()},v0=00ff"}


def sign_standard(
    body: bytes, secret: str = WHSEC, at: float | None = None, id: str = "msg_1", prefix: str = "webhook-"
) -> dict[str, str]:
    stamp = str(int(time.time() if at is None else at))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = base64.b64encode(_mac(key, f"{id}.{stamp}.".encode() + body)).decode()
    return {f"{prefix}id": id, f"{prefix}timestamp": stamp, f"{prefix}signature": f"v1a,AAAA v1,{mac}"}


def sign_slack(body: bytes, secret: str = SECRET, at: float | None = None) -> dict[str, str]:
    stamp = str(int(time.time() if at is None else at))
    mac = _mac(secret.encode(), f"v0:{stamp}:".encode() + body).hex()
    return {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={mac}"}


def sign_github(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"x-hub-signature-256": f"sha256={_mac(secret.encode(), body).hex()}"}


def sign_shopify(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"x-shopify-hmac-sha256": base64.b64encode(_mac(secret.encode(), body)).decode()}


def sign_twilio(url: str, form: dict[str, str], secret: str = SECRET, algorithm: str = "sha1") -> dict[str, str]:
    signed = url + "".join(name + form[name] for name in sorted(form))
    return {"x-twilio-signature": base64.b64encode(_mac(secret.encode(), signed.encode(), algorithm)).decode()}


def sign_adyen(item: dict[str, Any], key: str = ADYEN_KEY) -> dict[str, Any]:
    fields = [item["pspReference"], item.get("originalReference", ""), item["merchantAccountCode"]]
    fields += [item["merchantReference"], item["amount"]["value"], item["amount"]["currency"]]
    fields += [item["eventCode"], item["success"]]
    mac = base64.b64encode(_mac(bytes.fromhex(key), ":".join(map(str, fields)).encode())).decode()
    return {**item, "additionalData": {**item.get("additionalData", {}), "hmacSignature": mac}}


# --- deliveries ------------------------------------------------------------------------------------------------------
def stripe(at: float | None = None, **changes: Any) -> Delivery:
    payload = {
        "id": "evt_1MqqbKLt4dXK03v5qaIbiNCC",
        "object": "event",
        "api_version": "2024-06-20",
        "created": 1680064028,
        "data": {"object": {"id": "in_1MqqbK", "object": "invoice", "amount_paid": 2000, "paid": True}},
        "livemode": False,
        "pending_webhooks": 1,
        "request": {"id": None, "idempotency_key": None},
        "type": "invoice.paid",
        **changes,
    }
    body = _text(payload)
    headers = {"content-type": "application/json; charset=utf-8", **sign_stripe(body, at=at)}
    return Delivery("stripe", body, headers, "invoice.paid", payload["id"], "in_1MqqbK", payload)


def standard(at: float | None = None) -> Delivery:
    payload = {"type": "contact.created", "timestamp": "2026-11-03T20:26:10.344522Z", "data": {"id": "1f81eb52"}}
    body = _text(payload)
    headers = {"content-type": JSON, **sign_standard(body, at=at, id="msg_2KWPBgLlAfxdpx2AI54pPJ85f4W")}
    return Delivery("standard", body, headers, "contact.created", "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", None, payload)


def svix(at: float | None = None) -> Delivery:
    payload = {"type": "invoice.paid", "timestamp": "2026-11-03T20:26:10Z", "data": {"amount": 1.50}}
    body = _text(payload)
    headers = {"content-type": JSON, **sign_standard(body, at=at, id="msg_p5jXN8AQM9LWM0D4loKWxJek", prefix="svix-")}
    return Delivery("svix", body, headers, "invoice.paid", "msg_p5jXN8AQM9LWM0D4loKWxJek", None, payload)


def github() -> Delivery:
    payload = {
        "action": "opened",
        "issue": {"number": 7, "title": "Grüße"},
        "repository": {"id": 1, "full_name": "octo/shop"},
        "sender": {"login": "octocat"},
    }
    body = _text(payload)
    id = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
    headers = {"content-type": JSON, "x-github-event": "issues", "x-github-delivery": id, **sign_github(body)}
    return Delivery("github", body, headers, "issues", id, "octo/shop", payload)


def github_form() -> Delivery:
    plain = github()
    body = urlencode({"payload": plain.body.decode()}).encode()
    headers = {**plain.headers, "content-type": FORM, **sign_github(body)}
    return Delivery("github", body, headers, plain.type, plain.id, plain.subject, plain.data)


def slack(at: float | None = None) -> Delivery:
    payload = {
        "token": "z26uFbvR1xHJEdHE1OQiO6t8",
        "team_id": "T123ABC456",
        "api_app_id": "A123ABC456",
        "event": {"type": "app_mention", "channel": "C123ABC456", "text": "<@U0LAN0Z89> ship it", "user": "U061F7AUR"},
        "type": "event_callback",
        "event_id": "Ev123ABC456",
        "event_time": 1234567890,
    }
    body = _text(payload)
    headers = {"content-type": JSON, **sign_slack(body, at=at)}
    return Delivery("slack", body, headers, "app_mention", "Ev123ABC456", "C123ABC456", payload)


def slack_button() -> Delivery:
    payload = {
        "type": "block_actions",
        "team": {"id": "T9TK3CUKW"},
        "channel": {"id": "CBR2V3XEX"},
        "trigger_id": "12321423423.333649436676.d8c1bb837935619ccad0f624c448ffb3",
        "actions": [{"action_id": "approve", "value": "yes"}],
    }
    body = urlencode({"payload": json.dumps(payload)}).encode()
    headers = {"content-type": FORM, **sign_slack(body)}
    return Delivery("slack", body, headers, "block_actions", payload["trigger_id"], "CBR2V3XEX", payload)


def slack_command() -> Delivery:
    form = {"command": "/deploy", "text": "shop", "channel_id": "C2147483705", "trigger_id": "13345224609.738474920"}
    body = urlencode(form).encode()
    headers = {"content-type": FORM, **sign_slack(body)}
    return Delivery("slack", body, headers, "command", form["trigger_id"], "C2147483705", form)


def shopify() -> Delivery:
    payload = {"id": 820982911946154508, "admin_graphql_api_id": "gid://shopify/Order/820982911946154508"}
    body = _text(payload)
    headers = {
        "content-type": JSON,
        "x-shopify-topic": "orders/create",
        "x-shopify-shop-domain": "shop.myshopify.com",
        "x-shopify-webhook-id": "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
        "x-shopify-triggered-at": "2026-11-01T18:00:27.877041743Z",
        **sign_shopify(body),
    }
    id = headers["x-shopify-webhook-id"]
    return Delivery("shopify", body, headers, "orders/create", id, payload["admin_graphql_api_id"], payload)


def twilio(url: str) -> Delivery:
    form = {
        "MessageSid": "SM2xxxxxx",
        "MessageStatus": "delivered",
        "From": "+12316851234",
        "Body": "héllo & more=1+1",
        "AccountSid": "ACxxxxxxx",
        "Empty": "",
    }
    body = urlencode(form).encode()
    headers = {"content-type": FORM, "i-twilio-idempotency-token": "idem-1", **sign_twilio(url, form)}
    return Delivery("twilio", body, headers, "delivered", "idem-1", "SM2xxxxxx", form)


def adyen_item(reference: str, **changes: Any) -> dict[str, Any]:
    item = {
        "amount": {"currency": "EUR", "value": 1000},
        "eventCode": "AUTHORISATION",
        "eventDate": "2026-11-01T18:50:01+01:00",
        "merchantAccountCode": "ShopECOM",
        "merchantReference": "ORD-1",
        "paymentMethod": "visa",
        "pspReference": reference,
        "reason": "033899:1111:03/2030",
        "success": "true",
        **changes,
    }
    return sign_adyen(item)


def adyen(*items: dict[str, Any]) -> Delivery:
    given = list(items) or [adyen_item("QFQTPCQ8HXSKGK82")]
    payload = {"live": "false", "notificationItems": [{"NotificationRequestItem": item} for item in given]}
    id = f"{given[0]['pspReference']}/AUTHORISATION/true"
    return Delivery("adyen", _text(payload), {"content-type": JSON}, "AUTHORISATION", id, "ORD-1", given[0])


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
