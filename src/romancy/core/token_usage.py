"""The tokens that recorded results say they used: model answers carry a `usage` with `input_tokens`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, cast


@dataclass(frozen=True)
class TokenUsage:
    """Tokens, and what they cost in dollars, if that is known."""

    input_tokens: int
    output_tokens: int
    cost: Decimal | None = None

    def __add__(self, other: TokenUsage) -> TokenUsage:
        known = [one.cost for one in (self, other) if one.cost is not None]
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            sum(known, Decimal(0)) if known else None,
        )

    def __str__(self) -> str:
        cost = "" if self.cost is None else f", ${_short(self.cost)}"
        return f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out{cost}"


def usage_of(result: Any) -> TokenUsage | None:
    """Return what a result used, if it says so: as `usage` (or LangChain's `usage_metadata`), or in a `response`."""
    if not isinstance(result, Mapping):
        return None
    fields = cast("Mapping[str, Any]", result)
    usage = fields.get("usage") or fields.get("usage_metadata")
    if not isinstance(usage, Mapping):
        response = fields.get("response")
        return usage_of(response) if isinstance(response, Mapping) else None
    counts = cast("Mapping[str, Any]", usage)
    tokens_in, tokens_out = counts.get("input_tokens"), counts.get("output_tokens")
    if not (_is_count(tokens_in) and _is_count(tokens_out)):
        return None
    return TokenUsage(cast(int, tokens_in), cast(int, tokens_out), _cost(counts.get("cost")))


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def total_usage(results: Iterable[Any]) -> TokenUsage | None:
    """Return what all these results used together, or None if none of them says."""
    total: TokenUsage | None = None
    for usage in filter(None, map(usage_of, results)):
        total = usage if total is None else total + usage
    return total


def _cost(value: object) -> Decimal | None:
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        return None
    try:
        cost = Decimal(str(value))
    except InvalidOperation:
        return None
    return cost if cost.is_finite() and cost >= 0 else None


def _short(cost: Decimal) -> str:
    """Write an amount with two digits that count, or with cents if it is a dollar or more."""
    if cost >= 1 or not cost:
        return f"{cost:,.2f}"
    return f"{cost:.{1 - cost.adjusted()}f}"
