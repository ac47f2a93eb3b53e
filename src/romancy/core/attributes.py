"""Attributes of instances: small named values to find them by. Checks them, and encodes their values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from romancy.core.ids import is_text
from romancy.core.model import Attribute, Scalar, show
from romancy.errors import InvalidInput

MAX_ATTRIBUTES = 16
"""Attributes of one instance."""
MAX_NAME = 64
MAX_TEXT = 255
"""Characters of a value. Name, value and instance id must fit into one index entry of a database."""
_NAME = re.compile(rf"[\w.-]{{1,{MAX_NAME}}}")
"""Without `=`, blanks and the like: `--where name=value` and `?where.name=value` are unambiguous."""


_INSTEAD = ", or show it with ctx.set_view(...)"


def check_attribute_name(name: Any) -> str:
    """Check the name of an attribute."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not is_text(name):
        raise InvalidInput(
            f"the name of an attribute consists of 1 to {MAX_NAME} letters, digits, '_', '.' and '-', got {show(name)}"
        )
    return name


def encode_attribute(name: str, value: Any, instead: str = _INSTEAD) -> str:
    """Return a value as JSON, which keeps `1`, `True` and `"1"` apart. `instead`: what else to do with another one."""
    if not isinstance(value, str | int):  # a bool is an int
        raise InvalidInput(
            f"attribute {name!r} must be a string, an integer or a boolean, got {show(value)}; convert it{instead}"
        )
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InvalidInput(f"attribute {name!r} must be a 64-bit integer; use a string for a larger one")
    elif len(value) > MAX_TEXT:
        raise InvalidInput(
            f"attribute {name!r} has {len(value):,} characters, more than the {MAX_TEXT} allowed; shorten it{instead}"
        )
    elif not is_text(value):
        raise InvalidInput(f"attribute {name!r} is not valid text: it has half of a surrogate pair, got {show(value)}")
    return json.dumps(value, ensure_ascii=False)


def decode_attribute(value: str) -> Attribute:
    """Return a stored value."""
    return json.loads(value)


def read_attribute(text: str) -> Scalar:
    """Read a value that was typed as text: `true`, `7` and `null` mean that, `"7"` and everything else is a string."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if found is None or isinstance(found, str | int) else text


def write_attribute(value: Attribute) -> str:
    """Return a value as people type it; `read_attribute` reads it again."""
    return value if isinstance(value, str) and read_attribute(value) == value else json.dumps(value, ensure_ascii=False)


def read_pair(text: str) -> tuple[str, Scalar]:
    """Read an attribute that was typed as `customer=c-7`."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"an attribute is given as name=value, like customer=c-7, got {show(text)}")
    found = read_attribute(value)
    encode_attributes({name: found})  # refuses what no attribute can be
    return name, found


def encode_where(where: Mapping[str, Scalar]) -> dict[str, str | None]:
    """Check the attributes of a filter, and return their values as JSON."""
    encoded = encode_attributes(where, "")
    if len(encoded) > MAX_ATTRIBUTES:
        raise InvalidInput(f"a filter has {len(encoded)} attributes, more than the {MAX_ATTRIBUTES} allowed")
    return encoded


def encode_attributes(attributes: Mapping[str, Scalar], instead: str = _INSTEAD) -> dict[str, str | None]:
    """Check attributes, and return their values as JSON; None stays None."""
    if not isinstance(attributes, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"attributes are given as a mapping of names to values, got {show(attributes)}")
    return {
        check_attribute_name(name): None if value is None else encode_attribute(name, value, instead)
        for name, value in attributes.items()
    }
