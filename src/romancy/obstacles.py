"""What keeps an instance waiting: the limits of its queue, or that events it waits for were removed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from romancy.core.admission import allowed, next_at
from romancy.core.durations import span
from romancy.core.model import SECOND, duration_us, from_us
from romancy.core.queues import Queue, Rate
from romancy.core.registry import Registry
from romancy.core.versions import split_name
from romancy.records import QueueWait, Wait
from romancy.storage.catalog import MOST_IN_QUEUE, Catalog
from romancy.storage.protocol import Storage
from romancy.storage.queues import QueueUse
from romancy.storage.records import InstanceRow

NAMED = 3
"""How many instances are named that hold slots."""

Limit = Literal["max_concurrent", "max_concurrent_per_key", "rate", "rate_per_key"]


async def queue_wait(storage: Storage, registry: Registry, row: InstanceRow, now: int) -> Wait:
    """Return what a queued instance waits for, and which limit of its queue holds it."""
    name, key = row.queue or "", row.queue_key or ""
    queue = registry.queues.get(name)
    used, ahead = await storage.queues.use(name, key, MOST_IN_QUEUE), await storage.catalog.ahead(row)
    held = Held(None) if queue is None else _held(queue, used, now)
    of_key = held.limit == "max_concurrent_per_key" or (queue is None and bool(key) and used.running_of_key > 0)
    names, n = await _holders(storage, row, of_key=of_key), used.running_of_key if of_key else used.running
    who = _who(names, n, key if of_key else "")
    reason = _unknown(registry, row, who) if queue is None else _reason(queue, held, who, ahead)
    opens_at = None if held.opens_at is None else from_us(held.opens_at)
    counts = ahead, used.running, used.running_of_key
    why = QueueWait(reason, held.limit, queue is not None, *counts, tuple(names), opens_at)
    since = from_us(row.created_at if row.limited_from is None else row.limited_from)
    return Wait(row.id, name, "queue", (), {}, since, None, "", workflow=row.workflow, queue=why)


async def with_cuts(catalog: Catalog, created_at: int, waits: Sequence[Wait]) -> list[Wait]:
    """Add to each wait up to when events for it were removed because of `Retention(events=...)`."""
    types = {type for wait in waits for type in wait.types}
    cuts = {type: upto for type, upto in (await catalog.cuts(types) if types else {}).items() if upto > created_at}
    return [_with_cut(wait, [cuts[type] for type in wait.types if type in cuts]) for wait in waits]


def _with_cut(wait: Wait, cuts: Collection[int]) -> Wait:
    return replace(wait, cut_at=from_us(max(cuts))) if cuts else wait


class Held(NamedTuple):
    """The limit that holds an instance, and when it allows the next one, if it is a rate."""

    limit: Limit | None
    opens_at: int | None = None


def _held(queue: Queue, used: QueueUse, now: int) -> Held:
    """Return the limit of a queue that is used up. One that only an end can change comes before a rate."""
    per_key, rate_per_key = queue.max_concurrent_per_key, queue.rate_per_key
    if per_key is not None and used.running_of_key >= per_key:
        return Held("max_concurrent_per_key")
    if queue.max_concurrent is not None and used.running >= queue.max_concurrent:
        return Held("max_concurrent")
    if rate_per_key is not None and not allowed(rate_per_key, used.reserved_of_key, now):
        return Held("rate_per_key", next_at(rate_per_key, used.reserved_of_key))
    if queue.rate is not None and not allowed(queue.rate, used.reserved, now):
        return Held("rate", next_at(queue.rate, used.reserved))
    return Held(None)


async def _holders(storage: Storage, row: InstanceRow, *, of_key: bool) -> list[str]:
    return await storage.queues.holders(row.queue or "", row.queue_key if of_key else None, NAMED)


def _who(names: Sequence[str], n: int, key: str) -> str:
    """Name who holds the slots: `a1, a2 and 7 others with key 'a' hold slots`."""
    if not names:
        return "none holds a slot"
    n = max(n, len(names))
    others = n - len(names)
    rest = (
        f" and {others:,}{'+' if n >= MOST_IN_QUEUE else ''} {'other' if others == 1 else 'others'}" if others else ""
    )
    having = f" with key {key!r}" if key else ""
    return f"{', '.join(names)}{rest}{having} {'holds a slot' if n == 1 else 'hold slots'}"


def _reason(queue: Queue, held: Held, who: str, ahead: int) -> str:
    match held.limit:
        case "max_concurrent" | "max_concurrent_per_key":
            return f"{held.limit}={getattr(queue, held.limit)} of the queue is reached: {who}"
        case "rate" | "rate_per_key":
            of = "the queue" if held.limit == "rate" else "its key"
            return f"the rate of {of} is used up: {rate_words(getattr(queue, held.limit))}"
        case None:
            order = "once those before it are, " if ahead else ""
            return f"no limit of the queue holds it: a worker admits it {order}when it is the turn of its key"


def _unknown(registry: Registry, row: InstanceRow, who: str) -> str:
    """Say that the queue is not in the code of this process, and what to do if it is in no other one either."""
    definition = registry.definitions.get(row.workflow)
    if definition is None:
        return (
            f"{who}. The limits of the queue are in the code of its workers: if none of them has queue "
            f"{row.queue!r}, because it was renamed or removed, it waits forever"
        )
    now = "has no queue" if definition.queue is None else f"has queue {definition.queue.name!r}"
    return (
        f"{who}. In the code of this process, workflow {split_name(row.workflow)[0]!r} {now}. If queue {row.queue!r} "
        "was renamed or removed, it waits until a worker has that queue again, or until it is cancelled"
    )


def rate_words(rate: Rate) -> str:
    """Describe a rate: `100 every 1 min, 10 at once`."""
    burst = "" if rate.burst is None else f", {rate.burst:,} at once"
    return f"{rate.count:,} every {span(duration_us(rate.per) / SECOND)}{burst}"
