"""The interface of a target, which is a database or a server. Commands use nothing else of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from romancy.api.workflow import Workflow
from romancy.core.model import Event
from romancy.core.operations import undone_by
from romancy.explain.near_misses import Reason
from romancy.question_verbs import QuestionRecord
from romancy.records import BulkResult, HistoryEntry, Instance, InstanceFilter, Receipt
from romancy.storage.attempts import Attempt
from romancy.storage.protocol import Storage
from romancy.storage.records import Snapshot, WorkerRow
from romancy.verbs import Handle, Verbs


@dataclass(frozen=True)
class Sent:
    """What became of an event. `unjudged`: instances counted as reached whose model is not known here."""

    receipt: Receipt
    unjudged: int = 0


@dataclass(frozen=True)
class Inside:
    """What only the database knows about an instance: its worker, attempts and pending deliveries."""

    owner: str | None
    worker: WorkerRow | None
    attempts: Sequence[Attempt]
    is_cancelling: bool
    deliveries: int
    has_worker: bool = True
    """Whether a live worker has its workflow; if the instance is queued, whether any worker runs."""


@dataclass(frozen=True)
class Standing:
    """The state of an instance and the reasons for it. `inside` is None on a server."""

    instance: Instance
    last: HistoryEntry | None
    """The newest history entry after its start."""
    reasons: Sequence[Reason]
    inside: Inside | None
    undone: Sequence[str] = ()
    """The operations that were undone."""
    led_to_end: Sequence[HistoryEntry] = ()
    """What a retry would repeat."""
    has_undone: bool = False
    """Whether it has begun to undo its steps."""
    questions: Sequence[QuestionRecord] = ()
    """The questions to people whose answers it waits for."""


class Target(Protocol):
    """The verbs, and the other operations that commands need."""

    @property
    def verbs(self) -> Verbs: ...

    async def start(
        self,
        wf: Workflow[..., Any] | str,
        instance_id: str | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        place: Mapping[str, Any],
    ) -> Handle[Any]:
        """Start an instance. `place`: its key and priority in its queue, as far as they are given."""
        ...

    async def has_run(self, name: str) -> bool:
        """Whether a worker is known to have the workflow of this name."""
        ...

    async def has_begun(self, id: str) -> bool:
        """Whether a worker has begun an instance, as far as the target can tell."""
        ...

    async def send(self, event: Event) -> Sent: ...
    async def answer_as_operator(self, instance_id: str, person: str, data: object, ask_id: str | None) -> None:
        """Answer a question in place of a person, and record who did it, as far as that is known."""
        ...

    def in_parts(
        self, verb: str, which: InstanceFilter, limit: int | None, reason: str | None, *, dry_run: bool = False
    ) -> AsyncIterator[BulkResult]:
        """Act on all instances that match, part by part. `verb` is "cancel", "resume" or "retry".

        With `dry_run`, change nothing, and count what would be changed.
        """
        ...

    async def standing(self, id: str) -> Standing: ...
    async def delete_declared(self, name: str) -> None:
        """Delete a schedule that was declared by code that is gone."""
        ...

    async def stored(self, id: str) -> Snapshot:
        """Return an instance as stored."""
        ...

    def storage(self) -> Storage:
        """Return the database, for a command that reads much of it."""
        ...


def undone(history: Iterable[HistoryEntry]) -> list[str]:
    """Return the operations that were undone, in that order."""
    completed = (entry.operation for entry in history if entry.kind == "activity_completed")
    return [of for op in completed if (of := undone_by(op)) is not None]
