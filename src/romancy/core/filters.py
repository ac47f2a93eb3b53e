"""Which event fits which wait, beyond its type.

A wait narrows by subject, source and fields of the data. Its *shape* is which of these it looks at, its *key* a hash of
the values it wants there. An event has one key per shape, so an index finds the waits it may fit; the values are
compared once more after the hit. Values are compared as JSON, with type and exactly: 7 is 7.0 and 7e0, but not "7" nor
true, and 2**53 + 1 is not 2**53. Hence data is read by `strict_json`, never through floats. Text is compared as it was
sent, without Unicode normalisation.

Where a type has too many shapes for an index each, a wait is filed under its *anchor*: the hash of one field with the
value it wants there. An event has an anchor for each of its values, so an index finds these waits too.

The canonical form below is stored as hashes: changing it orphans every stored key.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

from romancy.core.model import Scalar, show
from romancy.core.strict_json import EXACT, MAX_INT_DIGITS

Path: TypeAlias = tuple[str | int, ...]
Constant: TypeAlias = Scalar | Decimal
"""What a wait can compare with; Decimal holds the numbers that are no (reasonable) int."""

KEY_BYTES = 16
MAX_ANCHORS = 1000
"""An event with more values than this is compared with each wait that is filed under an anchor."""

_MAX_INT = 10**MAX_INT_DIGITS
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Filter:
    """What a wait narrows by besides the type: subject, source, equality on fields of the data.

    `Filter.build(subject="ORD-1", where={"order.id": 7, ("items", 0, "sku"): "A"})`
    """

    subject: str | None
    source: str | None
    where: tuple[tuple[Path, Constant], ...]
    fields: str
    """The shape: JSON text naming what is looked at, always in the same order; '' when nothing is narrowed."""
    key: bytes
    """The hash of the values wanted, in the order of `fields`; b'' when nothing is narrowed."""

    @classmethod
    def build(
        cls,
        subject: str | None = None,
        source: str | None = None,
        where: Mapping[str | tuple[str | int, ...], Scalar] | None = None,
    ) -> Filter:
        """Check and normalise what the user wrote; ValueError says what can't be matched."""
        subject, source = _attribute("subject", subject), _attribute("source", source)
        wanted: dict[Path, Constant] = {}
        for written, value in (where or {}).items():
            path = _path(written)
            if path in wanted:
                raise ValueError(f"where names {_show_path(path)} twice")
            wanted[path] = _constant(path, value)
        paths = sorted(wanted, key=lambda path: [(isinstance(step, int), step) for step in path])
        attributes = {name: value for name, value in (("subject", subject), ("source", source)) if value is not None}
        fields = [*attributes, *map(list, paths)]
        values = [*attributes.values(), *(wanted[path] for path in paths)]
        return cls(
            subject=subject,
            source=source,
            where=tuple((path, wanted[path]) for path in paths),
            fields=json.dumps(fields, separators=(",", ":")) if fields else "",
            key=_digest([canonical(value) or b"" for value in values]) if fields else b"",
        )

    def accepts(self, subject: str | None, source: str, data: Any) -> bool:
        """Whether an event fits, by the values themselves."""
        return (
            (self.subject is None or self.subject == subject)
            and (self.source is None or self.source == source)
            and all(canonical(_at(data, path)) == canonical(value) for path, value in self.where)
        )

    def anchor(self, shapes: Collection[str]) -> bytes:
        """What a wait is filed under that has no shape of its own among those of its type.

        A field that these shapes don't look at is likely to tell this wait from others.
        """
        usual = {field for fields in shapes for field in _parse_fields(fields)}
        rare = [pair for pair in self.where if pair[0] not in usual] or self.where
        if rare:
            return _anchor(*rare[0])
        return _anchor("source", self.source) if self.subject is None else _anchor("subject", self.subject)

    def nearest(self, subject: str | None, source: str, data: Any) -> list[str]:
        """The parts that did not match, for people: `where order.id = 7 but 8 came`."""
        said: list[str] = []
        for name, wanted, came in (("subject", self.subject, subject), ("source", self.source, source)):
            if wanted is not None and wanted != came:
                said.append(f"{name} = {show(wanted)} but {show(came)} came")
        for path, value in self.where:
            came = _at(data, path)
            if canonical(came) != canonical(value):
                outcome = "the data is not JSON" if isinstance(data, bytes) else _outcome(came)
                said.append(f"where {_show_path(path)} = {show(value)} but {outcome}")
        return said

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, only what is narrowed; `from_json` brings back the equal filter."""
        stored: dict[str, Any] = {}
        if self.subject is not None:
            stored["subject"] = self.subject
        if self.source is not None:
            stored["source"] = self.source
        if self.where:
            stored["where"] = [[list(path), _to_json(value)] for path, value in self.where]
        return stored

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Filter:
        """The filter that `to_json` wrote."""
        pairs: list[tuple[list[str | int], Any]] = stored.get("where", [])
        where: dict[str | Path, Scalar] = {tuple(path): _from_json(value) for path, value in pairs}
        return cls.build(stored.get("subject"), stored.get("source"), where)


def event_key(fields: str, subject: str | None, source: str, data: Any) -> bytes | None:
    """The key an event has for a shape; None where a field is absent (or an object or array, which nothing equals)."""
    if not fields:
        return b""
    parts: list[bytes] = []
    for field in _parse_fields(fields):
        if not isinstance(field, str):
            value = _at(data, field)
        elif field == "source":
            value = source
        else:
            value = _ABSENT if subject is None else subject
        part = canonical(value)
        if part is None:
            return None
        parts.append(part)
    return _digest(parts)


def event_anchors(subject: str | None, source: str, data: Any) -> list[bytes] | None:
    """The anchors of the waits that an event may fit; None where it has too many values."""
    anchors = [_anchor("source", source)]
    if subject is not None:
        anchors.append(_anchor("subject", subject))
    for path, value in _values(data):
        if len(anchors) > MAX_ANCHORS:
            return None
        anchors.append(_anchor(path, value))
    return anchors


def _anchor(field: str | Path, value: object) -> bytes:
    return _digest([json.dumps(field).encode(), canonical(value) or b""])


def _values(data: Any) -> Iterator[tuple[Path, Any]]:
    """Everything in the data that is neither an object nor an array, with its path."""
    pending: list[tuple[Path, Any]] = [((), data)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, dict):
            pending += [((*path, name), value) for name, value in cast("dict[str, Any]", node).items()]
        elif isinstance(node, list):
            pending += [((*path, n), value) for n, value in enumerate(cast("list[Any]", node))]
        elif path:
            yield path, node


@lru_cache(maxsize=4096)
def _parse_fields(fields: str) -> tuple[str | Path, ...]:
    return tuple(field if isinstance(field, str) else tuple(field) for field in json.loads(fields))


# --- the canonical form -----------------------------------------------------------------------------------------------


def canonical(value: object) -> bytes | None:
    """The same bytes for equal JSON scalars and only for those; None for anything else, the absent included."""
    if type(value) is str:
        return b"s" + value.encode("utf-8", "surrogatepass")
    if type(value) is int and -_MAX_INT < value < _MAX_INT:
        digits = str(value)
        stripped = digits.rstrip("0")
        return f"n{stripped}e{len(digits) - len(stripped)}".encode() if stripped else b"n0"
    if value is None:
        return b"z"
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, (int, Decimal)):
        return _canonical_decimal(Decimal(value))
    return _canonical_decimal(Decimal(repr(value))) if isinstance(value, float) else None


def _canonical_decimal(value: Decimal) -> bytes | None:
    """Sign, digits without trailing zeros, exponent: never written out, so 1e999999999 is as short as it looks."""
    if not value.is_finite():
        return None
    if not value:
        return b"n0"
    sign, digits, exponent = EXACT.normalize(value).as_tuple()
    return f"n{'-' if sign else ''}{''.join(map(str, digits))}e{exponent}".encode()


def _digest(parts: list[bytes]) -> bytes:
    text = b"".join([len(part).to_bytes(4, "big") + part for part in parts])
    return blake2b(text, digest_size=KEY_BYTES).digest()


def _at(data: Any, path: Path) -> Any:
    """The value at a path, or _ABSENT. Names step into objects, numbers into arrays, never the other way round."""
    node: Any = data
    for step in path:
        if isinstance(step, str):
            if not isinstance(node, dict):
                return _ABSENT
            node = cast("dict[str, Any]", node).get(step, _ABSENT)
        else:
            items = cast("list[Any]", node) if isinstance(node, list) else ()
            node = items[step] if step < len(items) else _ABSENT
    return node


# --- reading what the user wrote --------------------------------------------------------------------------------------


def _attribute(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a str, not {value!r}")
    return _text(value, name)


def _path(written: object) -> Path:
    if isinstance(written, str):
        steps: tuple[object, ...] = tuple(written.split("."))
        if "" in steps:
            raise ValueError(f"where has an empty path or step in {written!r}; write ('',) for a field with no name")
    elif isinstance(written, tuple):
        steps = cast("tuple[object, ...]", written)
    else:
        raise ValueError(f"a path in where is 'order.id' or ('items', 0, 'sku'), not {_kind(written)}: {written!r}")
    if not steps:
        raise ValueError("where has an empty path (); name a field")
    return tuple(_step(step) for step in steps)


def _step(step: object) -> str | int:
    if isinstance(step, str):
        return _text(step, "a path in where")
    if isinstance(step, bool) or not isinstance(step, int):
        raise ValueError(f"a step of a path in where is a str or an int, not {_kind(step)}: {step!r}")
    if step < 0:
        raise ValueError(f"a step of a path in where must not be negative: {step}")
    return int(step)


def _constant(path: Path, value: object) -> Constant:
    """A value as it is on the wire: an Enum by its value, UUID and dates as text, numbers exact."""
    if isinstance(value, Enum):
        return _constant(path, value.value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, f"where {_show_path(path)}")
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date):  # a datetime too
        return value.isoformat()
    if isinstance(value, int):
        return int(value) if -_MAX_INT < value < _MAX_INT else EXACT.normalize(Decimal(value))
    if isinstance(value, (Decimal, float)) and not Decimal(value).is_finite():
        odd = "NaN" if Decimal(value).is_nan() else "an infinity"
        raise ValueError(f"where {_show_path(path)}: {odd} equals nothing in JSON; use int, str, bool or None")
    if isinstance(value, Decimal):
        return _plain(value)
    wrong = f"{value!r} is a float" if isinstance(value, float) else f"{_kind(value)} can't be compared"
    raise ValueError(f"where {_show_path(path)}: {wrong}; use int, str, bool or None")


def _plain(value: Decimal) -> Constant:
    """An int where that is exact and short, so that Decimal(7) and 7 make one filter."""
    value = EXACT.normalize(value)
    exponent = value.as_tuple().exponent
    if not value:
        return 0
    return int(value) if isinstance(exponent, int) and exponent >= 0 and value.adjusted() < MAX_INT_DIGITS else value


def _text(value: str, what: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} holds a lone surrogate, which no JSON text can: {value!r}") from None
    return str(value)


def _to_json(value: Constant) -> Any:
    return {"number": str(value)} if isinstance(value, Decimal) else value


def _from_json(value: Any) -> Any:
    return EXACT.create_decimal(cast("dict[str, str]", value)["number"]) if isinstance(value, dict) else value


# --- for people -------------------------------------------------------------------------------------------------------


def _outcome(came: Any) -> str:
    if came is _ABSENT:
        return "the field is absent"
    shown = "an object" if isinstance(came, dict) else "an array" if isinstance(came, list) else show(came)
    return f"{shown} came"


def _show_path(path: Path) -> str:
    dotted = all(isinstance(step, str) and step and "." not in step for step in path)
    return ".".join(cast("tuple[str, ...]", path)) if dotted else repr(path)


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


NO_FILTER = Filter.build()
