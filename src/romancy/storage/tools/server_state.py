"""The state of a PostgreSQL server for `romancy doctor`, read without changing it or starting an app."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from romancy.core.clock import Clock, SystemClock
from romancy.core.model import SECOND
from romancy.storage.postgres import migrations, numbers
from romancy.storage.postgres.connection import MAX_CONNECTIONS, Connections
from romancy.storage.postgres.driver import FAILED
from romancy.storage.postgres.statements import Statements
from romancy.storage.urls import DEFAULT_SCHEMA, quoted

PER_WORKER = MAX_CONNECTIONS + 1
"""Connections that a worker uses at most: its pool, and the one that listens."""

_LACKING = """SELECT c.relname, p.privilege FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'USAGE']) AS p (privilege)
WHERE n.nspname = $1 AND CASE
  WHEN c.relkind = 'S' THEN p.privilege = 'USAGE' AND NOT has_sequence_privilege(c.oid, 'USAGE')
  WHEN c.relkind IN ('r', 'p') AND p.privilege <> 'USAGE' THEN NOT has_table_privilege(c.oid, p.privilege)
  ELSE false END ORDER BY c.relname"""
_LIMITS = """SELECT 'server' AS of, current_setting('max_connections')::int
  - current_setting('superuser_reserved_connections')::int
  - coalesce(current_setting('reserved_connections', true), '0')::int AS most,
  (SELECT sum(numbackends)::int FROM pg_stat_database) AS used
UNION ALL SELECT 'user', rolconnlimit, (SELECT count(*)::int FROM pg_stat_activity WHERE usename = current_user)
FROM pg_roles WHERE rolname = current_user AND rolconnlimit >= 0
UNION ALL SELECT 'database', datconnlimit, (SELECT numbackends FROM pg_stat_database WHERE datname = current_database())
FROM pg_database WHERE datname = current_database() AND datconnlimit >= 0"""
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class Limit(NamedTuple):
    """How many connections the server, the database or the user can have, and how many there are now."""

    of: str
    most: int
    used: int


@dataclass(frozen=True)
class ServerState:
    """What a server says about itself and about this user."""

    server_version: str
    version: int
    """Of the schema; 0 if there is none."""
    min_reader: int
    is_direct: bool
    """Whether the sessions are ours alone, and not those of a pooler."""
    lacking: Sequence[tuple[str, str]]
    """Tables and sequences, and the privileges on them that a worker needs and this user lacks."""
    limits: Sequence[Limit]
    clock_offset: float
    """Seconds by which the server's clock is at least ahead of this machine's; negative if it is behind."""
    missing_numbers: int
    """How many transaction numbers the server is behind those that are stored; 0 unless they are another server's."""


async def read_server(url: str, schema: str | None, clock: Clock | None = None) -> ServerState:
    """Connect and read. Raise a `StorageError` that says why it can't."""
    name = schema or DEFAULT_SCHEMA
    connections = Connections(url, Statements(name))
    await connections.open()
    try:
        version = await migrations.version(connections, name)
        async with connections.transaction() as connection:
            return await _read(connection, connections, name, version, clock or SystemClock())
    except FAILED as error:
        raise connections.explain(error) from error
    finally:
        await connections.close()


async def _read(connection: Any, connections: Connections, schema: str, version: int, clock: Clock) -> ServerState:
    reader = f"SELECT min_reader FROM {quoted(schema)}.schema_info"
    limits = await connection.fetch(_LIMITS)
    found = connection.get_server_version()
    lacking = [(row[0], row[1]) for row in await connection.fetch(_LACKING, schema)]
    can_ask = version >= migrations.LIBRARY_VERSION and not lacking
    return ServerState(
        f"{found.major}.{found.micro}",  # since version 10, the driver reads 18.4 as 18.0.4
        version,
        await connection.fetchval(reader) if version else 0,
        connections.is_direct,
        lacking,
        [Limit(*row) for row in limits],
        await _offset(connection, clock),
        max(await numbers.missing(connections), 0) if can_ask else 0,
    )


async def _offset(connection: Any, clock: Clock) -> float:
    """Compare the clocks. How long the answer took counts in favor of them."""
    before = clock.now()
    there: int = await connection.fetchval(_NOW)
    after = clock.now()
    if before <= there <= after:
        return 0.0
    return (there - (after if there > after else before)) / SECOND
