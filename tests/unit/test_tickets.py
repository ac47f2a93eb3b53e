"""Signed links."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romancy import TerminalError
from romancy.core.questions import key_of
from romancy.core.tickets import Links, SigningKeys, Ticket, WrongTicket, check_signing_keys, choose_signing_keys

KEY, OTHER = "k" * 32, b"o" * 32
IDS = st.one_of(st.text(min_size=1, max_size=255).filter(lambda t: t.isprintable()), st.uuids().map(str))
TICKETS = st.builds(
    Ticket,
    IDS,
    st.text(alphabet="0123456789abcdef.@", min_size=1, max_size=40),
    st.integers(0, 65535),
    st.none() | st.integers(1, 2**32 - 1),
)


@given(TICKETS)
def test_what_was_signed_is_read(ticket: Ticket) -> None:
    assert SigningKeys([KEY]).read(SigningKeys([KEY]).sign(ticket)) == ticket


@given(TICKETS, st.integers(0, 10_000), st.integers(1, 63))
def test_no_character_can_be_changed(ticket: Ticket, place: int, by: int) -> None:
    keys = SigningKeys([KEY])
    text, alphabet = keys.sign(ticket), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    at = place % len(text)
    other = alphabet[(alphabet.index(text[at]) + by) % 64]
    with pytest.raises(WrongTicket):
        keys.read(text[:at] + other + text[at + 1 :])


@given(st.text(max_size=200))
def test_garbage_is_wrong(text: str) -> None:
    with pytest.raises(WrongTicket):
        SigningKeys([KEY]).read(text)


def test_keys_are_replaced_one_by_one() -> None:
    ticket = Ticket(str(uuid.uuid4()), "1.a", 0, 1_800_000_000)
    old = SigningKeys([KEY]).sign(ticket)
    both = SigningKeys([OTHER, KEY])
    assert both.read(old) == ticket
    assert SigningKeys([OTHER]).read(both.sign(ticket)) == ticket
    with pytest.raises(WrongTicket):
        SigningKeys([OTHER]).read(old)
    with pytest.raises(WrongTicket):
        SigningKeys([]).read(old)


def test_a_link_of_another_key_is_recognised() -> None:
    ticket = Ticket("i", "1.a", 0)
    link = SigningKeys([KEY]).sign(ticket)
    assert SigningKeys([OTHER]).is_foreign(link)
    assert SigningKeys([]).is_foreign(link)
    assert not SigningKeys([OTHER, KEY]).is_foreign(link)
    assert not SigningKeys([OTHER]).is_foreign("garbage")


def test_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROMANCY_SIGNING_KEYS", f"{KEY} {'o' * 32}")
    assert choose_signing_keys(()).read(SigningKeys(["o" * 32]).sign(Ticket("i", "1.a", 0))).instance == "i"
    monkeypatch.setenv("ROMANCY_SIGNING_KEYS", " ")
    with pytest.raises(ValueError, match="is set but contains no key"):
        choose_signing_keys(())
    assert choose_signing_keys([KEY])
    monkeypatch.setenv("ROMANCY_SIGNING_KEYS", "a secret of at least 32 characters, with spaces")
    with pytest.raises(
        ValueError, match=r"ROMANCY_SIGNING_KEYS, where keys are separated by spaces: .* this one has 1;"
    ):
        choose_signing_keys(())
    with pytest.raises(ValueError, match=r"^a signing key must have at least 32 characters, and this one has 5;"):
        choose_signing_keys(["short"])


@pytest.mark.parametrize(
    ("keys", "url", "missing"),
    [
        ([], None, "no signing_keys and no public_url"),
        ([KEY], None, "no public_url"),
        ([], "https://shop", "no signing_keys"),
    ],
)
def test_all_that_is_missing_is_named(keys: list[str], url: str | None, missing: str) -> None:
    with pytest.raises(TerminalError) as caught:
        Links(SigningKeys(keys), url).to(Ticket("i", "1.a", 0))
    assert str(caught.value).endswith(f"this app has {missing}")


def test_a_link_is_short() -> None:
    key = key_of("ask:1", 1_800_000_000_000_000, {})
    assert len(SigningKeys([KEY]).sign(Ticket(str(uuid.uuid4()), key, 0, 1_800_000_000))) <= 100


@pytest.mark.parametrize("wrong", [KEY, OTHER, ["short"], [None], [b"x" * 31]])
def test_keys_that_are_none(wrong: object) -> None:
    with pytest.raises(ValueError, match="signing"):
        check_signing_keys(wrong)  # type: ignore[arg-type]


def test_a_key_is_never_shown() -> None:
    assert KEY not in repr(check_signing_keys([KEY]))
