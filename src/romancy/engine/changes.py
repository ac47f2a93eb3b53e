"""Reports changes to watchers. Without watchers nothing is kept, and a commit costs one more `if`."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from dataclasses import dataclass, field

from romancy.storage.batch import Batch, BatchResult

MOST = 500
"""The most instances a watcher gets by id; beyond that it must look at everything."""


@dataclass(slots=True)
class Changes:
    """The changes since a watcher last took them."""

    instances: set[str] = field(default_factory=set[str])
    started: int = 0
    accepted: int = 0
    is_vague: bool = False
    """Something changed, but not all ids are known."""


class Watcher:
    """Gathers changes until they are taken."""

    def __init__(self) -> None:
        self.changes = Changes()
        self.changed = asyncio.Event()

    def take(self) -> Changes:
        """Return the changes since the last call."""
        changes, self.changes = self.changes, Changes()
        self.changed.clear()
        return changes


class ChangeFeed:
    """Tells watchers about stored changes."""

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []

    def __repr__(self) -> str:
        return f"<ChangeFeed watchers={len(self.watchers)}>"

    def watch(self) -> Watcher:
        """Return a new watcher. The caller must pass it to `leave` when done."""
        watcher = Watcher()
        self.watchers.append(watcher)
        return watcher

    def leave(self, watcher: Watcher) -> None:
        self.watchers.remove(watcher)

    def stored(self, batch: Batch, answer: BatchResult) -> None:
        """Report a batch that this process stored. Call it only if there are watchers."""
        begun = [start.id for start, result in zip(batch.starts, answer.starts, strict=False) if result.created]
        accepted = [result for result in (*answer.accepts, *answer.sent) if not result.duplicate]
        begun += [started.id for result in accepted for started in result.started]
        touched = {commit.instance for commit in batch.commits} | {request.instance for request in batch.requests}
        for watcher in self.watchers:
            watcher.changes.started += len(begun)
            watcher.changes.accepted += len(accepted)
        self.touched(touched.union(begun))

    def touched(self, instances: Set[str]) -> None:
        """Report that these instances changed."""
        for watcher in self.watchers:
            if len(watcher.changes.instances) < MOST:
                watcher.changes.instances.update(instances)
            else:
                watcher.changes.is_vague = True
            watcher.changed.set()

    def elsewhere(self) -> None:
        """Report that another process stored something, or this one without the committer."""
        for watcher in self.watchers:
            watcher.changes.is_vague = True
            watcher.changed.set()
