"""Forks: what a copy of an instance is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from romancy.core.history import Entry


@dataclass(slots=True, frozen=True)
class Fork:
    """A copy of an instance, with a part of its history and the events taken until then. Its parent is not copied.

    Without entries it begins again from the input of the current run. Otherwise, `ask` is the request that it finds.
    """

    origin: str
    id: str
    at: int
    token: bytes
    entries: Sequence[Entry] = ()
    seed: str | None = None
    ask: bytes = b""
    generation: int = 0
    """The run of the original that is copied. It is refused if that has continued as new since."""
    who: str | None = None
    """The name of the one who forks it, to be recorded with it."""
    input: bytes | None = None
    """Its input, if that can't be copied because values are sealed."""
    is_sealed: bool = False
    """Whether `entries` are to be stored as they are here, and not copied."""

    @property
    def numbers(self) -> list[int]:
        return [entry.n for entry in self.entries]

    @property
    def cut(self) -> int:
        """The number of the last entry that is copied. Events that the original took later are not taken yet."""
        return max(self.numbers, default=0)
