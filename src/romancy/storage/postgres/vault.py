"""The index key of a schema whose values are sealed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.driver import FAILED
from romancy.storage.postgres.migrations import be_alone, shut_out, undisturbed
from romancy.storage.urls import quoted

_LOCKED = "instances, events, requests, wait_keys, event_keys, marks"
_REFILED = ("wait_keys", "event_keys", "marks")
_CHUNK = 10_000


async def index_key(connections: Connections) -> bytes | None:
    """Return the sealed index key; None if there is none."""
    rows = await connections.ask("index_key")
    return rows[0][0] if rows else None


async def make_index(connections: Connections, schema: str, sealed: bytes, key: Callable[[bytes], bytes]) -> bytes:
    """Store an index key, and file everything under `key` of its former key. Return the one that is stored.

    Processes without a codec can't write any more. Another process may have been first.
    """
    try:
        async with connections.transaction() as connection:
            return await undisturbed(connection, lambda: _make(connection, schema, sealed, key))
    except FAILED as error:
        raise connections.explain(error) from error


async def _make(connection: Any, schema: str, sealed: bytes, key: Callable[[bytes], bytes]) -> bytes:
    await be_alone(connection, schema)
    await connection.execute(f"SET LOCAL search_path TO {quoted(schema)}")
    stored = await connection.fetchval("SELECT key FROM vault")
    if stored is not None:
        return stored
    # Nobody writes until this is committed, and then only processes that file under the new keys.
    await connection.execute(f"LOCK TABLE {_LOCKED} IN SHARE ROW EXCLUSIVE MODE")
    await connection.execute("INSERT INTO vault (id, key) VALUES (1, $1)", sealed)
    await _refile(connection, key)
    await shut_out(connection)
    return sealed


async def _refile(connection: Any, key: Callable[[bytes], bytes]) -> None:
    found = " UNION ".join(f"SELECT key FROM {table} WHERE key <> ''" for table in _REFILED)
    former = [old for (old,) in await connection.fetch(f"SELECT DISTINCT key FROM ({found}) k", timeout=None)]
    await connection.execute("CREATE TEMPORARY TABLE romancy_refiled (former bytea, key bytea) ON COMMIT DROP")
    for start in range(0, len(former), _CHUNK):
        rows = [(old, key(old)) for old in former[start : start + _CHUNK]]
        await connection.copy_records_to_table("romancy_refiled", records=rows)
    for table in _REFILED:
        await connection.execute(
            f"UPDATE {table} t SET key = r.key FROM romancy_refiled r WHERE t.key = r.former", timeout=None
        )
