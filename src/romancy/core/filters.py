"""Which event fits which wait, beyond its type.

A wait can filter by subject, source and fields of the data. Its *shape* is the set of fields it filters by; its *key*
is a hash of the values it expects there. An event has one key per shape, so an index finds the waits it may fit. The
values are compared once more after a hit. They are compared as JSON, exactly and with their types: 7 equals 7.0 and
7e0, but not "7" or true, and 2**53 + 1 is not 2**53. Therefore data is read by `strict_json`, never through floats.
Text is compared as it was sent, without Unicode normalization.

If a type has too many shapes for one index each, a wait is filed under its *anchor*: the hash of one field with its
expected value. An event has an anchor for each of its values, so an index finds these waits too.

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
from romancy.core.redaction import is_hidden, redacted, redacted_at
from romancy.core.strict_json import EXACT, MAX_INT_DIGITS

Path: TypeAlias = tuple[str | int, ...]
Constant: TypeAlias = Scalar | Decimal
"""A value that a wait can compare with. Numbers that are not ints, or too long, are Decimals."""

KEY_BYTES = 16
MAX_ANCHORS = 1000
"""An event with more values than this is compared with every wait that is filed under an anchor."""

_MAX_INT = 10**MAX_INT_DIGITS
_ABSENT: Final = object()
compact = json.JSONEncoder(separators=(",", ":")).encode
"""Write JSON without spaces and in ASCII. What waits are for is stored and compared like this: it must not change."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What a wait filters by besides the type: subject, source, equality on fields of the data.

    `Filter.build(subject="ORD-1", where={"order.id": 7, ("items", 0, "sku"): "A"})`
    """

    subject: str | None
    source: str | None
    where: tuple[tuple[Path, Constant], ...]
    fields: str
    """The shape: a JSON list of the fields, always in the same order; '' for an empty filter."""
    key: bytes
    """The hash of the expected values, in the order of `fields`; b'' for an empty filter."""

    @classmethod
    def build(
        cls,
        subject: str | None = None,
        source: str | None = None,
        where: Mapping[str | tuple[str | int, ...], Scalar] | None = None,
    ) -> Filter:
        """Check and normalize the user's filter; raise `ValueError` if it can't be matched."""
        subject, source = _attribute("subject", subject), _attribute("source", source)
        expected: dict[Path, Constant] = {}
        for written, value in (where or {}).items():
            path = _path(written)
            if path in expected:
                raise ValueError(f"where names {_show_path(path)} twice")
            expected[path] = _constant(path, value)
        paths, fields = _shape(subject is not None, source is not None, tuple(expected))
        values = [value for value in (subject, source) if value is not None]
        constants = [expected[path] for path in paths]
        return cls(
            subject=subject,
            source=source,
            where=tuple(zip(paths, constants, strict=True)),
            fields=fields,
            key=_digest([canonical(value) or b"" for value in (*values, *constants)]) if fields else b"",
        )

    def accepts(self, subject: str | None, source: str, data: Any) -> bool:
        """Return whether an event fits, by comparing the values themselves."""
        return (
            (self.subject is None or self.subject == subject)
            and (self.source is None or self.source == source)
            and all(canonical(_at(data, path)) == canonical(value) for path, value in self.where)
        )

    def anchor(self, shapes: Collection[str]) -> bytes:
        """Return the anchor of a wait whose shape is not among the indexed `shapes` of its type.

        A field that is not in these shapes is likely to distinguish this wait from others.
        """
        usual = {field for fields in shapes for field in _parse_fields(fields)}
        rare = [pair for pair in self.where if pair[0] not in usual] or self.where
        if rare:
            return _anchor(*rare[0])
        return _anchor("source", self.source) if self.subject is None else _anchor("subject", self.subject)

    def nearest(self, subject: str | None, source: str, data: Any) -> list[str]:
        """Describe the parts that did not match: `where order.id = 7 but got 8`."""
        mismatches: list[str] = []
        for name, expected, actual in (("subject", self.subject, subject), ("source", self.source, source)):
            if expected is not None and expected != actual:
                mismatches.append(f"{name} = {show(expected)} but got {show(actual)}")
        seen = redacted(data)
        for path, value in self.where:
            name = _show_path(path)
            if is_hidden(value) or _is_hidden(data, path):  # it was redacted before it came here
                mismatches.append(f"where {name} can't be compared here: its values are redacted")
            elif canonical(actual := _at(data, path)) != canonical(value):
                wanted = redacted_at(path, value)
                if is_hidden(wanted) or _is_hidden(seen, path):
                    mismatches.append(f"where {name} does not match: its values are redacted")
                    continue
                outcome = "the data is not JSON" if isinstance(data, bytes) else _outcome(actual, _at(seen, path))
                mismatches.append(f"where {name} = {show(wanted)} but {outcome}")
        return mismatches

    def to_json(self) -> dict[str, Any]:
        """Return the filter as plain JSON; `from_json` restores an equal filter."""
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
        """Restore a filter from the JSON of `to_json`."""
        pairs: list[tuple[list[str | int], Any]] = stored.get("where", [])
        where: dict[str | Path, Scalar] = {tuple(path): _from_json(value) for path, value in pairs}
        return cls.build(stored.get("subject"), stored.get("source"), where)


def event_key(fields: str, subject: str | None, source: str, data: Any) -> bytes | None:
    """Return an event's key for a shape; None if a field is absent, or an object or array, which equal nothing."""
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
    """Return the anchors of the waits that an event may fit; None if it has too many values."""
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
    """Yield every scalar in the data, with its path."""
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
    """Return the same bytes for equal JSON scalars, and only for those; None for anything else, or if absent."""
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
    """Sign, digits without trailing zeros, exponent. Never written out, so 1e999999999 stays short."""
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
    """Return the value at a path, or _ABSENT. Names step into objects and numbers into arrays, never vice versa."""
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


# --- reading the user's filter ----------------------------------------------------------------------------------------


def _attribute(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a str, not {value!r}")
    return _text(value, name)


@lru_cache(maxsize=1024)
def _shape(has_subject: bool, has_source: bool, paths: tuple[Path, ...]) -> tuple[tuple[Path, ...], str]:
    """Return the paths in a fixed order, and the shape of a filter by them. Few filters differ in more than values."""
    ordered = tuple(sorted(paths, key=lambda path: [(isinstance(step, int), step) for step in path]))
    attributes = [name for name, is_there in (("subject", has_subject), ("source", has_source)) if is_there]
    fields = [*attributes, *map(list, ordered)]
    return ordered, compact(fields) if fields else ""


def _path(written: object) -> Path:
    if isinstance(written, str):
        return _dotted_path(written)
    if not isinstance(written, tuple):
        raise ValueError(
            f"a path in where must be like 'order.id' or ('items', 0, 'sku'), not {_kind(written)}: {written!r}"
        )
    if not written:
        raise ValueError("where has an empty path (); name a field")
    return tuple(_step(step) for step in cast("tuple[object, ...]", written))


@lru_cache(maxsize=1024)
def _dotted_path(written: str) -> Path:
    steps = written.split(".")
    if "" in steps:
        raise ValueError(f"where has an empty path or step in {written!r}; write ('',) for a field with no name")
    return tuple(_text(step, "a path in where") for step in steps)


def _step(step: object) -> str | int:
    if isinstance(step, str):
        return _text(step, "a path in where")
    if isinstance(step, bool) or not isinstance(step, int):
        raise ValueError(f"a step of a path in where must be a str or an int, not {_kind(step)}: {step!r}")
    if step < 0:
        raise ValueError(f"a step of a path in where must not be negative: {step}")
    return int(step)


def _constant(path: Path, value: object) -> Constant:
    """Return a value as it is in JSON: an Enum by its value, UUID and dates as text, numbers exact."""
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
    """Return an int if that is exact and short, so that Decimal(7) and 7 make the same filter."""
    value = EXACT.normalize(value)
    exponent = value.as_tuple().exponent
    if not value:
        return 0
    return int(value) if isinstance(exponent, int) and exponent >= 0 and value.adjusted() < MAX_INT_DIGITS else value


def _text(value: str, what: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} contains a lone surrogate, which JSON text can't: {value!r}") from None
    return str(value)


def _to_json(value: Constant) -> Any:
    return {"number": str(value)} if isinstance(value, Decimal) else value


def _from_json(value: Any) -> Any:
    return EXACT.create_decimal(cast("dict[str, str]", value)["number"]) if isinstance(value, dict) else value


# --- messages ---------------------------------------------------------------------------------------------------------


def _is_hidden(data: Any, path: Path) -> bool:
    """Return whether the value at a path, or something around it, is redacted."""
    return any(is_hidden(_at(data, path[:n])) for n in range(len(path) + 1))


def _outcome(actual: Any, seen: Any) -> str:
    """Describe a value. `seen` is what people see of it."""
    if actual is _ABSENT:
        return "the field is absent"
    actual = seen
    if actual is _ABSENT:
        return "got another value"
    shown = "an object" if isinstance(actual, dict) else "an array" if isinstance(actual, list) else show(actual)
    return f"got {shown}"


def _show_path(path: Path) -> str:
    dotted = all(isinstance(step, str) and step and "." not in step for step in path)
    return ".".join(cast("tuple[str, ...]", path)) if dotted else repr(path)


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


NO_FILTER = Filter.build()
