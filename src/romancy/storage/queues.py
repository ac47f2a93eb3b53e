"""Queues: what admission reads, and the one write that admits.

An admission is a compare-and-set. The version of the queue is read first, then how many instances hold a slot and which
wait. The write raises the version, and does nothing if it has changed. Only admissions take slots, so none has been
taken since the counts were read. Slots may have been given back meanwhile, which does no harm.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from romancy.core.admission import MOST_ADMITTED, Admission, Glance, KeyState, QueueState
from romancy.core.queues import Queue
from romancy.storage.instances import Admitted
from romancy.storage.sql import Run

AHEAD = 50
"""How many instances are read beyond the limit: they may be next soon."""
UNLIMITED = 1
"""Where there is no limit to compare with, one row is counted."""


@dataclass(slots=True, frozen=True)
class WaitingKey:
    """A key as people see it: how many of its instances run and wait, since when the oldest waits, and its rate."""

    key: str
    running: int
    waiting: int
    oldest_at: int | None
    reserved: int


@dataclass(slots=True, frozen=True)
class QueueUse:
    """Up to when the rates of a queue and of a key are used up, and how many instances hold a slot."""

    reserved: int
    reserved_of_key: int
    running: int
    running_of_key: int


class Admit(Protocol):
    """Admits instances in one transaction. None: another admission came first, or the worker was taken over."""

    async def __call__(
        self, admission: Admission, worker: str, at: int, workflows: Collection[str]
    ) -> list[Admitted] | None: ...


class Queues:
    """The queues of one database. `admit` owns the instances whose workflows are given."""

    def __init__(self, ask: Run, do: Run, admit: Admit) -> None:
        self._ask, self._do, self._admit = self.runs = ask, do, admit

    async def admit(
        self, admission: Admission, worker: str, at: int, workflows: Collection[str]
    ) -> list[Admitted] | None:
        """Admit instances. None: the queue was changed meanwhile."""
        return await self._admit(admission, worker, at, workflows)

    async def glance(self, queue: Queue) -> Glance:
        """Return a queue, which is added if it is new. What holds a slot is counted up to one more than the limit.

        Also return the key whose turn is next, and the first instances of that key.
        """
        given = {"most": _one_more(queue.max_concurrent), "most_of_key": _one_more(queue.max_concurrent_per_key)}
        most = min(queue.max_concurrent or MOST_ADMITTED, queue.max_concurrent_per_key or MOST_ADMITTED)
        limit = min(most + AHEAD, MOST_ADMITTED)
        rows = await self._ask("queue_glance", queue=queue.name, limit=limit, **given)
        while not rows:
            await self._do("insert_queue", queue=queue.name)
            rows = await self._ask("queue_glance", queue=queue.name, limit=limit, **given)
        version, turn, reserved, running, key, of_key, reserved_of_key, is_only, ids = rows[0]
        state = QueueState(version, turn, reserved, running, key is not None)
        if key is None:
            return Glance(state, None, True, [])
        return Glance(state, KeyState(key, of_key, reserved_of_key), bool(is_only), json.loads(ids) if ids else [])

    async def keys(self, queue: str, after: str | None, limit: int, max_per_key: int | None) -> list[KeyState]:
        """Return a page of the keys that have instances waiting, in order, after a key."""
        most = UNLIMITED if max_per_key is None else max_per_key
        return [
            KeyState(*row) for row in await self._ask("waiting_keys", queue=queue, after=after, limit=limit, most=most)
        ]

    async def first(self, queue: str, keys: Sequence[str], limit: int) -> dict[str, list[str]]:
        """Return up to `limit` instances of each key that are next."""
        rows = await self._ask("next_of_keys", queue=queue, listed=list(keys), limit=limit)
        return {key: json.loads(ids) if ids else [] for key, ids in rows}

    async def crowd(self, queue: Queue, cap: int) -> tuple[int, int, int]:
        """Return how many wait, up to `cap`, how many hold a slot, and the time up to which the rate is used up."""
        [row] = await self._ask("queue_crowd", queue=queue.name, cap=cap, most=queue.max_concurrent or UNLIMITED)
        return row

    async def forget_keys(self, before: int) -> None:
        """Forget the rates of keys that are no longer used up."""
        await self._do("forget_queue_keys", before=before)

    # --- for people -------------------------------------------------------------------------------------------------
    async def turn(self, queue: str) -> tuple[str | None, int]:
        """Return the key that was served last, and the time up to which the rate is used up. Adds nothing."""
        rows = await self._ask("queue_turn", queue=queue)
        return (rows[0][0], rows[0][1]) if rows else (None, 0)

    async def use(self, queue: str, key: str, cap: int) -> QueueUse:
        """Return how much of the limits of a queue, and of one of its keys, is used up. Counts up to `cap`."""
        [row] = await self._ask("queue_use", queue=queue, key=key, cap=cap)
        return QueueUse(*row)

    async def holders(self, queue: str, key: str | None, limit: int) -> list[str]:
        """Return some instances that hold slots of a queue; with a key, some that have it."""
        if key is None:
            rows = await self._ask("slot_holders", queue=queue, limit=limit)
        else:
            rows = await self._ask("slot_holders_of_key", queue=queue, key=key, limit=limit)
        return [id for (id,) in rows]

    async def waiting(self, limit: int) -> list[str]:
        """Return the queues in which instances wait."""
        return [name for (name,) in await self._ask("waiting_queues", limit=limit)]

    async def waiting_workflows(self, queue: str, cap: int) -> dict[str, int]:
        """Return how many instances of each workflow wait in a queue. Looks at up to `cap` of them."""
        return dict(map(tuple, await self._ask("waiting_workflows", queue=queue, cap=cap)))

    async def of_instances(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the queue of each of these instances that has one."""
        return dict(await self._ask("queues_of_instances", listed=list(ids)))

    async def shown_keys(self, queue: str, after: str | None, limit: int, cap: int) -> list[WaitingKey]:
        """Return keys that have instances waiting, after a key, as `keys` does. All is counted up to a limit."""
        keys = await self.keys(queue, after, limit, cap)
        rows = await self._ask("waiting_of_keys", queue=queue, listed=[key.key for key in keys], cap=cap)
        return [
            WaitingKey(key.key, key.running, n, at, key.reserved) for key, (_, n, at) in zip(keys, rows, strict=True)
        ]


def _one_more(limit: int | None) -> int:
    """Return how many to count: more than the limit can hold slots, if it was higher before."""
    return UNLIMITED if limit is None else limit + 1
