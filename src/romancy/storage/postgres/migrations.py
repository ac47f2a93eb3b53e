"""Brings a schema up to date in one transaction under a lock, so that many workers can start at once."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from romancy.errors import StorageError
from romancy.storage.errors import NotThere, SealedDatabase
from romancy.storage.opener import OLDEST, SEALED, can_read
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.driver import FAILED, asyncpg
from romancy.storage.sql import migrations
from romancy.storage.urls import DEFAULT_SCHEMA, quoted

T = TypeVar("T")
LIBRARY_VERSION = 13
"""The newest schema this library knows."""
_LOCK_TIMEOUT = 1000
"""Milliseconds to wait for a lock that workers hold."""
_LONGEST_STEP = 24 * 3600.0
"""Seconds: building an index on a large table takes longer than a worker's statements are allowed to."""
_LONGEST_PAUSE = 10.0
"""When the pause in seconds grows beyond this, the migration gives up: another session keeps its lock."""

_FENCE_ALL = """WITH gone AS (DELETE FROM workers RETURNING id)
INSERT INTO orphans (id, at, clean) SELECT id, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, true FROM gone
ON CONFLICT DO NOTHING"""
"""Run where older libraries may no longer write: nothing their workers submit is accepted after it. Workers that may
still write register again."""
SHUT_OUT = "UPDATE schema_info SET min_reader = greatest($1, $2 + min_reader)"
"""Lets only libraries with the codec write; those that were too old before still are."""


async def migrate(connections: Connections, schema: str, *, create: bool = True, level: int = 0) -> None:
    """Bring the schema up to date, or refuse one that only a newer library can use."""
    try:
        async with connections.transaction() as connection:
            await _check_server(connection)
            if await _is_current(connection, schema, level):  # needs only the privileges to read and write rows
                return
            found = await _versions(connection, schema)
            if found is None and not create:
                raise NotThere(
                    f"schema {schema!r} of {connections.name} holds no romancy tables; "
                    f"`{_command(connections.name, schema)}` creates them"
                )
            try:
                await undisturbed(connection, lambda: bring_up_to_date(connection, schema, level))
            except asyncpg.InsufficientPrivilegeError as error:
                raise _not_allowed(connections.name, schema, found, error) from error
    except FAILED as error:
        raise connections.explain(error) from error


async def undisturbed(connection: Any, change: Callable[[], Awaitable[T]]) -> T:
    """Change the schema while workers continue: if one of their locks is in the way, step back and try again.

    Waiting for the lock would block all later sessions, and could deadlock.
    """
    pause = 0.05
    while True:
        try:
            async with connection.transaction():
                return await change()
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            if pause > _LONGEST_PAUSE:
                raise
            await asyncio.sleep(pause)
            pause *= 1.5


def _not_allowed(place: str, schema: str, found: tuple[int, int] | None, error: Exception) -> StorageError:
    state = (
        f"schema {schema!r} of {place} holds no romancy tables yet, and this user can't create them"
        if found is None
        else f"schema {schema!r} of {place} is out of date, and this user can't migrate it"
    )
    return StorageError(f"{state}; run `{_command('OWNER-URL', schema)}` as its owner first ({error})")


def _command(url: str, schema: str) -> str:
    """Return the command that creates the schema."""
    return f"romancy migrate -d {url}" + ("" if schema == DEFAULT_SCHEMA else f" --schema {shlex.quote(schema)}")


async def bring_up_to_date(connection: Any, schema: str, level: int = 0) -> None:
    """Do the same within the caller's transaction: others see nothing before it ends."""
    await _check_server(connection)
    await be_alone(connection, schema)
    await _migrate(connection, schema, level)


async def be_alone(connection: Any, schema: str) -> None:
    """Wait for others that change the schema, in the caller's transaction."""
    await connection.execute("SET LOCAL statement_timeout = 0")
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _lock_key(schema), timeout=600)
    await connection.execute(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT}")  # from here on, workers can be in the way


async def shut_out(connection: Any) -> None:
    """Let only libraries with the codec write from now on. The tables are locked, the schema is in the search path."""
    await connection.execute(_FENCE_ALL)
    await connection.execute(SHUT_OUT, OLDEST, SEALED)


async def version(connections: Connections, schema: str) -> int:
    """Return the version of the schema, 0 if there is none; refuse one that only a newer library can use."""
    try:
        async with connections.transaction() as connection:
            await _check_server(connection)
            await _is_current(connection, schema, SEALED)
            found = await _versions(connection, schema)
            return found[0] if found is not None else 0
    except FAILED as error:
        raise connections.explain(error) from error


async def _check_server(connection: Any) -> None:
    major = connection.get_server_version().major
    if major < 14:
        raise StorageError(f"PostgreSQL {major} is too old; Romancy needs 14 or newer")
    if await connection.fetchval("SHOW server_encoding") != "UTF8":
        raise StorageError("the database's encoding is not UTF8; create one with ENCODING 'UTF8'")


async def _is_current(connection: Any, schema: str, level: int) -> bool:
    found = await _versions(connection, schema)
    if found is None:
        return False
    version, min_reader = found
    if not can_read(min_reader, LIBRARY_VERSION, level):
        if min_reader > SEALED and not level:
            raise SealedDatabase
        raise StorageError(
            f"the schema {schema!r} has version {version} and needs a newer romancy (this one knows version "
            f"{LIBRARY_VERSION}); upgrade the package"
        )
    return version >= max(number for number, _, _ in migrations("postgres"))


async def _versions(connection: Any, schema: str) -> tuple[int, int] | None:
    # Not to_regclass: a session that waited for the lock may still have the absence of the table cached.
    if "schema_info" not in await _tables(connection, schema):
        return None
    row = await connection.fetchrow(f"SELECT version, min_reader FROM {quoted(schema)}.schema_info")
    return (row[0], row[1]) if row is not None else None


async def _tables(connection: Any, schema: str) -> list[str]:
    query = "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = $1"
    return [name for (name,) in await connection.fetch(query, schema)]


async def _migrate(connection: Any, schema: str, level: int) -> None:
    """Run the missing migrations; another process may have run them while we waited for the lock."""
    if await _is_current(connection, schema, level):
        return
    found = await _versions(connection, schema)
    if found is None:
        await _begin(connection, schema)
    version, min_reader = found or (0, 0)
    await connection.execute(f"SET LOCAL search_path TO {quoted(schema)}")
    base = SEALED if min_reader > SEALED else 0
    shuts_out = found is not None and any(n > version and r + base > min_reader for n, r, _ in migrations("postgres"))
    if shuts_out:
        await connection.execute("LOCK TABLE instances, events, requests IN SHARE ROW EXCLUSIVE MODE")
    for number, reader, script in migrations("postgres"):
        if number > version:
            await connection.execute(script, timeout=_LONGEST_STEP)
            version, min_reader = number, max(min_reader, reader + base)
    if shuts_out:
        await connection.execute(_FENCE_ALL)
    await connection.execute("DELETE FROM schema_info")
    await connection.execute("INSERT INTO schema_info VALUES ($1, $2)", version, min_reader)


async def _begin(connection: Any, schema: str) -> None:
    if await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema) is None:
        await connection.execute(f"CREATE SCHEMA {quoted(schema)}")
    tables = await _tables(connection, schema)
    if tables:
        raise StorageError(
            f"the schema {schema!r} holds {tables[0]!r} of another program; give Romancy a schema of its own (schema=)"
        )
    await connection.execute(
        f"CREATE TABLE {quoted(schema)}.schema_info (version integer NOT NULL, min_reader integer NOT NULL)"
    )


def _lock_key(schema: str) -> int:
    digest = hashlib.blake2b(f"romancy migrates {schema}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
