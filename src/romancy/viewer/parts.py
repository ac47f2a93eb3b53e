"""Which part of a history a page shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """The part of a history that a page shows: the entries after `after` of one run.

    Of the runs before the current one, only the last is kept.
    """

    after: int
    base: int
    """The number before the first entry of the run."""
    end: int
    """The number of the last entry of the run."""
    is_current: bool = True
    run_before: int | None = None
    """Where the newest entries of the run before begin; None if no entry of it is stored."""

    @property
    def length(self) -> int:
        """How many entries the run has."""
        return self.end - self.base
