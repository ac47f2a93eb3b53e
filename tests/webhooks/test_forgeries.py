"""Deliveries that an attacker makes from a captured one: whatever is not signed must not change what it means."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import Live, assert_error
from tests.webhooks import deliveries as made
from tests.webhooks.conftest import deliver, stored


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
