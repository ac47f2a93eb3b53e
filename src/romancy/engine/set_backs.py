"""Rates after a clock was set back, or after a rate was raised: they are used up further ahead than they can be.

Such a rate would admit nothing until the clock has caught up. After a while it is corrected: it is then used up as far
as it can be, and no further. So no more instances begin than the rate allows, and none waits for the clock for long.
"""

from __future__ import annotations

from collections.abc import Iterable

from romancy.core.admission import Admission, KeyState, QueueState, is_beyond_reach, used_up
from romancy.core.model import SECOND
from romancy.core.queues import Queue, Rate

PATIENCE = 30 * SECOND
"""By then, every worker has noticed that the clock of the database was set back, and does not undo corrections."""
MOST_NOTED = 10_000


class SetBacks:
    """Notes since when rates have been used up too far ahead."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str | None], int] = {}

    def __repr__(self) -> str:
        return f"<SetBacks noted={len(self._since)}>"

    def correction(self, queue: Queue, state: QueueState, keys: Iterable[KeyState], now: int) -> Admission | None:
        """Return what to store so that the rates of a queue and of these keys can be used again; None: all is well."""
        made = Admission(queue.name, state.version, state.turn, state.reserved)
        if queue.rate is not None and self._is_due(queue.name, None, queue.rate, state.reserved, now):
            made.reserved = used_up(queue.rate, now)
        if queue.rate_per_key is not None:
            for key in keys:
                if self._is_due(queue.name, key.key, queue.rate_per_key, key.reserved, now):
                    made.keys[key.key] = used_up(queue.rate_per_key, now)
        return made if made.keys or made.reserved != state.reserved else None

    def _is_due(self, queue: str, key: str | None, rate: Rate, reserved: int, now: int) -> bool:
        if not is_beyond_reach(rate, reserved, now):
            self._since.pop((queue, key), None)
            return False
        since = self._since.get((queue, key), now)
        if now >= since + PATIENCE:
            self._since.pop((queue, key), None)
            return True
        if len(self._since) >= MOST_NOTED:
            self._since.clear()
        self._since[queue, key] = min(since, now)  # it may have been set back once more
        return False
