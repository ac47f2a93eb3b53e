"""Running instances again: retrying those that failed or were cancelled, and forking any."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, cast

from romancy.copied_questions import ask_again
from romancy.core.dropped import standing
from romancy.core.failure import Failure
from romancy.core.history import Entry, Kind
from romancy.core.ids import check_id, check_lookup
from romancy.core.ids import new_id as make_id
from romancy.core.model import FINAL, Status
from romancy.core.operations import undone_by
from romancy.core.retrial import RetryAsk, copied, repeated_steps, steps_of
from romancy.core.run import Seed
from romancy.engine.engine import Engine
from romancy.errors import InstanceExists, InstanceNotFound, InvalidInput, NotRetryable
from romancy.storage.catalog import Search
from romancy.storage.forks import Fork
from romancy.storage.instances import InstanceRow

Steps = Literal["failed"] | Sequence[str] | None
"""Which steps run again: what led to the end (None), everything that failed, or the operations with these ids."""
STEPS = 'steps must be None (null), "failed" or a list of operation ids like "charge:1"'
"""The message for other values."""
_HAS_UNDONE = (
    "instance {!r} can't be forked at entry {}: it has undone its steps, so results in its history no longer hold; "
    "fork it from its beginning: at=0"
)
_CHILDREN = 1000
"""How many children of an instance are looked at before it is retried, newest first."""
RETRYABLE: frozenset[Status] = frozenset({"failed", "cancelled"})


async def retry_one(engine: Engine, instance: str, steps: Steps = None, who: str | None = None) -> None:
    """Let an instance go on that failed or was cancelled. Raise `NotRetryable` if that is not possible."""
    check_lookup(instance)
    ask = RetryAsk(await _check_steps(engine, instance, steps))
    await _check_children(engine, instance, ask.steps)
    if not await engine.storage.reopen([instance], engine.clock.now(), ask.head, who):
        row = await _row(engine, instance)
        raise NotRetryable(_held(row), instance_id=instance, status=row.status)
    engine.kick()


def _held(row: InstanceRow) -> str | None:
    """Say what to do with an instance that its undos block; None for others."""
    if row.status != "blocked" or not row.error or not Failure.decode(row.error).not_undone:
        return None
    return f"instance {row.id!r} can't be retried: it is blocked; fix what makes its undos fail, then resume it"


async def retry_all(engine: Engine, instances: Collection[str], who: str | None = None) -> tuple[int, dict[str, str]]:
    """Retry many instances in one transaction. Return how many there were, and why the others were refused."""
    reopened = await engine.storage.reopen(instances, engine.clock.now(), RetryAsk().head, who)
    engine.kick()
    refused: dict[str, str] = {}
    for id in instances:
        if id not in reopened:
            row = await engine.storage.catalog.instance(id)
            if row is not None and row.status in RETRYABLE:
                refused[id] = str(NotRetryable(instance_id=id, status=row.status))
    return len(reopened), refused


async def refused_retries(engine: Engine, instances: Collection[str]) -> dict[str, str]:
    """Return why some of these instances, which failed or were cancelled, can't be retried."""
    catalog = engine.storage.catalog
    undone = await catalog.undone(instances)
    refused = {id: str(NotRetryable(instance_id=id, status="failed")) for id in instances if id in undone}
    for id in await catalog.parents_of_unsuccessful([id for id in instances if id not in undone]):
        try:
            await _check_children(engine, id, None)
        except NotRetryable as error:
            refused[id] = str(error)
    return refused


async def fork(engine: Engine, origin: str, at: int, new_id: str | None, who: str | None = None) -> tuple[str, str]:
    """Copy an instance up to an entry, and let the copy run. Return its id and workflow."""
    check_lookup(origin)
    row = await _row(engine, origin)
    entries = _check_cut(row, await engine.storage.catalog.exact.history(origin), at)
    kept, last = copied(entries, at) if at else ([], 0)
    id = make_id(engine.clock.now()) if new_id is None else check_id(new_id)
    now, started_at = engine.clock.now(), row.created_at if row.run.started_at is None else row.run.started_at
    seed = json.dumps([*_seeds_before(row.run.seeds, last), (last, origin, started_at if last else now)])
    ask = RetryAsk([], origin=origin).head if last else b""
    copy = Fork(origin, id, now, uuid.uuid4().bytes, kept if last else (), seed, ask, row.generation, who)
    if not await engine.storage.fork(copy):
        before, row = row, await _row(engine, origin)
        if row.generation != before.generation:
            return await fork(engine, origin, at, new_id, who)  # it continued as new meanwhile
        if last and await engine.storage.catalog.instance(id) is None and await _has_undone(engine, origin):
            raise NotRetryable(_HAS_UNDONE.format(origin, at), instance_id=origin, status=row.status)
        raise InstanceExists(f"instance {id!r} already exists", instance_id=id, advice="use another new_id")
    await ask_again(engine, id, kept if last else ())
    engine.kick()
    return id, row.workflow


def _seeds_before(seeds: Sequence[Seed], last: int) -> list[Seed]:
    """Return which instances the part up to an entry was recorded under, if their histories are copied once more."""
    found: list[Seed] = []
    for n, id, started_at in seeds if last else ():
        found.append((min(n, last), id, started_at))
        if n >= last:
            break  # what comes later is not copied
    return found


async def _has_undone(engine: Engine, instance: str) -> bool:
    return any(undone_by(entry.op) is not None for entry in await engine.storage.catalog.history(instance))


def _check_cut(row: InstanceRow, entries: Sequence[Entry], at: int) -> Sequence[Entry]:
    if not isinstance(at, int) or isinstance(at, bool) or at < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"at must be the number of an entry in the history, or 0 for none, got {at!r}")
    if at and not any(entry.n == at for entry in entries):
        numbers = f"entries {entries[0].n} to {entries[-1].n}" if entries else "no entries yet"
        raise InvalidInput(f"the current run of instance {row.id!r} has {numbers}, and no entry {at}")
    return entries


async def _check_steps(engine: Engine, instance: str, steps: Steps) -> str | list[str] | None:
    if steps is None:
        return None
    if isinstance(steps, str):
        if steps == "failed":
            return steps
        raise InvalidInput(f"{STEPS}, got {steps!r}")
    named = _listed(steps)
    if not named:
        raise InvalidInput(f"{STEPS}, got an empty list; None repeats what led to the end")
    await _row(engine, instance)
    entries = await engine.storage.catalog.history(instance)
    known, failed = steps_of(entries)
    unknown = [step for step in named if step not in known]
    if unknown:
        raise InvalidInput(
            f"instance {instance!r} has no recorded step {', '.join(map(repr, unknown))}; "
            f"{'these failed: ' + ', '.join(failed) if failed else 'no step failed'}"
        )
    return named


def _listed(steps: object) -> list[str]:
    named = list(cast("Iterable[object]", steps)) if isinstance(steps, Iterable) else [None]
    if isinstance(steps, bytes | Mapping) or not all(isinstance(step, str) for step in named):
        raise InvalidInput(f"{STEPS}, got {steps!r}")
    return [*dict.fromkeys(map(str, named))]


async def _check_children(engine: Engine, instance: str, steps: str | Sequence[str] | None) -> None:
    """Refuse a retry whose children are still being cancelled: their end would let the instance fail again at once."""
    catalog = engine.storage.catalog
    children = await catalog.instances(Search(parent=instance), limit=_CHILDREN)
    still_open = [child for child in children if child.status not in FINAL and child.parent_op is not None]
    if not still_open:
        return
    row, entries = await _row(engine, instance), await catalog.history(instance)
    standing_entries = standing(entries)[0]
    repeated = repeated_steps(standing_entries, RetryAsk(steps, row.error or b""), row.run)
    settled = {entry.op for entry in standing_entries} - repeated
    for child in still_open:
        op = child.parent_op or ""
        if row.run.owns(op) and op not in settled and row.status in RETRYABLE and await _is_leaving(engine, child.id):
            message = f"instance {instance!r} can't be retried: its child {child.id!r} is still being cancelled; "
            raise NotRetryable(message + "retry once it has ended", instance_id=instance, status=row.status)


async def _is_leaving(engine: Engine, child: str) -> bool:
    entries = standing(await engine.storage.catalog.history(child))[0]
    return any(entry.kind == Kind.CANCEL_REQUESTED for entry in entries)


async def _row(engine: Engine, instance: str) -> InstanceRow:
    row = await engine.storage.catalog.instance(instance)
    if row is None:
        raise InstanceNotFound(instance_id=instance)
    return row
