"""Patterns of event types: `order.paid` is itself, `order.*` is everything below `order.`, `*` is everything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from romancy.core.events import OURS, check_text
from romancy.core.model import show

MOST_LEVELS = 20
"""Maximum dots in a pattern."""


class Patterns:
    """Patterns of event types. One that has none matches nothing."""

    def __init__(self, patterns: Sequence[str], what: str) -> None:
        if isinstance(patterns, str):
            raise ValueError(f"{what} must be a list of event types, not one text: [{patterns!r}]")
        for pattern in patterns:
            check_pattern(pattern, what)
        self._exact = frozenset(pattern for pattern in patterns if not pattern.endswith("*"))
        self._prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))

    def __repr__(self) -> str:
        return f"<Patterns {[*sorted(self._exact), *(f'{prefix}*' for prefix in self._prefixes)]}>"

    def match(self, type: str) -> bool:
        return type in self._exact or (type.startswith(self._prefixes) and not type.startswith(OURS))


def check_pattern(pattern: str, what: str) -> None:
    """Raise `ValueError` if a text is no pattern."""
    check_text(what, pattern)
    head, star, tail = pattern.partition("*")
    if head.count(".") > MOST_LEVELS and star:
        raise ValueError(f"{what}: a pattern has at most {MOST_LEVELS} levels, got {show(pattern)}")
    if star and (tail or (head and not head.endswith("."))):
        raise ValueError(f"{what}: a pattern is a type, 'order.*' or '*', not {show(pattern)}")


def is_pattern(text: str) -> bool:
    return text.endswith("*")


def patterns_of(type: str) -> list[str]:
    """Return everything that matches a type, itself first: `a.b`, `a.*`, `*`. Romancy's own only match exactly."""
    if type.startswith(OURS):
        return [type]
    heads = accumulate(type.split(".", MOST_LEVELS)[:-1], "{}.{}".format)
    return list(dict.fromkeys((type, *reversed([f"{head}.*" for head in heads]), "*")))
