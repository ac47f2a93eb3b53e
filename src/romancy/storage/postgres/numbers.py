"""Transaction numbers, after a schema has come from another server.

Events and the beginnings of instances are ordered by the numbers of the transactions that stored them. A dump that is
restored, or a logical replica, brings the numbers of the server where they were stored. If this server has used fewer,
its next events would count as older than the instances that are already there, which would never take them. So before
anything else is done, numbers are used up until those to come are greater than all that are stored.
"""

from __future__ import annotations

import logging
from typing import Any

from romancy.errors import StorageError
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.driver import FAILED
from romancy.storage.urls import quoted

_logger = logging.getLogger("romancy")

MOST = 100_000_000
"""So many numbers are used up at most; the server has about two billion before old rows must be frozen."""
_STEP = 250_000
"""How many at a time. Each takes a few microseconds, and the server may limit how long a statement takes."""
_LONGEST_STEP = 600.0
ADVANCE = "DO $$ BEGIN FOR n IN 1..{} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
"""Uses up transaction numbers."""
_GREATEST = """SELECT greatest(
  (SELECT xid::text::bigint + 1 FROM {0}.events ORDER BY xid DESC LIMIT 1),
  (SELECT max(pg_snapshot_xmax(born)::text::bigint) FROM {0}.instances),
  (SELECT max(pg_snapshot_xmax(born)::text::bigint) FROM {0}.waits),
  (SELECT max(pg_snapshot_xmax(seen)::text::bigint) FROM {0}.undispatched),
  (SELECT max(pg_snapshot_xmax(seen)::text::bigint) FROM {0}.inbox),
  (SELECT max(xid::text::bigint) + 1 FROM {0}.marks),
  (SELECT max(xid::text::bigint) + 1 FROM {0}.sinks), 0)
  - pg_snapshot_xmax(pg_current_snapshot())::text::bigint"""
"""Reads whole tables, so it is only asked once it is known that numbers are missing."""


async def missing(connections: Connections) -> int:
    """Return how many numbers the server is behind those of the newest event and instance, if more than 0."""
    [(found,)] = await connections.ask("missing_numbers")
    return found


async def catch_up(connections: Connections, schema: str) -> None:
    """Use up transaction numbers if the server is behind those that are stored."""
    if await missing(connections) <= 0:
        return
    try:
        async with connections.transaction() as connection:
            await _catch_up(connection, connections.name, schema)
    except FAILED as error:
        raise connections.explain(error) from error


async def _catch_up(connection: Any, place: str, schema: str) -> None:
    query = _GREATEST.format(quoted(schema))
    behind: int = await connection.fetchval(query, timeout=_LONGEST_STEP)
    if behind > MOST:
        raise StorageError(too_far(place, schema, behind))
    _logger.warning(
        "schema %r of %s comes from another server, whose transaction numbers were %s ahead; using up as many here, "
        "which takes a moment, so that open instances take new events",
        schema, place, f"{behind:,}",
    )  # fmt: skip
    while behind > 0:
        await connection.execute(ADVANCE.format(min(behind, _STEP)), timeout=_LONGEST_STEP)
        behind = await connection.fetchval(query, timeout=_LONGEST_STEP)


def too_far(place: str, schema: str, behind: int) -> str:
    """Say why a schema can't be used here."""
    return (
        f"schema {schema!r} of {place} comes from another server, whose transaction numbers were {behind:,} ahead: "
        f"open instances would never take new events. Romancy makes up for {MOST:,} at most. Restore a physical backup "
        "instead (pg_basebackup), or stop this server and set its numbers forward with pg_resetwal (-x and -e)"
    )
