"""Connections: a small pool. Every statement is a transaction of its own. Server errors become storage errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from romancy.core.clock import Clock, SystemClock, ticks
from romancy.errors import Outdated, StorageError
from romancy.storage.errors import NotThere, RefusedValue, TookTooLong, TransientError
from romancy.storage.postgres.driver import FAILED, LOST, asyncpg
from romancy.storage.postgres.errors import STATEMENT_TIMEOUT, words
from romancy.storage.postgres.statements import Statements
from romancy.storage.sql import Statement
from romancy.storage.urls import without_password

_logger = logging.getLogger("romancy")
MAX_CONNECTIONS = 5
"""One for the group commit, the others for the statements that follow it and for reads."""
ACQUIRE_TIMEOUT = 10.0
_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_bitmapscan": "off",
    "random_page_cost": "1.1",
    "jit": "off",
    "default_transaction_isolation": "read committed",
    "application_name": "romancy",
}
"""Our statements are long, and their best plan is always the same. Planning each one again would take most of the time.

Plain index scans mark the index entries of dead rows, so that later scans skip them. Bitmap scans do not: an instance
that waits again and again would read all its earlier waits until the next vacuum. Without them, the default cost of a
random page has the planner read whole tables instead.
"""
_VALUES, _MISTAKES = ("21", "22", "23", "54"), ("0A", "42")
"""Error classes that are about the statement or its values, and would occur again; all others are outages."""
_TOO_MUCH = ("57014", "55P03", "53200")
"""The server gave up: timeout, lock not available, or out of memory. A smaller batch may succeed."""
_OUTDATED = re.compile(r"outdated by schema version (\d+), knows (\d+)")
"""The message of the block `outdated` in postgres.sql."""


Replaced = Callable[[Any], Awaitable[None]]
"""Called with a connection to a server that replaced another, before the connection is used."""


class Connections:
    """Runs statements on any free connection.

    A standby that replaced its primary may lack the latest writes, and so may a restored database. Both begin a new
    timeline. What this process remembers is valid only on one timeline, so each new connection is asked for its own.
    """

    def __init__(
        self, url: str, statements: Statements, clock: Clock | None = None, replaced: Replaced | None = None
    ) -> None:
        self._url, self.statements, self._replaced = url, statements, replaced
        self._timeline: str | None = None
        self.is_direct = True
        """Whether sessions are ours alone. Those of a pooler are not, and live on when this process dies."""
        self._greeting = asyncio.Lock()
        self._clock = clock if isinstance(clock, SystemClock) else None  # a manual clock does not follow
        self.name = without_password(url)
        self._pool: Any = None
        self._spare: Any = None
        """A free connection kept outside the pool: taking it costs half as much as acquiring one from the pool."""
        self._waiting = 0
        """How many callers wait for the pool; they get the next free connection."""
        self._trouble: int | None = None

    @property
    def is_open(self) -> bool:
        return self._pool is not None

    async def open(self) -> None:
        try:
            try:
                await self._open(_SETTINGS)
            except asyncpg.ProtocolViolationError:
                await self._open({})  # a pooler that accepts no settings: slower, but correct
        except (*FAILED, ValueError, OverflowError) as error:
            await self.close()
            kind = NotThere if isinstance(error, asyncpg.InvalidCatalogNameError) else StorageError
            raise kind(f"the database {self.name} can't be opened: {words(error, self._url)}") from error

    async def _open(self, settings: Mapping[str, str]) -> None:
        self._pool = await asyncpg.create_pool(
            self._url,
            min_size=0,
            max_size=MAX_CONNECTIONS,
            command_timeout=STATEMENT_TIMEOUT,
            timeout=ACQUIRE_TIMEOUT,
            target_session_attrs="read-write",
            init=self._greet,
            reset=_leave_as_is,
            statement_cache_size=500,
            max_cached_statement_lifetime=0,
            server_settings=dict(settings),
        )
        async with self.transaction():
            pass  # connect, so that a wrong URL is reported here

    @property
    def timeline(self) -> str | None:
        """The server's timeline, if it is known."""
        return self._timeline

    async def connect(self, kind: type[Any]) -> Any:
        """Return a connection of its own for an activity: with the user's settings, not with ours."""
        connection = await asyncpg.connect(
            self._url,
            connection_class=kind,
            timeout=ACQUIRE_TIMEOUT,
            target_session_attrs="read-write",
            max_cached_statement_lifetime=0,
        )
        try:
            await self._greet(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _greet(self, connection: Any) -> None:
        """Check whether this is still the same server, or one that replaced it."""
        timeline, pid = await _timeline(connection)
        self.is_direct = self.is_direct and pid == connection.get_server_pid()
        async with self._greeting:
            if timeline is not None and self._timeline is not None and timeline != self._timeline:
                _logger.warning(
                    "the database %s was replaced by a standby or a backup; this process reads its state again",
                    self.name,
                )
                if self._replaced is not None:
                    await self._replaced(connection)
            self._timeline = timeline or self._timeline

    async def close(self) -> None:
        """Close all connections. Statements still running on the server end there, as after a crash."""
        pool, self._pool = self._pool, None
        spare, self._spare = self._spare, None
        if pool is not None:
            try:
                if spare is not None:
                    await pool.release(spare)
                await asyncio.wait_for(pool.close(), 2.0)
            except BaseException as error:
                pool.terminate()
                if not isinstance(error, FAILED):
                    raise

    async def write(self, statement: Statement, given: Mapping[str, Any]) -> list[Any]:
        """Run a statement once. A TransientError means that the outcome is unknown."""
        pool = self._pool
        if pool is None:
            raise TransientError(f"the database {self.name} is not open")
        values, timeline = statement.values(given), self._timeline
        try:
            connection = await self._take(pool)
        except TimeoutError as error:
            raise TransientError(f"no connection to {self.name} became free within {ACQUIRE_TIMEOUT:g} s") from error
        except Exception as error:
            raise self.explain(error) from error
        if timeline != self._timeline:  # the values may be based on outdated state
            await _give_back(pool, connection, None)
            raise TransientError(f"{self.name} was replaced meanwhile")
        try:
            try:
                rows = await connection.fetch(statement.sql, *values)
            except BaseException as error:
                await _give_back(pool, connection, error)
                raise
            if self._spare is None and not self._waiting and pool is self._pool:
                self._spare = connection
            else:
                await pool.release(connection)
            return rows
        except Exception as error:
            if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
                await pool.expire_connections()  # this server is no longer the primary: reconnect
            raise self.explain(error) from error

    async def _take(self, pool: Any) -> Any:
        spare, self._spare = self._spare, None
        if spare is not None:
            if _is_usable(spare):
                return spare
            self.note_trouble()
            await pool.release(spare)
        self._waiting += 1
        try:
            return await pool.acquire(timeout=ACQUIRE_TIMEOUT)
        finally:
            self._waiting -= 1

    async def write_timed(self, statement: Statement, given: Mapping[str, Any]) -> list[Any]:
        """Run once a statement whose rows give the server's time in `now`: our clock follows it."""
        asked = ticks()
        rows = await self.write(statement, given)
        if rows and self._clock is not None:
            self._clock.follow(rows[0]["now"], asked)
        return rows

    async def read(self, statement: Statement, given: Mapping[str, Any]) -> list[Any]:
        """Run a statement that can safely run twice, so that a connection lost while idle causes no error."""
        try:
            return await self.write(statement, given)
        except TransientError as error:
            if not isinstance(error.__cause__, LOST):
                raise
            return await self.write(statement, given)

    async def do(self, name: str, /, **given: Any) -> list[Any]:
        return await self.write(self.statements.get(name), given)

    async def do_timed(self, name: str, /, **given: Any) -> list[Any]:
        return await self.write_timed(self.statements.get(name), given)

    async def ask(self, name: str, /, **given: Any) -> list[Any]:
        return await self.read(self.statements.get(name), given)

    def since_trouble(self) -> int | None:
        """Return the microseconds since a connection was last lost or refused; None means never."""
        return None if self._trouble is None else ticks() - self._trouble

    def note_trouble(self) -> None:
        self._trouble = ticks()

    def transaction(self) -> Any:
        """Return a connection for exclusive use, for migrations."""
        return self._pool.acquire(timeout=ACQUIRE_TIMEOUT)

    def explain(self, error: BaseException) -> StorageError:
        """Distinguish an outage (try again) from a value that will never be accepted."""
        if isinstance(error, StorageError):
            return error
        said = words(error, self._url)
        if isinstance(error, asyncpg.InvalidTextRepresentationError) and (found := _OUTDATED.search(str(error))):
            version, known = int(found[1]), int(found[2])
            return Outdated(version, known, sealed=version <= known)  # nothing else shuts out one that knows the schema
        code = getattr(error, "sqlstate", None) or ""
        if isinstance(error, (asyncpg.DataError, UnicodeError, OverflowError)) or code[:2] in _VALUES:
            return RefusedValue(f"the database can't hold a value: {said}")
        if code[:2] in _MISTAKES and not isinstance(error, asyncpg.InvalidCachedStatementError):
            return StorageError(f"{self.name}: {said}")
        if code in _TOO_MUCH or (isinstance(error, TimeoutError) and error.errno is None):
            return TookTooLong(f"{self.name}: {said}")
        # For any other error the outcome may be unknown: a broken connection is reported in many ways.
        self.note_trouble()
        return TransientError(f"{self.name}: {said}")


async def _timeline(connection: Any) -> tuple[str | None, int | None]:
    """Return the server's timeline and the id of the process that serves us; None if they are not available."""
    try:
        query = "SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), pg_backend_pid()"
        return tuple(await connection.fetchrow(query, timeout=ACQUIRE_TIMEOUT))
    except asyncpg.PostgresError:
        return None, None


async def _give_back(pool: Any, connection: Any, error: BaseException | None) -> None:
    """Release a connection after an error. A cancelled caller does not wait for a server that may not answer.

    Further errors here are ignored in favor of the first one.
    """
    if error is not None and not isinstance(error, Exception):
        connection.terminate()
    with contextlib.suppress(*FAILED):
        await pool.release(connection)


async def _leave_as_is(connection: Any) -> None:
    """Do nothing: statements leave nothing behind in a session, so this saves a round trip."""


def _is_usable(connection: Any) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # it was lost, and the pool already has it back
        return False
