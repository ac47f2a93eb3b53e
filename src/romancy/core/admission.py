"""Which queued instances are admitted next: decided from what was read, without I/O.

Keys take turns. A round begins after the key that was served last, and gives each key one instance after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from romancy.core.model import SECOND, duration_us
from romancy.core.queues import Queue, Rate

MOST_ADMITTED = 500
"""How many instances are admitted at a time."""


@dataclass(slots=True, frozen=True)
class QueueState:
    """A queue as it was read. `version` changes with every admission: another one in between makes this one void."""

    version: int
    turn: str | None
    """The key that was served last."""
    reserved: int
    """The time up to which the rate is used up."""
    running: int
    """How many instances hold a slot, counted up to one more than the limit."""
    has_waiting: bool


@dataclass(slots=True, frozen=True)
class KeyState:
    """A key that has instances waiting."""

    key: str
    running: int
    reserved: int


@dataclass(slots=True, frozen=True)
class Glance:
    """A queue, and the key whose turn is next with the first of its instances. `is_only`: no other key waits."""

    state: QueueState
    key: KeyState | None
    is_only: bool
    ids: Sequence[str]

    def decides(self, queue: Queue, most: int, now: int) -> Sequence[tuple[str, str]] | None:
        """Return which instances are to be admitted, if this is enough to know. `most`: how many of all keys."""
        if self.key is None or not (most == 1 or self.is_only):
            return None
        return [(self.key.key, id) for id in self.ids[: min(most, room_of_key(queue, self.key, now))]] or None

    def is_exact(self, queue: Queue) -> bool:
        """Return whether all that hold slots were counted: more than the limits can, if those were higher before."""
        most, most_of_key = queue.max_concurrent, queue.max_concurrent_per_key
        of_key = 0 if self.key is None else self.key.running
        return (most is None or self.state.running <= most) and (most_of_key is None or of_key <= most_of_key)

    def is_full_with(self, queue: Queue, admitted: int) -> bool:
        """Return whether, with so many more, no other instance can be admitted before one has ended."""
        if queue.max_concurrent is not None and self.state.running + admitted >= queue.max_concurrent:
            return True
        most = queue.max_concurrent_per_key
        return self.is_only and self.key is not None and most is not None and self.key.running + admitted >= most


@dataclass(slots=True)
class Admission:
    """What to store: the instances to admit, the key served last, and what is used up of the rates."""

    queue: str
    version: int
    turn: str | None
    reserved: int
    ids: list[str] = field(default_factory=list[str])
    keys: dict[str, int] = field(default_factory=dict[str, int])
    """The time up to which the rate of each key is used up."""


# --- rates: one number says up to which time a rate is used up ------------------------------------------------------
def allowed(rate: Rate, reserved: int, now: int) -> int:
    """Return how many can begin now. `reserved`: the time up to which the rate is used up."""
    interval = _interval(rate)
    return max(0, (now + _burst(rate) * interval - max(reserved, now)) // interval)


def reserve(rate: Rate, reserved: int, now: int, n: int) -> int:
    """Return the time up to which the rate is used up once `n` more have begun."""
    return max(reserved, now) + n * _interval(rate)


def next_at(rate: Rate, reserved: int) -> int:
    """Return when the next one can begin, if none can now."""
    return reserved - (_burst(rate) - 1) * _interval(rate)


def used_up(rate: Rate, now: int) -> int:
    """Return the time up to which a rate is used up when all that can begin now has begun."""
    return now + _burst(rate) * _interval(rate)


def is_beyond_reach(rate: Rate, reserved: int, now: int) -> bool:
    """Whether a rate is used up further ahead than it can be. The clocks of workers differ a little."""
    return reserved > used_up(rate, now) + SECOND


def _interval(rate: Rate) -> int:
    """Return the microseconds between two beginnings, rounded up so that the rate is never exceeded."""
    return -(-duration_us(rate.per) // rate.count)


def _burst(rate: Rate) -> int:
    return rate.count if rate.burst is None else rate.burst


# --- decisions ------------------------------------------------------------------------------------------------------
def room(queue: Queue, state: QueueState, now: int) -> int:
    """Return how many instances of all keys can be admitted now."""
    return free_slots(queue, state.running, state.reserved, now, MOST_ADMITTED)


def free_slots(queue: Queue, running: int, reserved: int, now: int, most: int) -> int:
    """Return how many instances can begin now, up to `most`, whatever the limits of their keys."""
    if queue.max_concurrent is not None:
        most = min(most, queue.max_concurrent - running)
    if queue.rate is not None:
        most = min(most, allowed(queue.rate, reserved, now))
    return max(0, most)


def room_of_key(queue: Queue, key: KeyState, now: int) -> int:
    """Return how many instances of one key can be admitted now, as far as the limits for keys are concerned."""
    most = MOST_ADMITTED
    if queue.max_concurrent_per_key is not None:
        most = min(most, queue.max_concurrent_per_key - key.running)
    if queue.rate_per_key is not None:
        most = min(most, allowed(queue.rate_per_key, key.reserved, now))
    return max(0, most)


def opens_at(queue: Queue, state: QueueState, keys: Iterable[KeyState], now: int) -> int | None:
    """Return when a rate allows the next instance, if only rates hold back those that wait; None: an end is needed."""
    if queue.max_concurrent is not None and state.running >= queue.max_concurrent:
        return None
    if queue.rate is not None and allowed(queue.rate, state.reserved, now) == 0:
        return next_at(queue.rate, state.reserved)
    rate, limit = queue.rate_per_key, queue.max_concurrent_per_key
    if rate is None:
        return None
    held = (key for key in keys if limit is None or key.running < limit)
    return min((next_at(rate, key.reserved) for key in held), default=None)


def take_turns(waiting: Mapping[str, Sequence[str]], most: int) -> list[tuple[str, str]]:
    """Return (key, instance) of those to admit: one of each key in turn, then the second of each, and so on."""
    taken: list[tuple[str, str]] = []
    longest = max(map(len, waiting.values()), default=0)
    for n in range(longest):
        for key, ids in waiting.items():
            if n < len(ids):
                if len(taken) == most:
                    return taken
                taken.append((key, ids[n]))
    return taken


def admission(
    queue: Queue, state: QueueState, keys: Mapping[str, KeyState], taken: Sequence[tuple[str, str]], now: int
) -> Admission:
    """Return what to store to admit these instances."""
    reserved = state.reserved
    if queue.rate is not None:
        reserved = reserve(queue.rate, reserved, now, len(taken))
    made = Admission(queue.name, state.version, taken[-1][0], reserved, [id for _, id in taken])
    if queue.rate_per_key is not None:
        for key, _ in taken:
            before = made.keys.get(key, keys[key].reserved)
            made.keys[key] = reserve(queue.rate_per_key, before, now, 1)
    return made
