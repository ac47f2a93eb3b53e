"""The senders' own packages sign what we verify, and verify what our tests sign: `make test-webhooks` installs them."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest

from romancy.webhooks.schemes import Arrival, Scheme, Unsigned, make_verifier
from tests.webhooks import deliveries as made

BODIES = [
    b'{"id":"evt_1","type":"x"}',
    '{"a":"é€😀","b":"\\u00e9"}'.encode(),
    b'{ "spaced" : 1.0 ,\n"x":"\\/"}',
    json.dumps({"n": "x" * 200_000}).encode(),
]
URL = "https://shop.example/webhooks/x"
NEW = "the next secret"


def package(name: str) -> Any:
    """A sender's package. Where they must be there, one that is not is a failure."""
    if os.environ.get("ROMANCY_WEBHOOK_PACKAGES"):
        return importlib.import_module(name)
    return pytest.importorskip(name, reason="make test-webhooks installs it")


def is_signed(
    scheme: Scheme, secrets: list[str], headers: Mapping[str, str], body: bytes, url: str = URL, at: float | None = None
) -> bool:
    arrival = Arrival(url, {name.lower(): value for name, value in headers.items()}, body, at or time.time())
    try:
        make_verifier(scheme, secrets).check(arrival)
    except Unsigned:
        return False
    return True


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_stripe(body: bytes) -> None:
    signature = package("stripe").WebhookSignature
    now, text = int(time.time()), body.decode()
    theirs = {"Stripe-Signature": f"t={now},v1={signature._compute_signature(f'{now}.{text}', 'whsec_a')},v0=00"}
    assert is_signed("stripe", [NEW, "whsec_a"], theirs, body)
    assert not is_signed("stripe", ["whsec_a"], theirs, body + b" ")
    assert not is_signed("stripe", ["whsec_a"], theirs, body, at=now + 301)
    assert signature.verify_header(text, made.sign_stripe(body, "whsec_a")["stripe-signature"], "whsec_a", 300)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_standard_webhooks(body: bytes) -> None:
    theirs, now = package("standardwebhooks").Webhook(made.WHSEC), datetime.now(UTC)
    signature = theirs.sign("msg_1", now, body.decode())
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(now.timestamp()))}
    assert is_signed("standard", [made.WHSEC], {**headers, "webhook-signature": f"v1,AAAA {signature} v1a,z"}, body)
    assert not is_signed(
        "standard", [made.WHSEC], {**headers, "webhook-id": "msg_2", "webhook-signature": signature}, body
    )
    theirs.verify(body, made.sign_standard(body))


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_svix(body: bytes) -> None:
    theirs, now = package("svix.webhooks").Webhook(made.WHSEC), datetime.now(UTC)
    headers = {"svix-id": "m", "svix-timestamp": str(int(now.timestamp()))}
    assert is_signed("svix", [made.WHSEC], {**headers, "svix-signature": theirs.sign("m", now, body.decode())}, body)
    theirs.verify(body, made.sign_standard(body, prefix="svix-"))


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_slack(body: bytes) -> None:
    theirs, now = package("slack_sdk.signature").SignatureVerifier("sec"), str(int(time.time()))
    signature = theirs.generate_signature(timestamp=now, body=body)
    assert is_signed("slack", [NEW, "sec"], {"X-Slack-Request-Timestamp": now, "X-Slack-Signature": signature}, body)
    ours = made.sign_slack(body, "sec")
    stamp = ours["x-slack-request-timestamp"]
    assert theirs.is_valid(body=body, timestamp=stamp, signature=ours["x-slack-signature"])


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_github(body: bytes) -> None:
    """Its package verifies, but does not sign."""
    ours = made.sign_github(body, "sec")
    package("gidgethub.sansio").validate_event(body, signature=ours["x-hub-signature-256"], secret="sec")
    assert is_signed("github", [NEW, "sec"], ours, body)


@pytest.mark.parametrize("url", [URL, "https://shop.example:8443/webhooks/x?a=b%20c", "https://shop.example/w?foo=1"])
@pytest.mark.parametrize("algorithm", ["HMAC_SHA1", "HMAC_SHA256"])
def test_twilio(url: str, algorithm: str) -> None:
    theirs = package("twilio.request_validator").RequestValidator("token")
    more = {} if algorithm == "HMAC_SHA1" else {"X-Twilio-Webhooks-Signature-Settings": f"key=k,algorithm={algorithm}"}
    named = () if algorithm == "HMAC_SHA1" else (algorithm,)
    form = {"From": "+1", "Body": "hé llo+&=", "To": ""}
    signature = theirs.compute_signature(url, form, *named)
    headers = {"X-Twilio-Signature": signature, "Content-Type": made.FORM, **more}
    assert is_signed("twilio", [NEW, "token"], headers, urlencode(form).encode(), url)
    assert not is_signed("twilio", ["token"], headers, urlencode(form).encode(), url + "2")
    for body in BODIES:
        hashed = f"{url}{'&' if '?' in url else '?'}bodySHA256={hashlib.sha256(body).hexdigest()}"
        headers = {"X-Twilio-Signature": theirs.compute_signature(hashed, {}, *named), **more}
        assert is_signed("twilio", ["token"], headers, body, hashed)
        assert not is_signed("twilio", ["token"], headers, body + b"1", hashed)


def test_twilio_with_and_without_the_port() -> None:
    theirs, form = package("twilio.request_validator").RequestValidator("token"), {"A": "1"}
    signature = theirs.compute_signature("https://shop.example:443/webhooks/x", form)
    headers = {"X-Twilio-Signature": signature, "Content-Type": made.FORM}
    assert is_signed("twilio", ["token"], headers, urlencode(form).encode())
    ours = made.sign_twilio(URL, form, "token")["x-twilio-signature"]
    assert theirs.validate(URL, form, ours)


def test_adyen() -> None:
    theirs = package("Adyen.util")
    item = made.adyen_item("P1", merchantReference="r:1")
    signed = theirs.generate_notification_sig({**item, "additionalData": {}}, made.ADYEN_KEY)
    assert base64.b64decode(signed) == base64.b64decode(item["additionalData"]["hmacSignature"])
    delivery = made.adyen(item)
    assert is_signed("adyen", [made.ADYEN_KEY], {}, delivery.body)
    assert theirs.is_valid_hmac_notification(json.loads(delivery.body), made.ADYEN_KEY)
