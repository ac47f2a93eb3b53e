"""Signatures: how each sender proves that a delivery is its own. Bytes and headers in; `Unsigned` if it is not.

All secrets are tried, in constant time. Where the time is signed, it must be close to ours, in both directions: a
delivery from the future could be kept and used later. A header that comes twice arrives joined by a comma, which no
signature survives.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

from romancy.core.strict_json import Reader
from romancy.errors import InvalidEvent

Scheme: TypeAlias = Literal["standard", "svix", "stripe", "github", "slack", "shopify", "twilio", "adyen"]
WINDOW = 300
"""Seconds that the signed time of a delivery can be off."""
FORM = "application/x-www-form-urlencoded"
MOST_FIELDS = 1000
"""Maximum fields of a form."""
_MOST_SIGNATURES = 20
"""While secrets are changed, a delivery has several signatures, but not many."""
_BODY = Reader("the body", InvalidEvent, exact=False)


class Unsigned(Exception):
    """A delivery is not signed by anyone who knows a secret, or not now. Says why, for the log."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A delivery as it arrived. Names of headers are in lower case."""

    url: str
    """The address that the sender used."""
    headers: Mapping[str, str]
    body: bytes
    now: float
    """Seconds since 1970."""

    def header(self, name: str) -> str:
        value = self.headers.get(name)
        if not value:
            raise Unsigned(f"it has no header {name}")
        return value


class Verifier(Protocol):
    """Raises `Unsigned` unless a delivery is signed."""

    def check(self, arrival: Arrival, /) -> None: ...


# --- senders that sign the time ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Standard:
    """Standard Webhooks, and Svix, where they come from: the id, the time and the body are signed."""

    keys: Sequence[bytes]
    prefixes: Sequence[str] = ("webhook-",)

    def check(self, arrival: Arrival) -> None:
        prefix = next((p for p in self.prefixes if f"{p}id" in arrival.headers), self.prefixes[0])
        id, stamp, given = (arrival.header(prefix + name) for name in ("id", "timestamp", "signature"))
        _check_time(stamp, arrival.now)
        signed = b"%s.%s.%s" % (id.encode(), stamp.encode(), arrival.body)
        offered = [_from_base64(part[3:]) for part in given.split(" ") if part.startswith("v1,")]
        _compare([hmac.digest(key, signed, "sha256") for key in self.keys], offered)


@dataclass(frozen=True)
class Stripe:
    keys: Sequence[bytes]

    def check(self, arrival: Arrival) -> None:
        parts = [part.strip().partition("=") for part in arrival.header("stripe-signature").split(",")]
        stamps = [value for name, _, value in parts if name == "t"]
        if len(stamps) != 1:
            raise Unsigned("its signature has no time, or several")
        _check_time(stamps[0], arrival.now)
        signed = b"%s.%s" % (stamps[0].encode(), arrival.body)
        offered = [_from_hex(value) for name, _, value in parts if name == "v1"]
        _compare([hmac.digest(key, signed, "sha256") for key in self.keys], offered)


@dataclass(frozen=True)
class Slack:
    keys: Sequence[bytes]

    def check(self, arrival: Arrival) -> None:
        stamp, given = arrival.header("x-slack-request-timestamp"), arrival.header("x-slack-signature")
        _check_time(stamp, arrival.now)
        if not given.startswith("v0="):
            raise Unsigned("its signature has an unknown version")
        signed = b"v0:%s:%s" % (stamp.encode(), arrival.body)
        _compare([hmac.digest(key, signed, "sha256") for key in self.keys], [_from_hex(given[3:])])


# --- senders that don't -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SignedBody:
    """GitHub, Shopify: only the body is signed. Headers, with the type and the id, and the time are not."""

    keys: Sequence[bytes]
    header: str
    decode: Callable[[str], bytes]
    prefix: str = ""

    def check(self, arrival: Arrival) -> None:
        given = arrival.header(self.header)
        if not given.startswith(self.prefix):
            raise Unsigned("its signature has an unknown algorithm")
        offered = self.decode(given.removeprefix(self.prefix))
        _compare([hmac.digest(key, arrival.body, "sha256") for key in self.keys], [offered])


@dataclass(frozen=True)
class Twilio:
    """The address is signed, together with the fields of a form, or with the hash of another body in the address."""

    keys: Sequence[bytes]

    def check(self, arrival: Arrival) -> None:
        given = _from_base64(arrival.header("x-twilio-signature"))
        algorithm = _twilio_algorithm(arrival.headers.get("x-twilio-webhooks-signature-settings", ""))
        fields = self._fields(arrival)
        expected = [
            hmac.digest(key, (url + fields).encode(), algorithm)
            for key in self.keys
            for url in _with_and_without_port(arrival.url)
        ]
        _compare(expected, [given])

    def _fields(self, arrival: Arrival) -> str:
        is_sent_as_form = is_form(arrival.headers)
        hashed = dict(parse_qsl(_split(arrival.url).query)).get("bodySHA256")
        # Nothing signs the header, so a body that only its hash signs must not be read as a form.
        if hashed is not None and not is_sent_as_form:
            if not hmac.compare_digest(hashlib.sha256(arrival.body).hexdigest().encode(), hashed.lower().encode()):
                raise Unsigned("its body is not the one whose hash is in the address")
            return ""
        if not arrival.body:
            return ""
        if not is_sent_as_form:
            raise Unsigned("nothing signs its body, which is not a form")
        form: dict[str, set[str]] = {}
        for name, value in read_form(arrival.body, Unsigned):
            form.setdefault(name, set()).add(value)
        return "".join(name + value for name in sorted(form) for value in sorted(form[name]))


@dataclass(frozen=True)
class Adyen:
    """Each notification of a batch has its own signature of eight of its fields. Nothing signs the others."""

    keys: Sequence[bytes]

    def check(self, arrival: Arrival) -> None:
        items = adyen_items(arrival.body)
        if not items:
            raise Unsigned("it has no notifications")
        for item in items:
            more = item.get("additionalData")
            given = cast("dict[str, Any]", more).get("hmacSignature") if isinstance(more, dict) else None
            if not isinstance(given, str):
                raise Unsigned("a notification has no hmacSignature")
            signed = _adyen_fields(item).encode()
            _compare([hmac.digest(key, signed, "sha256") for key in self.keys], [_from_base64(given)])


def _adyen_fields(item: Mapping[str, Any]) -> str:
    """Return the signed text. Each field is taken only from where readers of the event find it."""
    amount = item.get("amount")
    if not isinstance(amount, dict):
        raise Unsigned("a notification has no amount")
    before = _texts(item, "pspReference", "originalReference", "merchantAccountCode")
    reference = _texts(item, "merchantReference")
    after = [*_texts(cast("dict[str, Any]", amount), "value", "currency"), *_texts(item, "eventCode", "success")]
    # A second field with colons would make it ambiguous where each field ends.
    if any(":" in text for text in (*before, *after)):
        raise Unsigned("a notification has a colon in a field other than merchantReference")
    return ":".join((*before, *reference, *after))


def _texts(fields: Mapping[str, Any], *names: str) -> list[str]:
    return ["" if fields.get(name) is None else str(fields[name]) for name in names]


def adyen_items(body: bytes) -> list[dict[str, Any]]:
    """Return the notifications of a delivery; raise `Unsigned` if it is none of theirs."""
    try:
        items = _BODY.read(body)["notificationItems"]
        return [_as_object(item["NotificationRequestItem"]) for item in items]
    except (InvalidEvent, LookupError, TypeError) as error:
        raise Unsigned(f"it is not a list of notifications: {error}") from None


def _as_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("a notification must be an object")
    return cast("dict[str, Any]", value)


# --- parts ------------------------------------------------------------------------------------------------------------
def _compare(expected: Iterable[bytes], offered: Sequence[bytes]) -> None:
    """Raise `Unsigned` unless one of the signatures is right. How long it takes does not tell which."""
    is_signed = False
    for right in expected:
        for given in offered[:_MOST_SIGNATURES]:
            is_signed |= hmac.compare_digest(right, given)
    if not is_signed:
        raise Unsigned("its signature is wrong")


def _check_time(stamp: str, now: float) -> None:
    if not re.fullmatch("[0-9]{1,12}", stamp):
        raise Unsigned("its time is not a number of seconds")
    if abs(now - int(stamp)) > WINDOW:
        raise Unsigned(f"its time is {int(stamp) - now:+.0f} s from ours, more than the {WINDOW} s allowed")


def _from_hex(text: str) -> bytes:
    return bytes.fromhex(text) if re.fullmatch("(?:[0-9a-fA-F]{2})*", text) else b""


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def is_form(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


def read_form(body: bytes, error: Callable[[str], Exception]) -> list[tuple[str, str]]:
    """Return the fields of a form, in order."""
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as problem:
        raise error(f"its form can't be read: {problem}") from None


def _twilio_algorithm(settings: str) -> str:
    parts = [part.strip().partition("=") for part in settings.split(",")]
    given = next((value for name, _, value in parts if name == "algorithm"), "HMAC_SHA1")
    algorithm = {"HMAC_SHA1": "sha1", "HMAC_SHA256": "sha256"}.get(given.upper())
    if algorithm is None:
        raise Unsigned("its signature has an unknown algorithm")
    return algorithm


def _with_and_without_port(url: str) -> set[str]:
    """Some of Twilio's products sign the address with its port, others without."""
    parts = _split(url)
    try:
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        raise Unsigned(f"its address is odd: {url!r}") from None
    name = parts.netloc.rpartition("@")[2]
    name = name if parts.port is None else name.rpartition(":")[0]
    return {urlunsplit(parts._replace(netloc=netloc)) for netloc in (name, f"{name}:{port}")}


def _split(url: str) -> SplitResult:
    """The Host header is part of the address, so it can be malformed."""
    try:
        return urlsplit(url)
    except ValueError:
        raise Unsigned(f"its address is odd: {url!r}") from None


# --- secrets ----------------------------------------------------------------------------------------------------------
def standard_key(secret: str) -> bytes:
    """Return the key of a secret of Standard Webhooks."""
    encoded = secret.removeprefix("whsec_")
    key = _from_base64(encoded + "=" * (-len(encoded) % 4))
    if not key:
        raise ValueError('a secret must be base64, as in "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"')
    return key


def _hex_key(secret: str) -> bytes:
    key = _from_hex(secret)
    if not key:
        raise ValueError("a secret must be an HMAC key of hexadecimal digits, as Adyen's Customer Area shows it")
    return key


_KEYS: Mapping[str, Callable[[str], bytes]] = {"standard": standard_key, "svix": standard_key, "adyen": _hex_key}
_VERIFIERS: Mapping[Scheme, Callable[[Sequence[bytes]], Verifier]] = {
    "standard": Standard,
    "svix": lambda keys: Standard(keys, ("svix-", "webhook-")),
    "stripe": Stripe,
    "github": lambda keys: SignedBody(keys, "x-hub-signature-256", _from_hex, "sha256="),
    "slack": Slack,
    "shopify": lambda keys: SignedBody(keys, "x-shopify-hmac-sha256", _from_base64),
    "twilio": Twilio,
    "adyen": Adyen,
}
SCHEMES: Sequence[Scheme] = tuple(_VERIFIERS)


def make_verifier(scheme: Scheme, secrets: Sequence[str]) -> Verifier:
    """Return what checks deliveries; raise `ValueError` if a secret is not one."""
    to_key = _KEYS.get(scheme, str.encode)
    return _VERIFIERS[scheme]([to_key(secret) for secret in secrets])
