"""Limits, results and errors of the parser."""

from __future__ import annotations

from dataclasses import dataclass

from romancy.core.model import Event
from romancy.errors import InvalidEvent, RomancyError

_SHOWN = 3
"""Failures of a batch that its message shows; `failures` has all of them."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is accepted, and how strictly.

    `max_depth` limits the nesting of the data alone; it can be at most 200. `strict` also refuses mistakes that some
    senders make: a lone `%` or non-ASCII bytes in a header, and characters in a URI that RFC 3986 does not allow.
    """

    max_batch: int = 1000
    max_depth: int = 64
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Parsed:
    """The events of one request. `batched` is true if they came as a batch, even of one event or none."""

    events: list[Event]
    batched: bool


class UnsupportedFormat(RomancyError):
    """The format of the request is not supported."""


class TooLarge(RomancyError):
    """The request is larger than allowed."""


class InvalidBatch(InvalidEvent):
    """Some events of a batch are invalid, so none was accepted. `failures` has the index and reason of each."""

    def __init__(self, failures: list[tuple[int, str]], total: int) -> None:
        reasons = "; ".join(f"event {index}: {why}" for index, why in failures[:_SHOWN])
        more = f"; and {len(failures) - _SHOWN} more" if len(failures) > _SHOWN else ""
        super().__init__(f"{len(failures)} of {total} events are invalid, so none was accepted: {reasons}{more}")
        self.failures = failures
