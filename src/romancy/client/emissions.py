"""What an instance on a server emits: reads server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from romancy.client import responses
from romancy.client.requests import looked_up, quoted
from romancy.core.model import from_us
from romancy.core.timestamps import parse_time
from romancy.emission_records import Emission, reader_of

Listen = Callable[[str, str, Callable[[], int]], AsyncGenerator[str | None]]
"""Yields the lines of a stream at a path, about an instance, after a number; None if it begins again."""


async def follow(
    url: str, listen: Listen, instance_id: str, topic: str | None, model: Any, after: int
) -> AsyncGenerator[Emission[Any]]:
    """Yield emissions after a number, until the instance has ended."""
    place, read = after, reader_of(model, instance_id)
    path = f"/api/instances/{looked_up(instance_id)}/emitted{'' if topic is None else f'/{quoted(topic)}'}"
    async with aclosing(listen(path, instance_id, lambda: place)) as lines:
        async for event, data in _events(lines):
            if event == "end":
                return
            if event not in ("", "restart"):
                continue
            found = responses.read(url, data, _to_emission)
            if found.n > place:
                place = found.n
                yield replace(found, value=read(json.dumps(found.value).encode())) if found.kind == "data" else found


async def _events(lines: AsyncIterator[str | None]) -> AsyncGenerator[tuple[str, str]]:
    """Yield events with their data. Of one that was cut off, nothing counts."""
    event, data = "", list[str]()
    async for line in lines:
        if line is None:
            event, data = "", []
        elif not line:
            if data:
                yield event, "\n".join(data)
            event, data = "", []
        elif line.startswith("event:"):
            event = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:])


def _to_emission(data: str) -> Emission[Any]:
    """An emission whose value is still plain JSON."""
    item = json.loads(data)
    value = item["value"] if item["kind"] == "data" else None
    at = from_us(parse_time("at", item["at"]))
    return Emission(int(item["n"]), item["topic"], value, at, item["activity_id"], item["attempt"], item["kind"])
