"""When things began. A history says when they ended; the code, run over it once more, tells the rest.

Replaying is what a worker does whenever an instance comes back to memory: nothing happens twice, nothing leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from romancy.core.history import Entry
from romancy.core.instance import WORKFLOW_TIMEOUT, Instance
from romancy.core.operations import ActivityCall, EventWait, Operation
from romancy.core.registry import WorkflowDefinition
from romancy.storage.records import InstanceRow
from romancy.viewer.spans import Opened

MOST = 500
"""Entries of a history that is replayed: more would hold up the event loop for too long."""


class Noted(dict[str, Operation]):
    """The open operations of an instance; notes when each came and went, and what was waited for."""

    def __init__(self, instance: Instance) -> None:
        super().__init__()
        self._instance = instance
        self.openings: dict[str, Opened] = {}
        self.waits: dict[str, EventWait] = {}

    def __setitem__(self, id: str, operation: Operation) -> None:
        super().__setitem__(id, operation)
        if id != WORKFLOW_TIMEOUT:
            self.openings[id] = Opened(_kind(operation), operation.since)
        if isinstance(operation, EventWait):
            self.waits[id] = operation

    def __delitem__(self, id: str) -> None:
        super().__delitem__(id)
        known = self.openings.get(id)
        if known is not None:
            self.openings[id] = Opened(known.kind, known.began, self._instance.at)


def _kind(operation: Operation) -> str:
    if isinstance(operation, ActivityCall):
        return "activity"
    return "event" if isinstance(operation, EventWait) else "timer"


async def replayed(definition: WorkflowDefinition, row: InstanceRow, entries: Sequence[Entry]) -> Noted:
    """When each operation began, as far as today's code follows the history."""
    future: asyncio.Future[Noted] = asyncio.get_running_loop().create_future()

    def run() -> None:
        if not future.done():
            future.set_result(_replay(definition, row, entries))

    asyncio.get_running_loop().call_soon(run)  # an instance can't run inside a task
    return await future


def _replay(definition: WorkflowDefinition, row: InstanceRow, entries: Sequence[Entry]) -> Noted:
    instance = Instance(definition, row.id, row.input, row.created_at, input_kind=row.input_kind, deadline=row.deadline)
    instance.ops = noted = Noted(instance)
    try:
        instance.replay(entries)
    except Exception:  # the code has left the history: the instance is blocked, and its page says so
        pass
    finally:
        instance.evict()
    return noted
