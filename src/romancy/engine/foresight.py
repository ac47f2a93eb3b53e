"""Foresight: who is next in a full queue, read while others run, so that the end of one lets the next begin at once.

What was read stays true as far as slots are concerned: only admissions take slots, and an admission that came between
makes ours void. When an instance ends that held a slot while we read, one more slot is free than we read. It must have
held the slot for certain: its end was not yet submitted when the answer came.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from romancy.core.admission import Admission, Glance, QueueState, admission, room
from romancy.core.clock import stopwatch
from romancy.core.queues import Queue
from romancy.storage.instances import Admitted

FRESH, AGING = 0.25, 0.1
"""Seconds after which it is no longer used, and after which it is read again if it is used: others may have come that
are to be preferred."""


@dataclass(slots=True)
class _Seen:
    glance: Glance
    holders: Mapping[str, str]
    """Instances that held slots when this was read, with their keys."""
    at: float
    freed: set[str] = field(default_factory=set[str])

    @property
    def is_fresh(self) -> bool:
        return stopwatch() - self.at <= FRESH

    def without(self, freed: Set[str]) -> Glance:
        """Return what was read, as it is without these instances."""
        glance, key = self.glance, self.glance.key
        of_key = 0 if key is None else sum(self.holders[id] == key.key for id in freed)
        state = replace(glance.state, running=glance.state.running - len(freed))
        return replace(glance, state=state, key=None if key is None else replace(key, running=key.running - of_key))


@dataclass(slots=True)
class _Succession:
    """An admission that is stored with the end of an instance. `seen`: what is left when that instance has ended."""

    ender: str
    made: Admission
    seen: _Seen


class Foresight:
    """What was read ahead, by queue. Each is used once."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._successions: dict[str, _Succession] = {}

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
        return seen.without(seen.freed) if seen.is_fresh else None

    # --- successions: the end of one and the admission of the next are stored together ------------------------------
    def successor(self, queue: Queue, instance: str, now: int) -> Admission | None:
        """Return the admission of one that gets the slot of this instance, to be stored with its end."""
        seen = self._seen.get(queue.name)
        if seen is None or instance not in seen.holders or not seen.is_fresh or queue.rate_per_key is not None:
            return None
        gone = {*seen.freed, instance}
        glance = seen.without(gone)
        most = room(queue, glance.state, now)
        taken = glance.decides(queue, most, now) if most else None
        if taken is None or glance.key is None:
            return None
        del self._seen[queue.name]
        made = admission(queue, glance.state, {glance.key.key: glance.key}, taken[:1], now)
        holders = {id: key for id, key in seen.holders.items() if id not in gone}
        self._forget_refused(made.ids[0])
        self._successions[queue.name] = _Succession(instance, made, replace(seen, glance=glance, holders=holders))
        return made

    def _forget_refused(self, id: str) -> None:
        """Forget that an instance was to be admitted to a queue it has left since: that was refused."""
        for queue in [queue for queue, succession in self._successions.items() if id in succession.made.ids]:
            del self._successions[queue]

    def is_succeeded(self, queue: str, instance: str) -> bool:
        """Whether an admission is stored with the end of this instance, and was not answered yet."""
        succession = self._successions.get(queue)
        return succession is not None and succession.ender == instance

    def is_aging(self, queue: str) -> bool:
        """Whether what was read is to be read again soon, or is used up."""
        seen = self._seen.get(queue)
        return seen is None or stopwatch() - seen.at > AGING

    def forget(self, queue: str) -> list[str]:
        """Forget a succession that was refused, or whose answer was lost. Return whom it was to admit."""
        return self._successions.pop(queue).made.ids

    def admitted(self, one: Admitted) -> tuple[str, str] | None:
        """Note that an admission was stored with the end of another instance. Return the queue and the key, if known.

        If all that wait have one key, it is known who is next after this one.
        """
        found = [s for s in self._successions.values() if one.id in s.made.ids]
        if not found or (key := found[0].seen.glance.key) is None:
            return None
        [succession] = found
        made, seen, glance = succession.made, succession.seen, succession.seen.glance
        del self._successions[made.queue]
        ids = [id for id in glance.ids if id != one.id]
        if one.is_mine and glance.is_only and ids:
            state = QueueState(made.version + 1, made.turn, made.reserved, glance.state.running + 1, True)
            after = replace(glance, state=state, key=replace(key, running=key.running + 1), ids=ids)
            self._seen[made.queue] = _Seen(after, {**seen.holders, one.id: key.key}, seen.at)
        return made.queue, key.key
