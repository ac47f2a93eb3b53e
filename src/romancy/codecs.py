"""Codecs: how values are encoded before they are stored. `App(codec=Encrypted(keys))` seals inputs, results, events...

A codec turns bytes into bytes. It must be deterministic: the same bytes for the same place give the same result. After
a lost connection a batch is submitted again, and compared with what is stored. `place` says where a value lies, such as
"history/order-1/3/payload"; a value that was encoded for one place should not decode for another.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from importlib import import_module
from typing import Any, cast

from romancy.core.payloads import PayloadCodec
from romancy.errors import CodecError
from romancy.outside import Outside

__all__ = ["Chain", "CodecError", "Compressed", "Encrypted", "Outside", "PayloadCodec", "Zstandard"]

KEY_BYTES = 32
_NONCE, _DIGEST = 12, 16
_FORMAT = 1
_STORED, _ZLIB, _ZSTD = 0, 1, 2
"""The first byte of a value of `Compressed`: how it is compressed."""
AES = "aes-256-gcm"


class Encrypted:
    """AES-256-GCM. The first key writes, all of them read. Needs `romancy[encryption]`.

        App(codec=Encrypted({"2026": NEW, "2025": OLD}))

    Keys are 32 random bytes, by name; the name is stored with each value. Without names, a key is named by its hash.
    With `strict`, values that are not encrypted are refused: use it once all values in the database are.

    Each place has a key of its own. The nonce is a keyed hash of the value, so that encoding is deterministic: only
    values that are equal and lie in the same place look the same.
    """

    def __init__(self, keys: Mapping[str, bytes] | Sequence[bytes], *, strict: bool = False) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "cryptography":
                raise
            raise CodecError("encryption needs a package; install it with: pip install 'romancy[encryption]'") from None
        self._cipher, self._invalid = AESGCM, InvalidTag
        self._keys = _named(keys)
        self._first = next(iter(self._keys))
        self.strict = strict
        """Whether values that are not encrypted are refused."""

    def __repr__(self) -> str:
        return f"<Encrypted keys={', '.join(self._keys)}>"

    @property
    def name(self) -> str:
        return AES

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the keys; the first one writes."""
        return tuple(self._keys)

    def encode(self, payload: bytes, place: str, /) -> bytes:
        key, kid = self._keys[self._first], self._first.encode()
        at = _place_digest(place)
        head = bytes((_FORMAT, len(kid))) + kid + at
        nonce = blake2b(head + payload, digest_size=_NONCE, key=key, person=b"romancy nonce").digest()
        return head + nonce + self._cipher(_derived(key, at)).encrypt(nonce, payload, head)

    def decode(self, payload: bytes, place: str | None, /) -> bytes:
        kid = key_of(payload)
        end = 2 + len(kid.encode()) + _DIGEST
        head, at, nonce = payload[:end], payload[end - _DIGEST : end], payload[end : end + _NONCE]
        key = self._keys.get(kid)
        if key is None:
            raise CodecError(
                f"it is encrypted with key {kid!r}, but this app has only {', '.join(map(repr, self._keys))}; "
                "add the key to Encrypted(...)",
                missing=kid,
            )
        if place is not None and at != _place_digest(place):
            raise CodecError(f"it was encrypted for another place than {place!r}: it was moved in the database")
        try:
            return self._cipher(_derived(key, at)).decrypt(nonce, payload[end + _NONCE :], head)
        except self._invalid:
            raise CodecError(f"it can't be decrypted with key {kid!r}: it was changed, or the key is wrong") from None


def key_of(payload: bytes) -> str:
    """Return the name of the key that a value of `Encrypted` needs."""
    if len(payload) < 2 + _DIGEST + _NONCE or payload[0] != _FORMAT:
        raise CodecError("it is damaged, or was encrypted by a newer version of Romancy")
    return payload[2 : 2 + payload[1]].decode("utf-8", "replace")


def _named(keys: Mapping[str, bytes] | Sequence[bytes]) -> dict[str, bytes]:
    if isinstance(keys, bytes | str):
        raise TypeError("keys must be a mapping of names to keys, or a sequence of keys, not a single key")
    pairs = keys.items() if isinstance(keys, Mapping) else [(_name_of(key), key) for key in keys]
    named: dict[str, bytes] = {}
    for name, key in cast("Sequence[tuple[object, object]]", pairs):
        if not isinstance(name, str) or not 0 < len(name.encode()) <= 255 or not name.isprintable():
            raise ValueError(f"the name of a key must be a printable string of up to 255 bytes, got {name!r}")
        named[name] = _checked(key)
    if not named:
        raise ValueError("at least one key is needed")
    return named


def _checked(key: object) -> bytes:
    if not isinstance(key, bytes):
        raise TypeError(f"a key must be bytes, not {type(key).__name__}")
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key must have {KEY_BYTES} bytes, got {len(key)}; make one with: secrets.token_bytes(32)")
    return key


def _name_of(key: object) -> str:
    return blake2b(_checked(key), digest_size=4, person=b"romancy key id").hexdigest()


def _place_digest(place: str) -> bytes:
    return blake2b(place.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()


def _derived(key: bytes, place_digest: bytes) -> bytes:
    return blake2b(place_digest, digest_size=KEY_BYTES, key=key, person=b"romancy value").digest()


def _is_of_event(place: str) -> bool:
    """Return whether a value is the data of an event, also if it is kept outside: `blobs/<database>/events/...`."""
    kind, _, rest = place.partition("/")
    return kind == "events" or (kind == "blobs" and rest.partition("/")[2].startswith("events/"))


class Compressed:
    """Compresses values of more than `over` bytes: with zstd if it is installed (`romancy[zstd]`), else with zlib.

    Data in the log of events is not compressed unless `events=True`: if an attacker can choose a part of the data, the
    length of the result says something about the rest. In the history of an instance that took the event, it is.
    """

    def __init__(self, *, over: int = 1024, level: int | None = None, events: bool = False) -> None:
        self._over, self._level, self._events = over, level, events
        self._zstd = _find_zstd()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over={self._over}>"

    @property
    def name(self) -> str:
        return "compressed"

    def encode(self, payload: bytes, place: str, /) -> bytes:
        if len(payload) > self._over and (self._events or not _is_of_event(place)):
            packed = self._pack(payload)
            if len(packed) <= len(payload):
                return packed
        return bytes((_STORED,)) + payload

    def _pack(self, payload: bytes) -> bytes:
        if self._zstd is None:
            return bytes((_ZLIB,)) + zlib.compress(payload, 1 if self._level is None else self._level)
        return bytes((_ZSTD,)) + self._zstd.compress(payload, 3 if self._level is None else self._level)

    def decode(self, payload: bytes, place: str | None, /) -> bytes:
        kind, rest = payload[:1], payload[1:]
        if kind == bytes((_STORED,)):
            return rest
        try:
            if kind == bytes((_ZLIB,)):
                return zlib.decompress(rest)
            if kind == bytes((_ZSTD,)):
                return self._needed_zstd().decompress(rest)
        except CodecError:
            raise
        except Exception as error:
            raise CodecError(f"it can't be decompressed: {error}") from error
        raise CodecError("it is damaged, or was compressed by a newer version of Romancy")

    def _needed_zstd(self) -> Any:
        if self._zstd is None:
            raise CodecError("zstd needs a package; install it with: pip install 'romancy[zstd]'", missing="zstd")
        return self._zstd


class Zstandard(Compressed):
    """The same, but always with zstd. Needs `romancy[zstd]`, or Python 3.14."""

    def __init__(self, *, over: int = 1024, level: int | None = None, events: bool = False) -> None:
        super().__init__(over=over, level=level, events=events)
        self._needed_zstd()


def _find_zstd() -> Any:
    for name in ("compression.zstd", "backports.zstd"):  # the first one is part of Python 3.14
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    return None


class Chain:
    """Several codecs, one after the other: `Chain(Zstandard(), Encrypted(keys))` compresses, then encrypts.

    It reads what any of its codecs has written, alone or in another chain.
    """

    def __init__(self, *codecs: PayloadCodec) -> None:
        if not codecs:
            raise ValueError("a chain needs at least one codec")
        if any(isinstance(codec, Outside) for codec in codecs):
            raise ValueError("a chain can't contain Outside; give the chain to it: Outside(url, codec=Chain(...))")
        self.codecs: tuple[PayloadCodec, ...] = codecs
        self._by_name = {codec.name: codec for codec in codecs}
        self._head = _chain_head([codec.name for codec in codecs])
        self._required = {codec.name for codec in codecs if is_strict(codec)}

    def __repr__(self) -> str:
        return f"<Chain {', '.join(map(repr, self.codecs))}>"

    @property
    def name(self) -> str:
        return "chain"

    @property
    def strict(self) -> bool:
        return bool(self._required)

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of all keys of its codecs."""
        return tuple(name for codec in self.codecs for name in getattr(codec, "key_names", ()))

    def encode(self, payload: bytes, place: str, /) -> bytes:
        for codec in self.codecs:
            payload = codec.encode(payload, place)
        return self._head + payload

    def decode(self, payload: bytes, place: str | None, /) -> bytes:
        names, payload = chain_parts(payload)
        if lacking := self._required.difference(names):
            raise CodecError(f"it was not encoded with {', '.join(sorted(lacking))}, and that is required")
        for name in reversed(names):
            codec = self._by_name.get(name)
            if codec is None:
                raise CodecError(f"it was encoded with {name!r}, which is not in this chain", missing=name)
            payload = codec.decode(payload, place)
        return payload


def is_strict(codec: object) -> bool:
    """Return whether values that a codec has not written are refused."""
    return bool(getattr(codec, "strict", False))


def _chain_head(names: Sequence[str]) -> bytes:
    text = "\n".join(names).encode()
    return len(text).to_bytes(2, "big") + text


def chain_parts(payload: bytes) -> tuple[list[str], bytes]:
    """Return the names of the codecs that a chain has used, in order, and the value."""
    length = int.from_bytes(payload[:2], "big")
    return payload[2 : 2 + length].decode("utf-8", "replace").split("\n"), payload[2 + length :]
