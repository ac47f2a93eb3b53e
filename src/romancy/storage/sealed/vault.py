"""The vault: seals values with a codec, each for its place, and opens them again.

A sealed value begins with `MAGIC` and the name of its codec. A value that does not is plain: it was stored before there
was a codec. Errors stay JSON, because statements look at their type and at what is not undone: both stay readable, and
everything else is sealed inside.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from romancy.codecs import AES, Outside, PayloadCodec, chain_parts, is_strict, key_of
from romancy.core.failure import Failure
from romancy.core.given_back import OWN_ID, original_id
from romancy.core.history import pack_event
from romancy.core.model import MAGIC, Event
from romancy.errors import CodecError
from romancy.outside import ELSEWHERE, OUTSIDE, Owner, Reference, outside_parts
from romancy.storage.errors import Unreachable
from romancy.storage.opener import SEALED, Opener

_TEXT = "sealed:"
"""How a sealed text begins."""
_SAMPLE = bytes(range(256))
_FIRST_LINE = 200
"""Characters of the first line of an error that are sealed on their own: lists read only the beginning of an error."""
_CLEAR = ("missing", "not_undone", "culprits", "rolled_back")
"""Members of an error that are not sealed, in their order: statements and lists read them at its end."""
NEEDED = "the values in this database are sealed; give the app its codec, App(codec=...), or set ROMANCY_CODEC"


Form = Callable[[str], bytes]
"""Makes the bytes of a value from what is said instead of it."""


def json_form(text: str) -> bytes:
    return json.dumps(text).encode()


def event_form(text: str) -> bytes:
    return pack_event(Event("", "", "", json_form(text)))


def error_form(text: str) -> bytes:
    return Failure("", text).encode()


class MustWait(Exception):
    """A value has to be written outside the database first. That takes a while, so it is done in a thread."""


class Vault:
    """Seals and opens values. Without a codec it is closed: it can only say with what a value is sealed.

    A value that is kept outside the database is read when it is opened, which takes a while: see `is_outside`.
    """

    def __init__(self, codec: PayloadCodec | None) -> None:
        self.codec = codec
        self.outside = codec if isinstance(codec, Outside) else None
        self.index_key = b""
        self.folder = ""
        """The name of this database among those that keep values in the same place."""
        self._readers: dict[bytes, PayloadCodec] = {}
        self._head, self._is_strict = b"", False
        if codec is not None:
            if not isinstance(getattr(codec, "name", None), str):
                raise TypeError(f"codec must be a codec, such as Encrypted([key]), not {type(codec).__name__}")
            self._head = MAGIC + _prefixed(codec.name.encode())
            self._is_strict = is_strict(codec)
            inner: tuple[PayloadCodec, ...] = getattr(codec, "codecs", ())
            # A chain also reads what one of its codecs wrote alone, unless that would go around one that is required.
            others = [one for one in inner if is_strict(one) or not self._is_strict]
            self._readers = {one.name.encode(): one for one in (*others, codec)}

    def __repr__(self) -> str:
        return f"<Vault {self.codec or 'closed'}>"

    @property
    def is_closed(self) -> bool:
        return self.codec is None

    def seal(self, raw: bytes, place: str) -> bytes:
        if self.codec is None:
            raise CodecError(NEEDED)
        try:
            return self._head + self.codec.encode(raw, place)
        except Exception as error:
            # Not its repr: that of a UnicodeDecodeError has the value in it.
            told = f"{type(error).__name__}: {error}"
            raise CodecError(f"the codec {self.codec.name!r} can't encode the value {place}: {told}") from error

    def store(self, raw: bytes, place: str, *, may_wait: bool = True) -> bytes:
        """Seal a value; keep it outside if it is large. Its owner is the instance or the event that its place names.

        Unless it `may_wait`, `MustWait` is raised if it would write a file.
        """
        outside = self.outside
        if outside is None or len(raw) <= outside.over:
            return self.seal(raw, place)
        owner = self.owner(place)
        reference = outside.known(raw, owner.folder)
        if reference is None and not may_wait:
            raise MustWait
        try:
            return self._head + outside.refer(reference or outside.put(raw, owner), place)
        except OSError as error:
            raise Unreachable(str(error)) from error
        except Exception as error:
            raise CodecError(f"the codec {outside.name!r} can't encode the value {place}: {error!r}") from error

    def owner(self, place: str) -> Owner:
        """Return whose file the value of a place is."""
        kind, *names = place.split("/")
        if kind == "events":
            return Owner(self.folder, kind, *map(id_of, names))
        return Owner(self.folder, "instances", id_of(names[0]))

    def is_outside(self, raw: bytes | None) -> bool:
        """Return whether a value is kept outside the database."""
        return self.outside is not None and raw is not None and raw.startswith(self._head + ELSEWHERE)

    def reference(self, raw: bytes | None, place: str | None) -> Reference | None:
        """Return where a value is kept outside the database; None if it is not."""
        if raw is None or self.outside is None or not self.is_outside(raw):
            return None
        return self.outside.reference(_parts(raw)[1], place)

    def open(self, raw: bytes, place: str | None, *, lenient: bool = False) -> bytes:
        """Return a value as it was before it was sealed. `lenient`: it may be plain in any case."""
        if not raw.startswith(MAGIC):
            if self._is_strict and not lenient:
                raise CodecError(f"the value {place or ''} is not sealed, and only sealed values are accepted")
            return raw
        name, body = _parts(raw)
        reader = self._readers.get(name)
        if reader is None:
            shown = name.decode("utf-8", "replace")
            raise CodecError(f"it was written by the codec {shown!r}; {NEEDED}", missing=shown)
        try:
            return _bytes(reader.decode(body, place))
        except CodecError as error:
            where = "" if place is None else f" ({place})"
            raise CodecError(f"a stored value can't be opened{where}: {error}", missing=error.missing) from error
        except OSError as error:
            raise Unreachable(str(error)) from error
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            raise CodecError(f"the codec {reader.name!r} can't decode the value {place or ''}: {told}") from error

    def check(self) -> None:
        """Raise `CodecError` if the codec is not deterministic, or does not return what it was given."""
        made = [self.seal(_SAMPLE, "index") for _ in range(2)]
        if made[0] != made[1]:
            raise CodecError(f"the codec {self.codec!r} is not deterministic: it encodes the same value in two ways")
        if self.open(made[0], "index") != _SAMPLE:
            raise CodecError(f"the codec {self.codec!r} does not decode what it has encoded")

    def is_current(self, raw: bytes) -> bool:
        """Return whether a value would be sealed in the same way today, as far as its head says."""
        return self.codec is not None and label_of(raw) == label_of(self.seal(b"", "index"))

    # --- what has its own form -------------------------------------------------------------------------------------
    def seal_text(self, text: str, place: str) -> str:
        """Seal text for a column that holds text."""
        return _TEXT + base64.b64encode(self.seal(text.encode("utf-8", "surrogatepass"), place)).decode()

    def open_text(self, text: str, place: str | None) -> str:
        if not text.startswith(_TEXT):
            return text
        try:
            sealed = base64.b64decode(text.removeprefix(_TEXT), validate=True)
        except ValueError:
            return text  # it only begins like one
        return self.open(sealed, place, lenient=True).decode("utf-8", "surrogatepass")

    def seal_error(self, raw: bytes, place: str) -> bytes:
        """Seal an error. Its type stays readable, and what statements look for."""
        stored: dict[str, Any] = json.loads(raw)
        first_line = str(stored.get("message", "")).partition("\n")[0][:_FIRST_LINE]
        clear = {name: stored[name] for name in _CLEAR if name in stored}
        head = {
            "error_type": stored.get("error_type", ""),
            "message": self.seal_text(first_line, f"{place}/line"),
            "sealed": base64.b64encode(self.seal(raw, place)).decode(),
        }
        return json.dumps({**head, **clear}).encode()

    def open_error(self, raw: bytes, place: str | None) -> bytes:
        """Return an error as it was. Without the key, `CodecError`."""
        if b'"sealed": "' not in raw:
            return raw
        try:
            stored: dict[str, Any] = json.loads(raw)
            if not isinstance(stored.get("sealed"), str):
                return raw
            sealed = base64.b64decode(stored["sealed"])
        except (ValueError, AttributeError):
            raise CodecError(f"the error {place or ''} is damaged") from None
        plain = self.open(sealed, place, lenient=True)
        if "not_undone" not in stored or b'"not_undone": [' in plain:
            return plain
        # It was cancelled when it was blocked: the database has added what is not undone.
        added = {name: stored[name] for name in _CLEAR if name in stored}
        return json.dumps({**json.loads(plain), **added}).encode()

    # --- for people ------------------------------------------------------------------------------------------------
    def peek(self, raw: bytes, place: str | None, size: int | None = None, form: Form = json_form) -> bytes:
        """Return a value for people: if it can't be opened, or was cut, only what it is sealed with, in that form."""
        if not raw.startswith(MAGIC):
            return raw
        reference = None if size is None else self._reference_for_people(raw, place)
        if reference is not None:
            return form(f"outside the database, {reference.size:,} bytes")
        if size is None or size <= len(raw):
            try:
                return self.open(raw, place)
            except (CodecError, Unreachable) as error:
                if self._reference_for_people(raw, place) is not None:
                    return form(f"outside the database, and not readable: {error}")
        is_cut = size is not None and size > len(raw)
        return form(f"sealed ({label_of(raw)}){f', {size:,} bytes' if is_cut else ''}")

    def _reference_for_people(self, raw: bytes, place: str | None) -> Reference | None:
        try:
            return self.reference(raw, place)
        except CodecError:
            return None

    def peek_error(self, raw: bytes, place: str | None) -> bytes:
        """The same for an error: its type can be read in any case."""
        try:
            return self.open_error(raw, place)
        except CodecError as error:
            try:
                stored: dict[str, Any] = json.loads(raw)
                label = label_of(base64.b64decode(stored.pop("sealed")))
            except ValueError:
                return error_form(str(error))
            return json.dumps({**stored, "message": f"sealed ({label})"}).encode()

    def peek_text(self, text: str, place: str | None) -> str:
        try:
            return self.open_text(text, place)
        except CodecError:
            return f"sealed ({label_of(base64.b64decode(text.removeprefix(_TEXT)))})"

    # --- keys ------------------------------------------------------------------------------------------------------
    def key(self, digest: bytes) -> bytes:
        """Return the key of an event or a wait: without the index key, nobody can guess what it was made of."""
        if not digest:
            return digest
        if not self.index_key:
            raise CodecError(NEEDED)
        return blake2b(digest, digest_size=len(digest), key=self.index_key).digest()


class VaultOpener(Opener):
    """Opens what a backend looks at."""

    level = SEALED

    def __init__(self, vault: Vault) -> None:
        self.vault = vault

    def open(self, raw: bytes) -> bytes:
        return self.vault.open(raw, None) if raw else raw

    def key(self, digest: bytes) -> bytes:
        return self.vault.key(digest)

    def opened(self, event: Event) -> Event:
        return open_event(self.vault, event)

    def packed(self, event: Event) -> bytes:
        return self.vault.seal(pack_event(self.opened(event)), f"{event_place(event)}/input")


# --- places -------------------------------------------------------------------------------------------------------
def name(id: str) -> str:
    """Return an id as a part of a place."""
    return id.replace("%", "%25").replace("/", "%2F") if "/" in id or "%" in id else id


def id_of(name: str) -> str:
    """Return the id that is a part of a place."""
    return name.replace("%2F", "/").replace("%25", "%")


def event_place(event: Event) -> str:
    """Return the place of an event. One that is stored again for an instance keeps the place of its original."""
    id = original_id(event) if event.target is not None and event.id.startswith(OWN_ID) else event.id
    return f"events/{name(event.source)}/{name(id)}"


def open_event(vault: Vault, event: Event) -> Event:
    return event if event.data is None else with_data(event, vault.open(event.data, event_place(event)))


def with_data(event: Event, data: bytes | None) -> Event:
    """Return an event with other data."""
    e = event
    about = e.subject, e.time, e.datacontenttype, e.dataschema, e.extensions
    return Event(e.id, e.source, e.type, data, *about, e.target, e.accepted_at, e.expires_at, e.seq, e.parsed, e.origin)


# --- the form of a sealed value -----------------------------------------------------------------------------------
def _prefixed(name: bytes) -> bytes:
    if not 0 < len(name) < 256:
        raise ValueError("the name of a codec must have 1 to 255 bytes")
    return bytes((len(name),)) + name


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"it has returned {type(value).__name__}, not bytes")
    return value


def _parts(raw: bytes) -> tuple[bytes, bytes]:
    """Return the name of the codec of a sealed value, and what that has written."""
    start = len(MAGIC) + 1
    end = start + raw[start - 1] if len(raw) >= start else start
    return raw[start:end], raw[end:]


def label_of(raw: bytes) -> str:
    """Return with what a value is sealed: the name of its key, or else of its codec."""
    name, body = _parts(raw)
    text = name.decode("utf-8", "replace")
    try:
        if text == OUTSIDE:
            text, body = outside_parts(body)
        if text == "chain":
            names, body = chain_parts(body)
            text = names[-1]
        return key_of(body) if text == AES else text
    except CodecError:
        return text
