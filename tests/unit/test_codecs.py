"""Codecs, alone: what they write, and what they refuse to read."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from romancy import App, CodecError
from romancy.codecs import Chain, Compressed, Encrypted, PayloadCodec, Zstandard
from romancy.core.filters import Filter
from romancy.core.model import MAGIC
from romancy.core.redaction import choose_redaction, redacted, redacting
from romancy.storage.sealed.vault import Vault, label_of

K1, K2 = b"1" * 32, b"2" * 32
PLACE = "history/order-1/3/payload"
CODECS: list[PayloadCodec] = [
    Encrypted({"k1": K1}),
    Encrypted([K1, K2]),
    Compressed(over=10),
    Zstandard(over=10),
    Chain(Zstandard(over=10), Encrypted([K1])),
]


@pytest.mark.parametrize("codec", CODECS, ids=repr)
@pytest.mark.parametrize("payload", [b"", b"{}", b"a" * 5000, os.urandom(2000)], ids=["empty", "short", "long", "any"])
def test_a_value_comes_back_and_looks_the_same_each_time(codec: PayloadCodec, payload: bytes) -> None:
    encoded = codec.encode(payload, PLACE)
    assert encoded == codec.encode(payload, PLACE)
    assert codec.decode(encoded, PLACE) == codec.decode(encoded, None) == payload
    assert len(payload) < 10 or "Encrypted" not in repr(codec) or payload not in encoded


def test_the_first_key_writes_and_all_read() -> None:
    old, new = Encrypted({"k1": K1}), Encrypted({"k2": K2, "k1": K1})
    assert new.decode(old.encode(b"x", PLACE), PLACE) == b"x"
    with pytest.raises(CodecError, match="'k2', but this app has only 'k1'") as refused:
        old.decode(new.encode(b"x", PLACE), PLACE)
    assert refused.value.missing == "k2"


def test_equal_values_look_different_in_different_places() -> None:
    codec = Encrypted([K1])
    assert codec.encode(b"x" * 100, "a")[-116:] != codec.encode(b"x" * 100, "b")[-116:]


@pytest.mark.parametrize("at", [0, 1, 2, 5, 25, 40, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    codec = Encrypted({"key": K1})
    encoded = bytearray(codec.encode(b"value", PLACE))
    encoded[at] ^= 1
    with pytest.raises(CodecError):
        codec.decode(bytes(encoded), PLACE)


def test_another_place_is_noticed() -> None:
    codec = Encrypted([K1])
    with pytest.raises(CodecError, match="moved"):
        codec.decode(codec.encode(b"x", PLACE), "history/order-2/3/payload")


@pytest.mark.parametrize("keys", [{}, [], [b"short"], {"": K1}, {"k\n": K1}])
def test_keys_are_checked(keys: Any) -> None:
    with pytest.raises(ValueError, match="key"):
        Encrypted(keys)


@pytest.mark.parametrize("keys", [K1, "text", ["a" * 32]])
def test_keys_are_bytes(keys: Any) -> None:
    with pytest.raises(TypeError):
        Encrypted(keys)


def test_keys_are_not_shown() -> None:
    assert "1111" not in repr(Encrypted({"k1": K1}))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(CodecError, match=r"romancy\[encryption\]"):
        Encrypted([K1])


# --- the vault --------------------------------------------------------------------------------------------------------
def test_a_chain_reads_what_one_of_its_codecs_wrote_alone() -> None:
    alone, chain = Vault(Encrypted([K1])), Vault(Chain(Compressed(), Encrypted([K1])))
    assert chain.open(alone.seal(b"x", PLACE), PLACE) == b"x"
    assert chain.open(b"plain", PLACE) == b"plain"


def test_a_strict_chain_can_t_be_gone_around() -> None:
    strict = Vault(Chain(Compressed(), Encrypted([K1], strict=True)))
    for forged in (b"plain", Vault(Compressed()).seal(b"forged", PLACE), Vault(Chain(Compressed())).seal(b"x", PLACE)):
        with pytest.raises(CodecError):
            strict.open(forged, PLACE)
    assert strict.open(strict.seal(b"x", PLACE), PLACE) == b"x"


def test_without_the_codec_only_the_name_of_the_key_is_known() -> None:
    closed, sealed = Vault(None), Vault(Chain(Compressed(), Encrypted({"k2": K2}))).seal(b"secret", PLACE)
    assert sealed.startswith(MAGIC)
    assert label_of(sealed) == "k2"
    assert closed.peek(sealed, PLACE) == b'"sealed (k2)"'
    assert closed.peek(sealed[:80], PLACE, size=999) == b'"sealed (k2), 999 bytes"'
    with pytest.raises(CodecError, match="ROMANCY_CODEC"):
        closed.seal(b"x", PLACE)


def test_the_type_of_an_error_stays_readable() -> None:
    vault = Vault(Encrypted([K1]))
    error = b'{"error_type": "ValueError", "message": "secret", "not_undone": ["pay:1"], "culprits": [3]}'
    sealed = vault.seal_error(error, PLACE)
    assert sealed.startswith(b'{"error_type": "ValueError"')
    assert sealed.endswith(b'"not_undone": ["pay:1"], "culprits": [3]}')
    assert b"secret" not in sealed
    assert vault.open_error(sealed, PLACE) == error
    assert Vault(None).peek_error(sealed, PLACE).startswith(b'{"error_type": "ValueError", "message": "sealed (')


# --- redaction --------------------------------------------------------------------------------------------------------
def test_fields_are_redacted_by_name_and_by_path() -> None:
    value = {"password": 1, "card": {"number": 2, "name": "Ann"}, "list": [{"Password": 3}], "number": 4}
    with redacting(choose_redaction(["password", "card.number"])):
        assert redacted(value) == {
            "password": "(redacted)",
            "card": {"number": "(redacted)", "name": "Ann"},
            "list": [{"Password": "(redacted)"}],
            "number": 4,
        }
        assert redacted({"card.number": 5}) == {"card.number": "(redacted)"}
    assert redacted(value) is value


def test_a_function_that_fails_shows_nothing() -> None:
    with redacting(choose_redaction(lambda value: value["missing"])):
        assert redacted({"password": 1}) == "(redacted: KeyError)"


def test_filters_do_not_show_what_is_redacted() -> None:
    narrow = Filter.build(where={"card.number": 4111, ("items", 0, "sku"): "A", "of": "ann"})
    data = {"card": {"number": 4222}, "items": [{"sku": "B"}], "of": "bob"}
    with redacting(choose_redaction(["number", "sku"])):
        assert narrow.nearest(None, "shop", data) == [
            "where card.number does not match: its values are redacted",
            "where ('items', 0, 'sku') does not match: its values are redacted",
            "where of = 'ann' but got 'bob'",
        ]
    with redacting(choose_redaction(lambda value: value["missing"])):
        assert all("redacted" in text for text in narrow.nearest(None, "shop", data))


def test_values_that_a_server_has_redacted_are_not_compared() -> None:
    """They look equal, and are not."""
    narrow = Filter.build(where={"number": "(redacted)"})
    unknown = ["where number can't be compared here: its values are redacted"]
    assert narrow.nearest(None, "shop", {"number": "(redacted)"}) == unknown
    assert narrow.nearest(None, "shop", "(redacted)") == unknown
    assert Filter.build(where={"a.b": 1}).nearest(None, "shop", {"a": "(redacted)"}) == [
        "where a.b can't be compared here: its values are redacted"
    ]


def test_redact_is_checked() -> None:
    with pytest.raises(TypeError, match="redact"):
        App(":memory:", redact="password")
