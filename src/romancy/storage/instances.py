"""Instances as they are stored."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from romancy.core.model import Status
from romancy.core.run import Run


@dataclass(slots=True)
class InstanceRow:
    """The row of an instance."""

    id: str
    workflow: str
    status: Status
    owner: str | None
    version: int
    input: bytes
    input_kind: int
    output: bytes | None
    error: bytes | None
    deadline: int | None
    description: str | None
    created_at: int
    updated_at: int
    finished_at: int | None
    generation: int = 0
    """How often it has continued as new."""
    base: int = 0
    """Entries up to this number belong to earlier runs."""
    began_at: int | None = None
    """When the current run began; None: with the instance."""
    parent: str | None = None
    parent_op: str | None = None
    builds: str | None = None
    """The builds whose code did not follow its history, as `to_builds` reads them. The next step clears it."""
    seed: str | None = None
    """Of a fork: [[number of an entry, id of the instance before that entry], ...]."""
    limited_from: int | None = None
    """When its time limit began; None: with the current run."""
    schedule: str | None = None
    """The name of the schedule that started it."""
    scheduled_at: int | None = None
    """The tick it was started for."""
    queue: str | None = None
    queue_key: str | None = None
    """Its key in the queue, "" for none."""
    priority: int | None = None

    @property
    def child_of(self) -> tuple[str, str] | None:
        """Its parent, and the parent's operation that waits for it; "" if another child has taken its place."""
        return None if self.parent is None else (self.parent, self.parent_op or "")

    @property
    def run(self) -> Run:
        """The current run."""
        began_at = self.created_at if self.began_at is None else self.began_at
        seeds = json.loads(self.seed) if self.seed else ()
        return Run(self.generation + 1, self.base, began_at, seeds, self.scheduled_at)


@dataclass(slots=True, frozen=True)
class Admitted:
    """An instance that was admitted. `is_mine`: this worker owns it."""

    id: str
    workflow: str
    is_mine: bool
    row: InstanceRow | None = field(default=None, compare=False)
    """Its row, if nothing else of it is stored. Then it need not be read."""
