"""What an instance on a server emits: reads server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from romancy.client.requests import looked_up, quoted
from romancy.core.model import from_us
from romancy.core.timestamps import parse_time
from romancy.emission_records import Emission, reader_of

Listen = Callable[[str, str, Callable[[], int]], AsyncGenerator[str | None]]
"""Yields the lines of a stream at a path, about an instance, after a number; None if it begins again."""


async def follow(
    listen: Listen, instance_id: str, topic: str | None, model: Any, after: int
) -> AsyncGenerator[Emission[Any]]:
    """Yield emissions after a number, until the instance has ended."""
    place, read = after, reader_of(model, instance_id)
    path = f"/api/instances/{looked_up(instance_id)}/emitted{'' if topic is None else f'/{quoted(topic)}'}"
    async with aclosing(listen(path, instance_id, lambda: place)) as lines:
        async for event, data in _events(lines):
            if event == "end":
                return
            if event in ("", "restart") and data["n"] > place:
                place = data["n"]
                yield _to_emission(data, read)


async def _events(lines: AsyncIterator[str | None]) -> AsyncGenerator[tuple[str, Any]]:
    """Yield events with their data, as JSON. Of one that was cut off, nothing counts."""
    event, data = "", list[str]()
    async for line in lines:
        if line is None:
            event, data = "", []
        elif not line:
            if data:
                yield event, json.loads("\n".join(data))
            event, data = "", []
        elif line.startswith("event:"):
            event = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:])


def _to_emission(item: dict[str, Any], read: Callable[[bytes], Any]) -> Emission[Any]:
    is_data = item["kind"] == "data"
    value = read(json.dumps(item["value"]).encode()) if is_data else None
    at = from_us(parse_time("at", item["at"]))
    return Emission(item["n"], item["topic"], value, at, item["activity_id"], item["attempt"], item["kind"])
