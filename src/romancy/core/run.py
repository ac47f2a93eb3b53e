"""One run of an instance: its number, the ids of its operations, and the length of its history.

An instance has one run, unless it continues as new.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

WORKFLOW_TIMEOUT = "(workflow timeout)"
LONG = 2_000, 4 * 1024 * 1024
"""Entries and bytes from which on a history counts as long: replaying it begins to take time."""
VERY_LONG = 10_000
"""Entries after which the log warns."""
TOO_LONG = (
    f"its history has {VERY_LONG:,} entries, and all of them are replayed whenever it is loaded; "
    "let it continue as new, for example when ctx.is_history_long"
)
_OF_LATER_RUN = re.compile(r"@\d+$")
_COUNTED = re.compile(r".[:@]\d+$", re.DOTALL)


Seed = tuple[int, str, int]
"""Of a fork: the number of the entry it was copied up to, the id before that, and when that instance was started."""


class Run:
    """A run. From the second one on, all ids of operations end in `@number`.

    What belongs to an earlier run, such as a late result, then finds no operation, and idempotency keys and the ids of
    sent events are different in every run.
    """

    __slots__ = (
        "_alias", "_counts", "_random", "_suffix", "base", "began_at", "copied", "fed", "headers", "number",
        "scheduled_at", "seeds", "size", "started_at", "timeout_id", "too_long",
    )  # fmt: skip

    def __init__(
        self, number: int, base: int, began_at: int, seeds: Sequence[Seed] = (), scheduled_at: int | None = None
    ) -> None:
        """`base`: entries up to this number belong to earlier runs. `seeds`: of a fork, see `alias`."""
        self.scheduled_at = scheduled_at
        """The tick that a schedule started the instance for."""
        self.seeds = seeds
        self.started_at = seeds[0][2] if seeds else None
        """Of a fork: when the instance it was copied from was started, as its code knows it."""
        self.copied = seeds[-1][0] if seeds else 0
        """The number of the last fed entry that a fork has from its original. The fork runs its activation itself."""
        self.number, self.base, self.began_at = number, base, began_at
        self.headers: Mapping[str, str] | None = None
        """What travels with the instance besides its input. Its code does not see it."""
        self._suffix = "" if number == 1 else f"@{number}"
        self._counts: dict[str, int] = {}
        self._random: random.Random | None = None
        self._alias = ""
        self.timeout_id = WORKFLOW_TIMEOUT + self._suffix
        """The id of the timer for the time limit of the workflow."""
        self.fed, self.size = base, 0
        """The number of the last entry that was fed, and the bytes of all that were."""
        self.too_long = base + VERY_LONG
        """The number of the entry with which the history becomes very long."""

    def next_id(self, name: str, given: str | None = None) -> str:
        """Return `name:n`, counted per name in call order, or the id given by the user."""
        count = self._counts[given or name] = self._counts.get(given or name, 0) + 1
        if given is None:
            return f"{name}:{count}{self._suffix}"
        if not given or _COUNTED.search(given):
            raise ValueError(
                f"an id must not be empty or end in ':<number>' or '@<number>' (counted ids do), got {given!r}"
            )
        return f"{given}{self._suffix}" if count == 1 else f"{given}:{count}{self._suffix}"

    def has_given(self, op: str) -> bool:
        """Return whether the code has asked for an operation with this id so far."""
        id = op.removesuffix(self._suffix)
        name, _, count = id.rpartition(":")
        return id in self._counts or (count.isdigit() and int(count) <= self._counts.get(name, 0))

    @property
    def origin(self) -> str | None:
        """Of a fork: the id of the instance it was copied from."""
        return self.seeds[-1][1] if self.seeds else None

    def owns(self, op: str) -> bool:
        """Return whether an operation with this id is of this run."""
        return op.rpartition("@")[2] == str(self.number) if self._suffix else _OF_LATER_RUN.search(op) is None

    def alias(self, instance: str) -> str:
        """Return the id that random numbers and the ids of sent events come from.

        The copied part of a fork was recorded under the id of the instance that it was copied from.
        """
        return next((id for n, id, _ in self.seeds if self.fed < n), instance) if self.seeds else instance

    def random(self, instance: str) -> random.Random:
        """Return the random numbers of this run of an instance: the same on every replay."""
        alias = self.alias(instance)
        if self._random is None or alias != self._alias:
            self._random, self._alias = random.Random(f"romancy:{alias}{self._suffix}"), alias
        return self._random

    @property
    def length(self) -> int:
        """The number of entries up to the one that was fed last."""
        return self.fed - self.base

    @property
    def is_long(self) -> bool:
        """Whether it is time to continue as new."""
        entries, size = LONG
        return self.length >= entries or self.size >= size
