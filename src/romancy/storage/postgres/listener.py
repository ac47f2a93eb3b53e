"""Hearing of what other processes did, and telling them: NOTIFY. What is missed is only late; a sweep finds it.

The connection that listens is also the sign of life: each worker holds a session lock on it. When its process dies the
server lets go of the lock at once, and others need not wait for the lease to end.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Collection
from typing import Any

from romancy.storage.errors import TransientError
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.driver import FAILED, asyncpg
from romancy.storage.postgres.errors import words

_logger = logging.getLogger("romancy")
_FREE, _ENDED = "romancy_free_", "romancy_ended_"
_PAUSE = 0.005
"""Seconds between notices, so that much that happens at once is told once."""


def lock_key(worker: str) -> int:
    """The key of a worker's session lock, as two halves of 32 bits."""
    return int.from_bytes(hashlib.blake2b(f"romancy {worker}".encode(), digest_size=8).digest(), "big")


def channel_of(worker: str) -> str:
    return f"romancy_{worker}"[:63]


class Listener:
    """One direct connection, made anew when it is lost."""

    def __init__(
        self,
        url: str | None,
        schema: str,
        sender: str,
        changed: Callable[[], None],
        home: Connections | None = None,
    ) -> None:
        """`home`: where the database is, if the URL is another one and may lead elsewhere."""
        self._url, self._sender, self._changed, self._home = url, sender, changed, home
        place = hashlib.blake2b(schema.encode(), digest_size=16).hexdigest()
        self.free, self.ended = _FREE + place, _ENDED + place
        self._workers: set[str] = set()
        self._held: set[str] = set()
        self._connection: Any = None
        self._is_useless = False
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Listener connected={self._connection is not None} workers={len(self._workers)}>"

    async def open(self) -> None:
        if self._url is None:
            return
        try:
            await self._connect()
        except (*FAILED, TransientError) as error:
            said = words(error, self._url)
            _logger.warning("no notices from the database yet (%s); its changes are seen every second", said)
        if not self._is_useless:
            self._task = asyncio.create_task(self._keep_connected(), name="romancy-listener")

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
        self._held.clear()

    # --- signs of life ----------------------------------------------------------------------------------------------
    async def hold(self, worker: str) -> bool:
        """Hear what is meant for this worker, and hold its lock; whether that is so at present."""
        self._workers.add(worker)
        connection = self._connection
        if connection is not None:
            try:
                await self._take(connection, worker)
            except Exception:  # a connection that breaks just now may even be an AttributeError of the driver's
                connection.terminate()  # made anew, and then everything is taken again
        return self.holds(worker)

    def holds(self, worker: str) -> bool:
        return worker in self._held

    def drop(self, worker: str) -> None:
        """The worker is no more. Its lock stays, in nobody's way: ids are never used again."""
        self._workers.discard(worker)
        self._held.discard(worker)

    # --- the connection ---------------------------------------------------------------------------------------------
    async def _connect(self) -> None:
        connection: Any = await asyncpg.connect(
            self._url, timeout=10, command_timeout=10, statement_cache_size=0, target_session_attrs="read-write"
        )
        try:
            trouble = await self._trouble(connection)
            if trouble is not None:
                self._is_useless = True
                _logger.warning(trouble)
                await connection.close()
                return
            for channel in (self.free, self.ended):
                await connection.add_listener(channel, self._heard)
            self._held.clear()
            while missing := self._workers - self._held:  # others come and go meanwhile
                await self._take(connection, missing.pop())
        except BaseException:
            connection.terminate()
            raise
        self._lost.clear()
        connection.add_termination_listener(self._terminated)
        self._connection = connection

    async def _trouble(self, connection: Any) -> str | None:
        """Why LISTEN and session locks would end up where nobody looks for them."""
        if await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid():
            return "the database is behind a pooler; changes are heard of at once with notify_url, a direct one"
        if self._home is None:
            return None
        [home] = await self._home.ask("place")
        there = await connection.fetchrow(self._home.statements.get("place").sql)
        self._home = None  # asked once
        if tuple(home) == tuple(there):
            return None
        return (
            f"notify_url leads to another database ({there['name']!r}) than the app's ({home['name']!r}), where its "
            "notices are not heard: it is not used, and changes are seen every second; give the same one, directly"
        )

    async def _take(self, connection: Any, worker: str) -> None:
        await connection.add_listener(channel_of(worker), self._heard)
        key = int.from_bytes(lock_key(worker).to_bytes(8, "big"), "big", signed=True)
        await connection.execute("SELECT pg_advisory_lock_shared($1)", key)
        self._held.add(worker)

    async def _keep_connected(self) -> None:
        pause = 0.05
        while not self._is_useless:
            if self._connection is not None:
                await self._lost.wait()
            try:
                await self._connect()
                pause = 0.05
                self._changed()  # who knows what was missed
            except Exception as error:
                if not isinstance(error, (*FAILED, TransientError)):
                    _logger.exception("listening for notices failed; it is tried again")
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)

    def _terminated(self, connection: Any) -> None:
        if connection is self._connection:
            self._connection = None
            self._held.clear()
            self._lost.set()

    def _heard(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        if payload != self._sender:
            self._changed()


class Announcer:
    """Tells other processes what to look at. After the commit and beside it: NOTIFY takes a lock of its own."""

    def __init__(self, connections: Connections) -> None:
        self.sender = os.urandom(8).hex()
        self._connections = connections
        self._channels: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def tell(self, channels: Collection[str]) -> None:
        self._channels.update(channels)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send(), name="romancy-announcer")

    async def _send(self) -> None:
        while self._channels:
            channels, self._channels = sorted(self._channels), set()
            try:
                await self._connections.do("notify", channels=channels, sender=self.sender)
            except TransientError as error:
                _logger.debug("other workers were not told (%s); they will find out by themselves", error)
            await asyncio.sleep(_PAUSE)

    async def close(self) -> None:
        """What is still to be told is told, unless the database is away."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=1.0)
            self._task.cancel()
