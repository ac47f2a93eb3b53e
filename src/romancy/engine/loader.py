"""The loader: passes inputs to instances, and has those read that are not in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from romancy.engine.inbox import Inboxes
from romancy.engine.leases import Lease
from romancy.engine.outage import Outage
from romancy.engine.reads import Read, Reads
from romancy.engine.resident import Due, Input
from romancy.storage.protocol import Storage
from romancy.storage.records import Snapshot


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
        self._lease, self._inboxes, self._residents, self._revive = lease, inboxes, inboxes.residents, revive
        self._reads = Reads(storage, outage, self._arrived)
        self._reading: dict[str, Read] = {}
        self._left_by_dead: set[str] = set()
        """Waiting instances whose worker died, perhaps because of them."""

    def __repr__(self) -> str:
        return f"<Loader reading={len(self._reading)}>"

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
        """Read an instance, have it revived, and feed it.

        One that is in memory is not read: it could end meanwhile, and what was read would run it again.
        """
        if self._inboxes.is_closed:
            return
        resident = self._residents.get(instance)
        if resident is not None:
            for input in inputs:
                self._inboxes.post(resident, input)
            return
        if instance in self._residents.loading:
            self._residents.loading[instance] += inputs
            self._ask_again(instance, crashed)
            return
        if instance in self._left_by_dead:
            self._left_by_dead.discard(instance)
            crashed = True
        self._residents.loading[instance] = list(inputs)
        read = self._reading[instance] = Read(instance, crashed)
        self._reads.add(read)

    def _ask_again(self, instance: str, crashed: bool) -> None:
        """Note that a read under way may have begun before the instance was ours."""
        read = self._reading.get(instance)
        if read is not None:
            read.is_asked_again, read.crashed = True, read.crashed or crashed

    def overtake(self, instance: str) -> list[Input]:
        """Ignore a read that is under way, because the instance begins now. Return what it was to be fed."""
        self._reading.pop(instance, None)
        return self._residents.loading.pop(instance, [])

    def take_in(self, snapshot: Snapshot) -> None:
        """Have an instance revived that need not be read. Not inside a task, because of what follows."""
        id = snapshot.row.id
        if not self._inboxes.is_closed and id not in self._residents.loading:
            self._residents.loading[id] = []
            read = self._reading[id] = Read(id, crashed=False)
            self._arrived(read, snapshot)

    def _arrived(self, read: Read, snapshot: Snapshot | None) -> None:
        instance = read.instance
        if self._reading.get(instance) is not read:
            return  # it has begun meanwhile
        del self._reading[instance]
        inputs = self._residents.loading.pop(instance, None)
        if inputs is None:
            return  # this worker was taken over, or is stopping
        is_mine = snapshot is not None and self._lease.is_mine(snapshot.row.owner)
        resident = self._residents.get(instance)
        if resident is not None:
            for input in inputs:
                self._inboxes.post(resident, input)
        elif snapshot is not None and is_mine:
            self._revive(Arrival(snapshot, inputs, read.crashed))
        elif read.is_asked_again:
            self.load(instance, *inputs, crashed=read.crashed)
        if not self._residents.knows(instance):
            self._residents.acknowledge(instance)

    def stop(self) -> None:
        self._reads.stop()
        self._reading.clear()
        self._residents.stop_loading()
