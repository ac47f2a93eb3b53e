"""A storage that dies: the k-th write is lost before, or its answer after, and nothing goes through any more."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from romancy.storage.batch import Batch, BatchResult, Commit
from romancy.storage.protocol import Answered, Storage

When = Literal["before", "after"]


@dataclass(slots=True)
class Fault:
    """Dies at the k-th write (from 1) of these kinds."""

    k: int
    when: When
    kinds: Collection[str] = ("commit",)
    seen: int = 0
    struck: bool = False

    def strikes(self, kind: str) -> bool:
        if self.struck or kind not in self.kinds:
            return False
        self.seen += 1
        self.struck = self.seen == self.k
        return self.struck


class MortalStorage:
    """The `Storage` of one process. Once it is dead no call of it returns; the database behind it lives on."""

    def __init__(self, inner: Storage, faults: Sequence[Fault] = ()) -> None:
        self.inner = inner
        self.faults = faults
        self.died = asyncio.Event()
        self._judged: tuple[Fault | None, ...] = ()

    @property
    def is_remote(self) -> bool:
        return self.inner.is_remote

    @property
    def queues(self) -> Any:
        return MortalQueues(self)

    @property
    def emissions(self) -> Any:
        return MortalEmissions(self)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name in (
            "stop_waiting",
            "drop_lock",
            "watch",
            "catalog",
            "sessions",
            "schedules",
            "sinks",
            "desk",
            "acts",
            "inbox",
            "keys",
            "over",
        ):
            return method
        return self.mortal(name, method)

    def mortal(self, name: str, method: Any) -> Any:
        """Return a method that this process calls as long as it lives."""

        async def call(*args: Any, **kwargs: Any) -> Any:
            fault = self._fault_at(name)
            if fault is not None and fault.when == "before":
                self.died.set()
            if self.died.is_set():
                await asyncio.get_running_loop().create_future()
            result = await method(*args, **kwargs)
            if fault is not None:
                self.died.set()
                await asyncio.get_running_loop().create_future()
            return result

        return call

    def append(self, commit: Commit, worker: str | None) -> bool:
        """What is not stored here goes to `commit` next: the same point in the play."""
        fault = self._fault_at("commit")
        if self.died.is_set() or (fault is not None and fault.when == "before"):
            self.died.set()
            return False
        stored = self.inner.append(commit, worker)
        if not stored:
            self._judged = (fault,)
        elif fault is not None:
            self.died.set()
        return stored and not self.died.is_set()

    def commit(self, batch: Batch, answered: Answered) -> None:
        if self.died.is_set():
            return
        [fault] = self._judged or [self._fault_at("commit")]
        self._judged = ()
        if fault is None:
            self.inner.commit(batch, lambda answer, error: None if self.died.is_set() else answered(answer, error))
        elif fault.when == "before":
            self.died.set()
        else:
            self.inner.commit(batch, self._die_after)

    def _die_after(self, answer: BatchResult | None, error: BaseException | None) -> None:
        assert answer is not None, error
        self.died.set()

    def _fault_at(self, kind: str) -> Fault | None:
        return next((fault for fault in self.faults if not self.died.is_set() and fault.strikes(kind)), None)


class MortalQueues:
    """The queues of such a storage. An admission is a write of its own kind, "admit"."""

    def __init__(self, storage: MortalStorage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return self._storage.mortal(name, getattr(self._storage.inner.queues, name))


class MortalEmissions:
    """The emissions of such a storage. A flush is a write of its own kind, "emit"."""

    def __init__(self, storage: MortalStorage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._storage.inner.emissions, name)
        if name in ("listen", "is_heard"):
            return method
        return self._storage.mortal("emit" if name == "write" else name, method)
