"""Tickets: the signed part of a link, which says who may answer which question, and until when.

A ticket is short, because people forward links by hand, and has one spelling only. The instance is packed if its id is
a UUID, as generated ids are. Of the keys, the first signs and all verify, so they can be replaced one by one. A key of
its own is derived for links: what else may be signed with the same secret can't be taken for one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from romancy.errors import TerminalError

SHORTEST = 32
"""Minimum bytes of a signing key."""
_PURPOSE = b"romancy ask link v1"
_HEAD = struct.Struct(">B2sIHB")
"""The kind of the instance's id, the key's id, when it expires (0: never), the person, the length of the question."""
_PACKED, _PLAIN = 1, 2
_MAC = 16
_LONGEST = 2000
LAST_EXPIRY = 2**32 - 1
"""The latest time that a ticket can expire at, in the year 2106. Seconds since 1970."""


class WrongTicket(Exception):
    """A ticket that none of the keys signed. It says nothing more, because the ticket may be a guess."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Who may answer which question, and until when."""

    instance: str
    question: str
    """The id of the question in its instance."""
    person: int
    """The place of the person among those who were asked."""
    expires_at: int | None = None
    """Seconds since 1970."""


class SigningKeys:
    """The keys of an app. Only what is derived from them is kept."""

    def __init__(self, secrets: Sequence[str | bytes]) -> None:
        self._keys = [_derived(secret) for secret in secrets]

    def __repr__(self) -> str:
        return f"<SigningKeys {len(self._keys)}>"

    def __bool__(self) -> bool:
        return bool(self._keys)

    def sign(self, ticket: Ticket) -> str:
        key, question = self._keys[0], ticket.question.encode()
        kind, instance = _packed(ticket.instance)
        head = _HEAD.pack(kind, _id_of(key), ticket.expires_at or 0, ticket.person, len(question))
        signed = head + question + instance
        return base64.urlsafe_b64encode(signed + _mac(key, signed)).rstrip(b"=").decode()

    def read(self, text: str) -> Ticket:
        """Return what a link says; raise `WrongTicket` if it was not signed with one of the keys."""
        signed, mac = _decoded(text)
        for key in self._keys:
            if hmac.compare_digest(_mac(key, signed), mac):
                return _unpacked(signed)
        raise WrongTicket

    def is_foreign(self, text: str) -> bool:
        """Whether a link seems to be signed with a key that is not among these. A guess may seem so, too."""
        try:
            signed, _ = _decoded(text)
            _, id, *_ = _HEAD.unpack_from(signed)
        except (WrongTicket, struct.error):
            return False
        return id not in map(_id_of, self._keys)


def check_signing_keys(secrets: Sequence[str | bytes]) -> SigningKeys:
    """Return the keys; raise `ValueError` if one of them could be guessed."""
    if isinstance(secrets, str | bytes):
        raise ValueError("signing_keys must be a list: signing_keys=[KEY]; the first one signs, all verify")
    for secret in secrets:
        if not isinstance(secret, str | bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - as os.environ.get gives
            raise ValueError(f"a signing key must be text or bytes, not {type(secret).__name__}; is its variable set?")
        if len(secret) < SHORTEST:
            raise ValueError(
                f"a signing key must have at least {SHORTEST} characters, and this one has {len(secret)}; "
                "`python -c 'import secrets; print(secrets.token_urlsafe(32))'` creates a good one"
            )
    return SigningKeys(secrets)


def _derived(secret: str | bytes) -> bytes:
    return hmac.digest(secret.encode() if isinstance(secret, str) else secret, _PURPOSE, "sha256")


def _id_of(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()[:2]


def _mac(key: bytes, signed: bytes) -> bytes:
    return hmac.digest(key, signed, "sha256")[:_MAC]


def _packed(instance: str) -> tuple[int, bytes]:
    try:
        known = uuid.UUID(instance)
    except ValueError:
        return _PLAIN, instance.encode()
    return (_PACKED, known.bytes) if str(known) == instance else (_PLAIN, instance.encode())


def _decoded(text: str) -> tuple[bytes, bytes]:
    if len(text) > _LONGEST or not text.isascii():
        raise WrongTicket
    try:
        raw = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise WrongTicket from None
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != text:  # the last character has bits that don't count
        raise WrongTicket
    return raw[:-_MAC], raw[-_MAC:]


def _unpacked(signed: bytes) -> Ticket:
    kind, _, expires_at, person, length = _HEAD.unpack_from(signed)
    question, instance = signed[_HEAD.size : _HEAD.size + length], signed[_HEAD.size + length :]
    id = str(uuid.UUID(bytes=instance)) if kind == _PACKED else instance.decode()
    return Ticket(id, question.decode(), person, expires_at or None)


class Links:
    """Links to the page on which people answer."""

    def __init__(self, keys: SigningKeys, public_url: str | None) -> None:
        self.keys, self._public_url = keys, public_url

    def to(self, ticket: Ticket) -> str:
        """Return the signed link of a person."""
        if not self.keys or self._public_url is None:
            missing = [] if self.keys else ["signing_keys"]
            missing += ["public_url"] if self._public_url is None else []
            raise TerminalError(  # an activity that makes a link is not retried for that
                "links to questions need App(public_url=..., signing_keys=[...]), with the same keys in all processes; "
                f"this app has no {' and no '.join(missing)}"
            )
        return f"{self._public_url}/ask/{self.keys.sign(ticket)}"


NO_LINKS = Links(SigningKeys(()), None)
"""Of an app without keys."""


def choose_signing_keys(given: Sequence[str | bytes]) -> SigningKeys:
    """Return the given keys, or else those of the environment, separated by spaces."""
    found = os.environ.get("ROMANCY_SIGNING_KEYS")
    if given or found is None:
        return check_signing_keys(given)
    if not found.strip():
        raise ValueError(
            "ROMANCY_SIGNING_KEYS is set but contains no key: set it to keys separated by spaces, or unset it"
        )
    try:
        return check_signing_keys(found.split())
    except ValueError as error:
        raise ValueError(f"in ROMANCY_SIGNING_KEYS, where keys are separated by spaces: {error}") from None
