"""Foresight: who is next in a full queue, read while others run, so that the end of one lets the next begin at once.

What was read stays true as far as slots are concerned: only admissions take slots, and an admission that came between
makes ours void. When an instance ends that held a slot while we read, one more slot is free than we read. It must have
held the slot for certain: its end was not yet submitted when the answer came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from romancy.core.admission import Glance
from romancy.core.clock import stopwatch

FRESH = 0.1
"""Seconds after which it is read again: others may have come that are to be preferred."""


@dataclass(slots=True)
class _Seen:
    glance: Glance
    holders: Mapping[str, str]
    """Instances that held slots when this was read, with their keys."""
    at: float
    freed: set[str] = field(default_factory=set[str])


class Foresight:
    """What was read ahead, by queue. Each is used once."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def __repr__(self) -> str:
        return f"<Foresight queues={len(self._seen)}>"

    def keep(self, queue: str, glance: Glance, holders: Mapping[str, str]) -> None:
        """Keep what was read while `holders` held slots: instances, with their keys."""
        if holders and glance.key is not None:
            self._seen[queue] = _Seen(glance, holders, stopwatch())

    def freed(self, queue: str, instance: str) -> None:
        """Note that an instance has given its slot back."""
        seen = self._seen.get(queue)
        if seen is not None and instance in seen.holders:
            seen.freed.add(instance)

    def take(self, queue: str) -> Glance | None:
        """Return what was read, without the slots that were given back since; None if it has to be read again."""
        seen = self._seen.get(queue)
        if seen is None or not seen.freed:
            return None
        del self._seen[queue]
        glance, key = seen.glance, seen.glance.key
        if key is None or stopwatch() - seen.at > FRESH:
            return None
        of_key = sum(seen.holders[id] == key.key for id in seen.freed)
        return replace(
            glance,
            state=replace(glance.state, running=glance.state.running - len(seen.freed)),
            key=replace(key, running=key.running - of_key),
        )
