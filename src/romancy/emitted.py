"""Reading what an instance emits: part of its handle."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from romancy.core.ids import check_lookup
from romancy.emission_records import Emission, check_wanted, reader_of, to_emissions
from romancy.engine.engine import Engine
from romancy.storage.emissions import Wanted

Batches = AsyncGenerator[list[Emission[Any]]]
_PAGE = 100
"""Rows that are read at a time."""


def follow(
    engine: Engine, instance_id: str, topic: str | None = None, model: Any = Any, after: int = 0
) -> AsyncIterator[Emission[Any]]:
    """Return what an instance has emitted after a number, and then emits, until it has ended."""
    topic, after = check_wanted(topic, after)
    check_lookup(instance_id)
    return _follow(engine, instance_id, topic, model, after)


async def _follow(
    engine: Engine, instance_id: str, topic: str | None, model: Any, after: int
) -> AsyncGenerator[Emission[Any]]:
    read = reader_of(model, instance_id)
    async with aclosing(engine.emissions.readers.read(instance_id, topic, after)) as found:
        async for rows in found:
            for row in rows:
                for emission in to_emissions(row, topic, after, read):
                    yield emission


async def follow_in_batches(engine: Engine, instance_id: str, topic: str | None, after: int) -> Batches:
    """Yield the same, as it comes: what was stored together is shown together."""
    read = reader_of(Any, instance_id)
    async with aclosing(engine.emissions.readers.read(instance_id, topic, after)) as found:
        async for rows in found:
            batch = [emission for row in rows for emission in to_emissions(row, topic, after, read)]
            if batch:
                yield batch


async def stored(engine: Engine, instance_id: str, topic: str | None, after: int, most: int) -> list[Emission[Any]]:
    """Return what an instance has emitted by now, at most so much."""
    read = reader_of(Any, instance_id)
    found: list[Emission[Any]] = []
    place = after
    while len(found) < most:
        wanted = Wanted(instance_id, topic, place)
        [rows] = await engine.storage.emissions.read([wanted], min(_PAGE, most - len(found)))
        if not rows:
            break
        found += [emission for row in rows for emission in to_emissions(row, topic, after, read)]
        place = rows[-1].end(topic)
    return found[:most]
