"""Which entries of a history no longer count, and since which retry. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic_core import from_json

from romancy.core.model import from_us


@dataclass(frozen=True)
class Retry:
    """A retry that dropped entries: the number of its mark, and when it was."""

    n: int
    at: datetime


def dropped_entries(marks: Iterable[tuple[int, int, bytes | None]]) -> Mapping[int, Retry]:
    """Return the retry that dropped each entry, by the number of the entry.

    `marks` are numbers, times and inputs. An input may have been cut short: then some entries are missing.
    """
    found: dict[int, Retry] = {}
    for n, at, raw in marks:
        about: dict[str, Any] = from_json(raw or b"{}", allow_partial=True)
        numbers: Sequence[int] = about.get("dropped", ())
        for number in numbers:
            found.setdefault(number, Retry(n, from_us(at)))
    return found
