"""What the parser takes and gives, and how it refuses."""

from __future__ import annotations

from dataclasses import dataclass

from romancy.core.model import Event
from romancy.errors import InvalidEvent, RomancyError

_SHOWN = 3
"""So many failures of a batch are in its message; all of them are in `failures`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is accepted, and how strictly.

    `max_depth` counts the levels of the data alone, whatever it is wrapped in; 200 is the most there can be. `strict`
    also refuses what senders must not send but some do: a lone `%` or raw bytes beyond ASCII in a header, characters
    RFC 3986 does not know in a URI.
    """

    max_batch: int = 1000
    max_depth: int = 64
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Parsed:
    """The events of one request; `batched` says whether they came as a batch, be it of one or none."""

    events: list[Event]
    batched: bool


class UnsupportedFormat(RomancyError):
    """This is not a format in which events are understood."""


class TooLarge(RomancyError):
    """More was sent at once than is accepted."""


class InvalidBatch(InvalidEvent):
    """Some events of a batch can't be accepted, so none is; `failures` holds every index and why."""

    def __init__(self, failures: list[tuple[int, str]], total: int) -> None:
        said = "; ".join(f"event {index}: {why}" for index, why in failures[:_SHOWN])
        more = f"; and {len(failures) - _SHOWN} more" if len(failures) > _SHOWN else ""
        super().__init__(f"{len(failures)} of the {total} events can't be accepted, so none was: {said}{more}")
        self.failures = failures
