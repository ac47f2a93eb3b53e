"""Mistakes in the declaration of a webhook are reported when it is declared."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from romancy import App, Webhook, WebhookRequest
from tests.webhooks.conftest import hooks
from tests.webhooks.deliveries import SECRET, WHSEC
from tests.webhooks.test_functions import from_acme, is_acme


async def later(request: WebhookRequest) -> Any:
    return None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "either scheme"),
        ({"scheme": "stripe"}, "needs secrets=[...]"),
        ({"scheme": "stripe", "secrets": "whsec_1"}, "secrets must be a list: secrets=[...]"),
        ({"scheme": "stripe", "secrets": b"whsec_1"}, "secrets must be a list: secrets=[...]"),
        ({"scheme": "stripe", "secrets": [None]}, "is the variable that it comes from set?"),
        ({"scheme": "stripe", "secrets": ["x", ""]}, "is the variable that it comes from set?"),
        ({"scheme": "stripe", "secrets": ["x", "whsec_1\n"]}, "a secret begins or ends with whitespace"),
        ({"scheme": "standard", "secrets": [f" {WHSEC}"]}, "a secret begins or ends with whitespace"),
        ({"scheme": "paypal", "secrets": ["x"]}, "must be one of standard, svix"),
        ({"scheme": "standard", "secrets": ["not base64!"]}, "must be base64"),
        ({"scheme": "adyen", "secrets": ["not hex"]}, "hexadecimal"),
        ({"scheme": "stripe", "secrets": ["x"], "types": "invoice.*"}, "must be a list of event types"),
        ({"scheme": "stripe", "secrets": ["x"], "types": ["a*b"]}, "a pattern is a type"),
        ({"scheme": "stripe", "secrets": ["x"], "verify": is_acme}, "either scheme"),
        ({"verify": is_acme}, "needs to_event"),
        ({"verify": is_acme, "to_event": from_acme, "types": ["x"]}, "takes no secrets"),
        ({"verify": later, "to_event": from_acme}, "verify must be a plain function"),
        ({"verify": is_acme, "to_event": later}, "to_event must be a plain function"),
        ({"scheme": "stripe", "secrets": ["x"], "to_event": partial(later)}, "to_event must be a plain function"),
        ({"verify": True, "to_event": from_acme}, "verify must be a plain function"),
    ],
)
def test_mistakes_are_told_at_once(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as raised:
        Webhook("shop", **arguments)
    assert "whsec_1" not in str(raised.value)


@pytest.mark.parametrize("name", ["", "a/b", "ä", "romancy", "romancy.x", 7, "x" * 65])
def test_names_that_are_none(name: Any) -> None:
    with pytest.raises(ValueError, match="name"):
        Webhook(name, scheme="stripe", secrets=["x"])


def test_two_of_the_same_name() -> None:
    with pytest.raises(ValueError, match="two webhooks have the name 'stripe'"):
        App(":memory:", webhooks=[*hooks("stripe"), *hooks("stripe")])
    with pytest.raises(ValueError, match="must be a list"):
        App(":memory:", webhooks=hooks("stripe")[0])  # type: ignore[arg-type]


def test_a_secret_is_never_shown() -> None:
    webhook = hooks("stripe")[0]
    assert SECRET not in repr(webhook) + repr(vars(webhook).keys())
