"""Notices between processes, by LISTEN and NOTIFY. A missed notice only causes a delay; a sweep finds the change.

The listening connection is also a sign of life: each worker holds a session lock on it. When its process dies, the
server releases the lock at once, and others need not wait for the lease to end. A second lock, which the connection
takes that renews the lease, tells the death of a process from the loss of one connection.
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
_FREE, _ENDED, _INBOX, _SCHEDULES = "romancy_free_", "romancy_ended_", "romancy_inbox_", "romancy_schedules_"
_EMITTED = "romancy_emitted_"
_PAUSE = 0.005
"""Seconds between notices, so that simultaneous changes share one notice."""


def lock_key(worker: str) -> int:
    """Return the key of a worker's session lock, two halves of 32 bits."""
    return int.from_bytes(hashlib.blake2b(f"romancy {worker}".encode(), digest_size=8).digest(), "big")


def pool_key(worker: str) -> int:
    """Return the key of the lock that a worker's other connections hold."""
    return lock_key(f"{worker} pool")


def signed(key: int) -> int:
    """Return a key as the server takes it."""
    return int.from_bytes(key.to_bytes(8, "big"), "big", signed=True)


def channel_of(worker: str) -> str:
    return f"romancy_{worker}"[:63]


class Listener:
    """One direct connection, reconnected when it is lost."""

    def __init__(
        self,
        url: str | None,
        schema: str,
        sender: str,
        changed: Callable[[], None],
        arrived: Callable[[], None] = lambda: None,
        rescheduled: Callable[[], None] = lambda: None,
        home: Connections | None = None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`home`: the connections of the app, if the URL differs from theirs and may lead to another database.

        `lost`: called when the connection was lost.
        """
        self._when_lost = lost
        self._url, self._sender, self._changed, self._home = url, sender, changed, home
        place = hashlib.blake2b(schema.encode(), digest_size=16).hexdigest()
        self.free, self.ended = _FREE + place, _ENDED + place
        self.inbox, self._arrived = _INBOX + place, arrived
        self.schedules, self._rescheduled = _SCHEDULES + place, rescheduled
        self.emitted = _EMITTED + place
        self._heard_emitted: Callable[[], None] | None = None
        self.hears_emitted = False
        """Whether notices of emissions arrive."""
        self._workers: set[str] = set()
        self._held: set[str] = set()
        self._connection: Any = None
        self._is_useless = False
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._turning: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Listener connected={self._connection is not None} workers={len(self._workers)}>"

    async def open(self) -> None:
        if self._url is None:
            return
        try:
            await self._connect()
        except (*FAILED, TransientError) as error:
            said = words(error, self._url)
            _logger.warning("no notices from the database yet (%s); checking for changes every second", said)
        if not self._is_useless:
            self._task = asyncio.create_task(self._keep_connected(), name="romancy-listener")

    def close(self) -> None:
        for task in (self._task, self._turning):
            if task is not None:
                task.cancel()
        self._heard_emitted = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
        self._held.clear()

    # --- signs of life ----------------------------------------------------------------------------------------------
    async def hold(self, worker: str) -> bool:
        """Listen for this worker and hold its lock; return whether the lock is held now."""
        self._workers.add(worker)
        connection = self._connection
        if connection is not None:
            try:
                await self._take(connection, worker)
            except Exception:  # for a breaking connection, the driver may even raise an AttributeError
                connection.terminate()  # reconnecting takes everything again
        return self.holds(worker)

    def holds(self, worker: str) -> bool:
        return worker in self._held

    def drop(self, worker: str) -> None:
        """Stop listening for a deleted worker. Its lock remains but does no harm: ids are never reused."""
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
            await connection.add_listener(self.inbox, self._heard_of_guests)
            await connection.add_listener(self.schedules, self._heard_of_schedules)
            self._held.clear()
            while missing := self._workers - self._held:  # workers can be added or dropped meanwhile
                await self._take(connection, missing.pop())
        except BaseException:
            connection.terminate()
            raise
        self._lost.clear()
        connection.add_termination_listener(self._terminated)
        self._connection = connection
        self.hear_emitted(self._heard_emitted)  # it may have changed meanwhile

    async def _trouble(self, connection: Any) -> str | None:
        """Return why LISTEN and session locks would have no effect here, or None."""
        if await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid():
            return "the database is behind a pooler; set notify_url to a direct URL to see changes at once"
        if self._home is None:
            return None
        [home] = await self._home.ask("place")
        there = await connection.fetchrow(self._home.statements.get("place").sql)
        self._home = None  # checked once
        if tuple(home) == tuple(there):
            return None
        return (
            f"notify_url leads to another database ({there['name']!r}) than the app's ({home['name']!r}), so it is not "
            "used, and changes are seen every second; set it to a direct URL of the app's database"
        )

    async def _take(self, connection: Any, worker: str) -> None:
        await connection.add_listener(channel_of(worker), self._heard)
        await connection.execute("SELECT pg_advisory_lock_shared($1)", signed(lock_key(worker)))
        self._held.add(worker)

    async def _keep_connected(self) -> None:
        pause = 0.05
        while not self._is_useless:
            if self._connection is not None:
                await self._lost.wait()
            try:
                await self._connect()
                pause = 0.05
                self._changed()  # notices may have been missed
                self._arrived()
                self._rescheduled()
                if self._heard_emitted is not None:
                    self._heard_emitted()
            except Exception as error:
                if not isinstance(error, (*FAILED, TransientError)):
                    _logger.exception("listening for notices failed; trying again")
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)

    def _terminated(self, connection: Any) -> None:
        if connection is self._connection:
            self._connection = None
            self.hears_emitted = False
            self._held.clear()
            self._lost.set()
            self._when_lost()

    # --- emissions --------------------------------------------------------------------------------------------------
    def hear_emitted(self, heard: Callable[[], None] | None) -> None:
        """Listen for emissions, as long as somebody reads them."""
        self._heard_emitted = heard
        connection, is_wanted = self._connection, heard is not None
        if connection is not None and is_wanted != self.hears_emitted and self._turning is None:
            self._turning = asyncio.create_task(self._turn(connection, is_wanted), name="romancy-listen")

    async def _turn(self, connection: Any, is_wanted: bool) -> None:
        try:
            if is_wanted:
                await connection.add_listener(self.emitted, self._heard_of_emissions)
            else:
                await connection.remove_listener(self.emitted, self._heard_of_emissions)
        except Exception:  # for a breaking connection, the driver may even raise an AttributeError
            connection.terminate()  # reconnecting listens again
        else:
            if connection is self._connection:
                self.hears_emitted = is_wanted
        finally:
            self._turning = None
        if self._heard_emitted is not None:
            self._heard_emitted()  # something may have come before
        self.hear_emitted(self._heard_emitted)

    def _heard_of_emissions(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        if payload != self._sender and self._heard_emitted is not None:
            self._heard_emitted()

    def _heard(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        if payload != self._sender:
            self._changed()

    def _heard_of_schedules(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        if payload != self._sender:
            self._rescheduled()

    def _heard_of_guests(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        self._arrived()


class Announcer:
    """Notifies other processes of changes, separately after the commit, because NOTIFY takes a lock of its own."""

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
                _logger.debug("other workers were not notified (%s); their next sweep finds the change", error)
            await asyncio.sleep(_PAUSE)

    async def close(self) -> None:
        """Send the remaining notices, unless the database is unavailable."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=1.0)
            self._task.cancel()
