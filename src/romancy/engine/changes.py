"""Changes for those who watch the database. Without watchers nothing is kept, and a commit costs one more `if`."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from dataclasses import dataclass, field

from romancy.storage.batch import Batch, BatchResult

MOST = 500
"""Instances a watcher is told by name; beyond that it is told to look at everything."""


@dataclass(slots=True)
class Changes:
    """What happened since a watcher last looked."""

    instances: set[str] = field(default_factory=set[str])
    started: int = 0
    accepted: int = 0
    is_vague: bool = False
    """Something changed that is not known by name."""


class Watcher:
    """Gathers changes until they are taken."""

    def __init__(self) -> None:
        self.changes = Changes()
        self.changed = asyncio.Event()

    def take(self) -> Changes:
        """What happened since the last time."""
        changes, self.changes = self.changes, Changes()
        self.changed.clear()
        return changes


class ChangeFeed:
    """Tells watchers what was stored."""

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []

    def __repr__(self) -> str:
        return f"<ChangeFeed watchers={len(self.watchers)}>"

    def watch(self) -> Watcher:
        """Begin to gather; the caller gives it back to `leave`."""
        watcher = Watcher()
        self.watchers.append(watcher)
        return watcher

    def leave(self, watcher: Watcher) -> None:
        self.watchers.remove(watcher)

    def stored(self, batch: Batch, answer: BatchResult) -> None:
        """This process stored something. To be called only if there are watchers."""
        begun = [start.id for start, said in zip(batch.starts, answer.starts, strict=False) if said.created]
        accepted = [said for said in (*answer.accepts, *answer.sent) if not said.duplicate]
        begun += [started.id for said in accepted for started in said.started]
        touched = {commit.instance for commit in batch.commits} | {request.instance for request in batch.requests}
        for watcher in self.watchers:
            watcher.changes.started += len(begun)
            watcher.changes.accepted += len(accepted)
        self.touched(touched.union(begun))

    def touched(self, instances: Set[str]) -> None:
        """Something happened to them."""
        for watcher in self.watchers:
            if len(watcher.changes.instances) < MOST:
                watcher.changes.instances.update(instances)
            else:
                watcher.changes.is_vague = True
            watcher.changed.set()

    def elsewhere(self) -> None:
        """Another process stored something, or this one did past the committer."""
        for watcher in self.watchers:
            watcher.changes.is_vague = True
            watcher.changed.set()
