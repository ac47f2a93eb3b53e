"""Which worker runs an instance, as text for `romancy why` and the viewer."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime

from romancy.core.model import WORKING, Status, from_us
from romancy.storage.protocol import Storage
from romancy.storage.records import WorkerRow

MOST_WORKERS = 100
"""How many workers are looked at to find one that is alive."""


@dataclass(frozen=True)
class Runner:
    """A worker, or none. `until` is when its lease ends; `advice` is set if it has expired.

    `is_needed`: a worker is missing; start one.
    """

    said: str
    is_alive: bool
    until: datetime | None = None
    advice: str = ""
    is_needed: bool = False


async def owner_of(storage: Storage, owner: str | None) -> WorkerRow | None:
    """Read the worker that owns an instance, and whether its process is there."""
    worker = await storage.catalog.worker(owner) if owner else None
    return worker if worker is None else replace(worker, is_gone=await storage.is_gone(worker.id))


async def has_worker(storage: Storage, now: int, workflow: str | None = None) -> bool:
    """Return whether any worker runs on this database; with `workflow`, any that has it or does not say."""
    for id, about in await storage.catalog.live_workers(now, MOST_WORKERS):
        if (workflow is None or _has(about, workflow)) and not await storage.is_gone(id):
            return True
    return False


def _has(about: str | None, workflow: str) -> bool:
    known = None if about is None else json.loads(about).get("workflows")
    return known is None or workflow in known


def runner_of(
    workflow: str,
    status: Status,
    owner: str | None,
    worker: WorkerRow | None,
    now: int,
    *,
    is_wanted: bool,
    has_others: bool,
) -> Runner:
    """Which worker runs it, and whether it is alive.

    `is_wanted`: there is something that a worker must do. `has_others`: a live worker has its workflow.
    """
    hint = f"with workflow {workflow!r}: romancy worker MODULE"
    runs, ran = ("runs", "ran") if status in WORKING else ("holds", "held")
    if worker is None and status not in WORKING and not is_wanted:
        if has_others:
            return Runner("no worker holds it while it waits; one continues it when the wait ends", is_alive=False)
        text = f"no worker holds it now; when its wait ends, it is continued by one {hint}"
        return Runner(text, is_alive=False, is_needed=True)
    if owner is None:
        return Runner(f"no worker {runs} it; start one {hint}", is_alive=False, is_needed=True)
    if worker is None:
        return Runner(f"worker {owner}, which {ran} it, is gone; start one {hint}", is_alive=False, is_needed=True)
    who, until = f"worker {owner} on {worker.host} {runs} it", from_us(worker.until)
    if worker.until > now and worker.is_gone:
        advice = f"the instance soon goes to another one {hint}"
        return Runner(
            f"worker {owner} on {worker.host} {ran} it, but its process seems to be gone; {advice}",
            False,
            is_needed=True,
        )
    if worker.until > now:
        return Runner(f"{who} and is alive", True, until)
    advice = f"it is dead or hangs; the instance goes to another one {hint}"
    return Runner(f"{who}, but its lease expired", False, until, advice, is_needed=True)
