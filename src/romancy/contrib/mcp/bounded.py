"""Answers of bounded size: what is too long for a model is cut, and says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from romancy.http.responses import to_json

MOST = 60_000
"""Characters of an answer, as JSON."""
_STEPS = ((10_000, 1000), (2_000, 100), (500, 50), (200, 20), (80, 5))
"""How long texts and lists can be, tried in this order until the answer fits."""
_DEEPEST = 30


def bounded(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer that fits. The items of the outermost lists are kept, as far as that is possible."""
    text = to_json(answer)
    if len(text) <= MOST:
        return json.loads(text)
    whole = json.loads(text)
    for longest, most in _STEPS:
        cut = {name: _items(value, longest, most) for name, value in whole.items()}
        if len(to_json(cut)) <= MOST:
            return {**cut, "cut": "long values were cut"}
    return _fewer(cut)  # pyright: ignore[reportPossiblyUnboundVariable]


def _items(value: Any, longest: int, most: int) -> Any:
    if isinstance(value, list):
        return [_shorter(item, longest, most) for item in cast("list[Any]", value)]
    return _shorter(value, longest, most)


def _fewer(cut: dict[str, Any]) -> dict[str, Any]:
    """Leave out items of the longest list, then whole values."""
    sizes = {name: len(to_json(value)) for name, value in cut.items()}
    while len(to_json(cut)) > MOST:
        for name in sorted(sizes, key=lambda name: -sizes[name])[: 1 + len(sizes) // 10]:
            items = cast("list[Any]", cut[name]) if isinstance(cut[name], list) else []
            cut[name] = items[: len(items) // 2] if len(items) > 1 else "..."
            sizes[name] = len(to_json(cut[name]))
    return {**cut, "cut": "long values were cut, and items were left out; ask for fewer"}


def _shorter(value: Any, longest: int, most: int, depth: int = 0) -> Any:
    if isinstance(value, str):
        return value if len(value) <= longest else f"{value[:longest]}... ({len(value) - longest:,} more characters)"
    if depth > _DEEPEST and isinstance(value, list | dict):
        return "..."
    if isinstance(value, Mapping):
        pairs = list(cast("Mapping[str, Any]", value).items())
        kept = {name[:longest]: _shorter(part, longest, most, depth + 1) for name, part in pairs[:most]}
        return kept if len(pairs) <= most else {**kept, "...": f"{len(pairs) - most:,} more"}
    if isinstance(value, list):
        parts = cast("list[Any]", value)
        kept = [_shorter(part, longest, most, depth + 1) for part in parts[:most]]
        return kept if len(parts) <= most else [*kept, f"... ({len(parts) - most:,} more)"]
    return value
