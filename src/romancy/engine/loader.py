"""The loader: passes inputs to instances, and reads instances that are not in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from romancy.engine.inbox import Inboxes
from romancy.engine.leases import Lease
from romancy.engine.outage import Outage
from romancy.engine.resident import Due, Input
from romancy.storage.errors import TransientError
from romancy.storage.protocol import Storage
from romancy.storage.records import Snapshot

_logger = logging.getLogger("romancy")


class Arrival(NamedTuple):
    """An instance that was read, with the inputs that came meanwhile. `crashed`: its last worker died."""

    snapshot: Snapshot
    inputs: list[Input]
    crashed: bool


class Loader:
    """All inputs from outside come through `wake`. Instances that were read go to `revive`."""

    def __init__(
        self,
        storage: Storage,
        lease: Lease,
        inboxes: Inboxes,
        outage: Outage,
        revive: Callable[[Arrival], None],
    ) -> None:
        self._storage, self._lease, self._inboxes, self._outage = storage, lease, inboxes, outage
        self._residents, self._revive = inboxes.residents, revive
        self._loads: set[asyncio.Task[None]] = set()
        self._unreadable: set[str] = set()
        self._left_by_dead: set[str] = set()
        """Waiting instances whose worker died, perhaps because of them."""

    def __repr__(self) -> str:
        return f"<Loader reading={len(self._loads)}>"

    def wake(self, instance: str, input: Input) -> None:
        """Pass an input to an instance of this worker. Load the instance if it is not in memory."""
        resident = self._residents.get(instance)
        if resident is not None:
            self._inboxes.post(resident, input)
        else:
            self.load(instance, input)

    def fire(self, instance: str, op: str) -> None:
        """Pass on that a timer is due."""
        self.wake(instance, Due(op))

    def expect(self, instance: str, *, crashed: bool) -> None:
        """Note a claimed instance that only waits. It is read when it is due, and suspected then if its worker died."""
        if crashed:
            self._left_by_dead.add(instance)

    def load(self, instance: str, *inputs: Input, crashed: bool = False) -> None:
        """Read an instance, have it revived, and feed it."""
        if self._inboxes.is_closed:
            return
        if instance in self._residents.loading:
            self._residents.loading[instance] += inputs
            return
        if instance in self._left_by_dead:
            self._left_by_dead.discard(instance)
            crashed = True
        self._residents.loading[instance] = list(inputs)
        task = asyncio.create_task(self._load(instance, crashed))
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    async def _load(self, instance: str, crashed: bool) -> None:
        pause = 0.1
        while True:
            try:
                snapshot = await self._storage.load(instance)
                self._outage.over(f"load {instance}")
                break
            except TransientError as error:
                self._outage.noticed(f"load {instance}", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 30.0)
            except Exception as error:
                if instance not in self._unreadable:
                    self._unreadable.add(instance)
                    _logger.error("instance %r can't be read (%s); it does not run", instance, error)
                snapshot = None
                break
        # A replay runs user code, which must not happen inside a task.
        asyncio.get_running_loop().call_soon(self._arrived, instance, snapshot, crashed)

    def _arrived(self, instance: str, snapshot: Snapshot | None, crashed: bool) -> None:
        inputs = self._residents.loading.pop(instance, None)
        if inputs is None:
            return  # this worker was taken over, or is stopping
        resident = self._residents.get(instance)
        if resident is not None:
            for input in inputs:
                self._inboxes.post(resident, input)
        elif snapshot is not None and self._lease.is_mine(snapshot.row.owner):
            self._revive(Arrival(snapshot, inputs, crashed))
        if not self._residents.knows(instance):
            self._residents.acknowledge(instance)

    def stop(self) -> None:
        for task in self._loads:
            task.cancel()
        self._residents.stop_loading()
