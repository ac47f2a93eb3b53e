"""Tokens as text: names, scopes and limits, and what a slip must never make of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from romancy import Token
from romancy.core.model import Event
from romancy.tokens import SCOPES, Credential, digest, read_tokens

LONG = "c2VjcmV0IHNlY3JldCE="
"""20 characters of base64."""
PADDED = "c2VjcmV0LXNlY3JldC1zZWNyZXQ="


def read(entry: str | Token) -> Credential:
    [found] = read_tokens([entry])
    return found


@pytest.mark.parametrize(
    ("entry", "name", "scopes", "secret"),
    [
        ("SECRET", None, SCOPES, "SECRET"),
        ("events,read:SECRET", None, ("events", "read", "metrics"), "SECRET"),
        ("alice=SECRET", "alice", SCOPES, "SECRET"),
        ("alice@x.org=SEC=RET==", "alice@x.org", SCOPES, "SEC=RET=="),
        ("ci=events:SECRET", "ci", ("events",), "SECRET"),
        ("ci=events:SEC:RET=", "ci", ("events",), "SEC:RET="),
        ("prometheus=metrics:SECRET", "prometheus", ("metrics",), "SECRET"),
        ("read,events[type=a]:a=b", None, ("read", "events", "metrics"), "a=b"),
        ("control:a=b", None, ("control",), "a=b"),
        ("events[source=bank]:SECRET", None, ("events",), "SECRET"),
        ("bank=events[source=https://bank.example/a],control:S:1", "bank", ("events", "control"), "S:1"),
        (PADDED, None, SCOPES, PADDED),
        ("a/b+c=d", None, SCOPES, "a/b+c=d"),
        ("=SECRET", None, SCOPES, "=SECRET"),
        ("events,read,control,metrics:abc==", None, SCOPES, "abc=="),
        (Token("alice", "SECRET"), "alice", SCOPES, "SECRET"),
        (Token("ci", "SECRET", scopes=["events"]), "ci", ("events",), "SECRET"),
    ],
)
def test_what_an_entry_says(entry: str | Token, name: str | None, scopes: tuple[str, ...], secret: str) -> None:
    found = read(entry)
    assert (found.name, found.scopes, found.digest) == (name, frozenset(scopes), digest(secret.encode()))


@pytest.mark.parametrize(
    "slip",
    [
        "events=SECRET",
        "event=SECRET",
        "Read=SECRET",
        "events,read=SECRET",
        "events,raed=SECRET",
        "alice=read=SECRET",
        "alice=events,read=SECRET",
        "events",  # of "events read:SECRET": words that anyone can guess
        "events,",  # of ROMANCY_TOKENS="events, read:SECRET"
        "alice=events,",
        "alice=read",
        "alice=evnts:SECRET",
        "alice=SEC:RET",
        "events[source=bank]SECRET",
        "alice=events[source=bank]SECRET",
        "events[source=bank:SECRET",
        "events[source=https://bank:SECRET",
        "events[]:SECRET",
        "events[source=]:SECRET",
        "events[kind=a]:SECRET",
        "events[source=a,source=b]:SECRET",
        "events[type=pay*]:SECRET",
        "events[source=ba*k]:SECRET",
        "events,events[type=a]:SECRET",
        "read[type=a]:SECRET",
        "alice=",
        "alice==",
        "payments-service-prod=",
        LONG,
        "alice=events:",
        "alice=a b",
    ],
)
def test_a_slip_makes_no_token(slip: str) -> None:
    with pytest.raises(ValueError, match=r"token|scopes|limits of events") as told:
        read_tokens([slip])
    assert "SECRET" not in str(told.value).replace(":SECRET", "").replace("=SECRET", "").replace("a secret", "")


@pytest.mark.parametrize("wrong", ["", "a b", "a:b", "x" * 65, "é", "a=b", None])
def test_names_that_are_none(wrong: Any) -> None:
    with pytest.raises(ValueError, match="the name of a token is 1 to 64"):
        Token(wrong, "SECRET")


@pytest.mark.parametrize("scopes", [[], "events", ["evnts"], ["events[type=a"], ["read[type=a]"]])
def test_scopes_that_are_none(scopes: Any) -> None:
    with pytest.raises(ValueError, match=r"scopes|limits of events"):
        Token("alice", "SECRET", scopes)
    with pytest.raises(ValueError, match="a token is a secret"):
        Token("alice", "")


def test_a_secret_that_had_an_equals_sign_still_works() -> None:
    assert read("abc=def").former == digest(b"abc=def")
    assert read("abc=events:def").former == read("abc").former == read(Token("abc", "def")).former == b""


def test_a_secret_is_not_shown() -> None:
    token = Token("alice", "VERY-SECRET")
    assert "VERY-SECRET" not in repr(token) + repr(read(token)) + repr(read("alice=VERY-SECRET"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        token.name = "bob"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("limits", "source", "type", "excess"),
    [
        ("source=bank,type=payment.*", "bank", "payment.made", None),
        ("source=bank,type=payment.*", "shop", "payment.made", "the source 'shop'"),
        ("source=bank,type=payment.*", "bank", "order.made", "the type 'order.made'"),
        ("source=bank,type=payment.*", "bank/eu", "payment.made", "the source 'bank/eu'"),
        ("source=bank/*|shop", "bank/eu", "x", None),
        ("source=bank/*|shop", "shop", "x", None),
        ("source=bank/*|shop", "bank", "x", "the source 'bank'"),
        ("type=a|b.*", "x", "b.c", None),
        ("type=a|b.*", "x", "a.c", "the type 'a.c'"),
        ("type=*", "x", "romancy.answered", "the type 'romancy.answered'"),
        ("source=*", "x", "y", None),
    ],
)
def test_limits(limits: str, source: str, type: str, excess: str | None) -> None:
    for token in (f"events[{limits}]:SECRET", Token("bank", "SECRET", [f"events[{limits}]"])):
        found = read(token).limits
        assert found is not None
        assert found.excess(Event("1", source, type)) == excess
