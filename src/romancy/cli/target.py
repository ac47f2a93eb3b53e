"""Where a command looks and acts: a database, or a server that has one. Commands know this interface and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from romancy.api.workflow import Workflow
from romancy.core.history import Entry
from romancy.core.model import Event
from romancy.explain.near_misses import Reason
from romancy.records import HistoryEntry, Instance, Receipt
from romancy.storage.batch import Attempt
from romancy.storage.records import InstanceRow, WorkerRow
from romancy.verbs import Handle, Verbs


@dataclass(frozen=True)
class Sent:
    """What became of an event. `unjudged`: instances whose model is not known here, counted as reached."""

    receipt: Receipt
    unjudged: int = 0


@dataclass(frozen=True)
class Inside:
    """What only the database tells of an instance: who runs it, and what was left for it."""

    owner: str | None
    worker: WorkerRow | None
    attempts: Sequence[Attempt]
    is_cancelling: bool
    deliveries: int


@dataclass(frozen=True)
class Standing:
    """How an instance stands, and why; `inside` is None where it can't be known."""

    instance: Instance
    last: HistoryEntry | None
    """The newest thing recorded after its start."""
    reasons: Sequence[Reason]
    inside: Inside | None


class Target(Protocol):
    """The verbs, and what commands need beyond them."""

    @property
    def verbs(self) -> Verbs: ...

    async def start(
        self, wf: Workflow[..., Any] | str, instance_id: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Handle[Any]: ...
    async def has_run(self, name: str) -> bool:
        """Whether a worker is known that has the workflow of this name."""
        ...

    async def is_taken_up(self, id: str) -> bool:
        """Whether a worker has begun with an instance, as far as can be seen."""
        ...

    async def send(self, event: Event) -> Sent: ...
    async def standing(self, id: str) -> Standing: ...
    async def stored(self, id: str) -> tuple[InstanceRow, list[Entry]]:
        """An instance and its history as far as its code has heard of it, byte by byte."""
        ...
