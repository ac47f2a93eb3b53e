"""The part of a worker that admits, without the rest of it; and a queue with instances that wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from romancy import Queue, Rate
from romancy.core.queues import Place
from romancy.engine.admission import Admissions
from romancy.engine.hook_runner import HookRunner
from romancy.engine.metrics import Metrics
from romancy.storage.batch import Start
from tests.storage.conftest import Database

WAITING = (("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c"))
LIMITS = {
    "slots": Queue("q", max_concurrent=2, max_concurrent_per_key=1),
    "keys": Queue("q", max_concurrent_per_key=1),
    "rate": Queue("q", rate=Rate(2, 3600)),
    "rate of keys": Queue("q", rate_per_key=Rate(1, 3600)),
}
MOST = {"slots": 2, "keys": 3, "rate": 2, "rate of keys": 3}
"""How many of those that wait can be admitted."""


def admitter(db: Database, queue: Queue, worker: str, queues: Any = None) -> Admissions:
    """The part of this worker that admits. `queues`: those of the database, unless others are given."""
    storage = db.storage if queues is None else SimpleNamespace(queues=queues)
    registry = SimpleNamespace(names=["wf"], queues={queue.name: queue})
    part = SimpleNamespace(has_room=True, worker=worker, load=_ignore, get=_ignore, loading=())
    parts: Any = (storage, db.clock, registry, part, part, part, Metrics(), HookRunner(()))
    return Admissions(*parts, kick=_ignore, claim=_ignore, answer_lost=_ignore)


async def admit_all(db: Database, queue: Queue, worker: str, queues: Any = None) -> None:
    """Admit as this worker does it, until no more can be."""
    await admitter(db, queue, worker, queues)._admit_all(queue, worker)


def _ignore(*_: Any) -> None: ...


async def fill(db: Database, queue: str = "q", suffix: str = "") -> None:
    starts = [Start(id + suffix, "wf", b"{}", 0, db.now, place=Place(queue, key)) for id, key in WAITING]
    await db.commit(starts=starts)
    await db.storage.queues.glance(Queue(queue))


async def running(db: Database, suffix: str = "") -> dict[str, str | None]:
    """Those that were admitted, with the workers that own them."""
    rows = [await db.storage.catalog.instance(id + suffix) for id, _ in WAITING]
    return {row.id: row.owner for row in rows if row is not None and row.status == "running"}
