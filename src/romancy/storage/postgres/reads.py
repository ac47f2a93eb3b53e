"""Loads instances into memory, many at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, cast

from romancy.core.history import Entry
from romancy.core.operations import Sought
from romancy.storage.attempts import Attempt
from romancy.storage.instances import InstanceRow
from romancy.storage.postgres.connection import Connections
from romancy.storage.records import Snapshot, StoredRequest
from romancy.storage.rows import to_attempt, to_instance

_MANY = 2_000
"""More rows than this are converted in a thread, not on the event loop, because it takes a while."""
SHORT, ANY = 500, 2**62
"""The number of history entries up to which instances are read together, and no limit."""


async def load(connections: Connections, instance: str) -> Snapshot | None:
    """Return everything about one instance, from one snapshot."""
    return (await _load(connections, [instance], ANY))[instance]


async def load_many(connections: Connections, instances: Sequence[str]) -> dict[str, Snapshot | None]:
    """Return everything about these instances, from one snapshot, except those with long histories."""
    return await _load(connections, instances, SHORT)


async def _load(connections: Connections, instances: Sequence[str], most: int) -> dict[str, Snapshot | None]:
    rows = await connections.ask("load", ids=list(instances), most=most)
    loop = asyncio.get_running_loop()
    is_quick = len(rows) <= _MANY
    found, long = _snapshots(rows, most) if is_quick else await loop.run_in_executor(None, _snapshots, rows, most)
    return {id: found.get(id) for id in instances if id not in long}


def _snapshots(rows: list[Any], most: int) -> tuple[dict[str, Snapshot], set[str]]:
    """Return what was read, and the instances whose histories were not, because they are longer than `most`."""
    parts: dict[str, dict[str, list[Any]]] = {}
    for row in rows:
        parts.setdefault(row["instance"], {}).setdefault(row["part"], []).append(row)
    parts = {id: of for id, of in parts.items() if "instance" in of}
    long = {id for id, of in parts.items() if of["instance"][0]["n"] > most}
    return {id: _snapshot(id, of) for id, of in parts.items() if id not in long}, long


def _snapshot(id: str, of: dict[str, list[Any]]) -> Snapshot:
    [row] = of["instance"]
    return Snapshot(
        to_row(id, row["names"], row["numbers"], row["input"], row["due"], row["payload"], row["error"]),
        [Entry(*row[2:9]) for row in of.get("entry", ())],
        {row["op"]: row["due"] for row in of.get("wait", ())},
        sorted(map(_attempt, of.get("attempt", ())), key=lambda attempt: attempt.op),
        [StoredRequest(row["n"], row["kind"], row["payload"], row["op"]) for row in of.get("request", ())],
        [row["event"] for row in of.get("delivery", ())],
        json.loads(of["headers"][0]["names"][0]) if "headers" in of else None,
        sought={row["op"]: _sought(row) for row in of.get("wait", ()) if row["input"]},
    )


def _sought(row: Any) -> Sought:
    [model], [has_beginning] = row["names"], row["numbers"]
    return Sought(row["input"], model, bool(has_beginning))


def to_row(
    id: str,
    names: Sequence[Any],
    numbers: Sequence[Any],
    input: bytes,
    deadline: int | None,
    output: bytes | None = None,
    error: bytes | None = None,
) -> InstanceRow:
    """Return the row of an instance. `names` and `numbers`: the parts `row_names` and `row_numbers` of the SQL."""
    workflow, owner, description, schedule, *parent, queue, key = names
    status, version, input_kind, *times, limited_from, scheduled_at, priority = numbers
    kept = input, input_kind, output, error, deadline
    later = schedule, scheduled_at, queue, key, priority
    return to_instance(
        (id, workflow, status, owner, version, *kept, description, *times, *parent, limited_from, *later)
    )


def _attempt(row: Any) -> Attempt:
    [culprit], [crashes, started, *suspicion] = row["names"], row["numbers"]
    kept = row["op"], row["n"], row["at"], row["due"], row["error"], row["payload"]
    return to_attempt((*kept, crashes, started, culprit, *suspicion))


def findable(value: Any) -> Any:
    """Replace NUL in strings: PostgreSQL can't store it, so the result must match nothing."""
    if isinstance(value, list):
        return [findable(each) for each in cast("list[Any]", value)]
    return value.replace("\0", "\1") if isinstance(value, str) else value
