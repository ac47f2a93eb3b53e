"""Warns about queues that were renamed in the code, or removed from it, while instances wait in them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from romancy.core.registry import Registry
from romancy.storage.queues import Queues

_logger = logging.getLogger("romancy")
MOST_QUEUES, COUNTED = 1_000, 10_000
"""How many queues are looked at, and how many instances of each."""


async def warn_of_lost_queues(queues: Queues, registry: Registry) -> None:
    """Log each queue that no workflow of this worker has, although instances of its workflows wait there.

    Other instances may belong to other workers, which share the database and have their own queues.
    """
    for name in await queues.waiting(MOST_QUEUES):
        if name in registry.queues:
            continue
        waiting = await queues.waiting_workflows(name, COUNTED)
        ours = {workflow: n for workflow, n in waiting.items() if registry.get(workflow) is not None}
        if ours:
            _logger.warning(_explain(name, ours))


def _explain(queue: str, waiting: Mapping[str, int]) -> str:
    n = sum(waiting.values())
    counted = f"at least {n:,}" if n >= COUNTED else f"{n:,}"
    verb, them = ("instance waits", "it runs") if n == 1 else ("instances wait", "they run")
    names = ", ".join(map(repr, waiting))
    return (
        f"{counted} {verb} in queue {queue!r}, which no workflow of this worker has ({names}). If it was renamed or "
        f"removed, nothing admits {'it' if n == 1 else 'them'}: give a workflow Queue({queue!r}, ...) until {them}, or "
        f"cancel {'it' if n == 1 else 'them'} with `romancy cancel --queue {queue} --status queued`"
    )
