"""Running instances again: retrying those that failed or were cancelled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from romancy.core.ids import check_lookup
from romancy.core.model import Status
from romancy.core.retrial import RetryAsk, steps_of
from romancy.engine.engine import Engine
from romancy.errors import InstanceNotFound, InvalidInput, NotRetryable
from romancy.storage.records import InstanceRow

Steps = Literal["failed"] | Sequence[str] | None
"""Which steps run again: what led to the end (None), everything that failed, or the operations with these ids."""
RETRYABLE: frozenset[Status] = frozenset({"failed", "cancelled"})


async def retry_one(engine: Engine, instance: str, steps: Steps = None) -> None:
    """Let an instance go on that failed or was cancelled. Raise `NotRetryable` if that is not possible."""
    check_lookup(instance)
    ask = RetryAsk(await _check_steps(engine, instance, steps))
    if not await engine.storage.reopen([instance], engine.clock.now(), ask.head):
        row = await _row(engine, instance)
        raise NotRetryable(instance_id=instance, status=row.status)
    engine.kick()


async def retry_all(engine: Engine, instances: Collection[str]) -> tuple[int, dict[str, str]]:
    """Retry many instances in one transaction. Return how many there were, and why the others were refused."""
    reopened = await engine.storage.reopen(instances, engine.clock.now(), RetryAsk().head)
    engine.kick()
    refused: dict[str, str] = {}
    for id in instances:
        if id not in reopened:
            row = await engine.storage.catalog.instance(id)
            if row is not None and row.status in RETRYABLE:
                refused[id] = str(NotRetryable(instance_id=id, status=row.status))
    return len(reopened), refused


async def _check_steps(engine: Engine, instance: str, steps: Steps) -> str | list[str] | None:
    if steps is None:
        return None
    if isinstance(steps, str):
        if steps == "failed":
            return steps
        raise InvalidInput(f'steps must be None, "failed" or a list of operation ids, got {steps!r}')
    await _row(engine, instance)
    known, failed = steps_of(await engine.storage.catalog.history(instance))
    unknown = [step for step in steps if step not in known]
    if unknown:
        raise InvalidInput(
            f"instance {instance!r} has no recorded step {', '.join(map(repr, unknown))}; "
            f"{'these failed: ' + ', '.join(failed) if failed else 'no step failed'}"
        )
    return list(steps)


async def _row(engine: Engine, instance: str) -> InstanceRow:
    row = await engine.storage.catalog.instance(instance)
    if row is None:
        raise InstanceNotFound(instance_id=instance)
    return row
