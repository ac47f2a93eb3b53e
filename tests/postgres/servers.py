"""Servers that tests break: with settings of their own, and in pairs."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import asyncpg

from tests import pg_server


class Breakable(pg_server.Server):
    """A server whose settings may be changed while it runs, or for its next start."""

    def begin(self, *options: str) -> None:
        """Start it; `options` as in `max_connections=10`."""
        settings = (f"unix_socket_directories={self.folder}", "listen_addresses=", *options)
        self._control("-w", "-o", " ".join(f"-c {each}" for each in settings), "-l", f"{self.folder}/log", "start")

    def standby(self) -> Standby:
        return Standby(self)


class Standby:
    """A copy of a server that follows it, and can take its place."""

    def __init__(self, primary: Breakable) -> None:
        self._primary = primary
        self.folder = tempfile.mkdtemp(prefix="romancy-pg-")
        os.chmod(self.folder, 0o700)
        owner = Path(primary.folder).stat()
        os.chown(self.folder, owner.st_uid, owner.st_gid)
        primary.run("pg_basebackup", "-h", primary.folder, "-U", "postgres", "-D", self.folder, "-R", "-c", "fast")
        for socket in Path(self.folder).glob(".s.PGSQL*"):
            socket.unlink()  # the primary keeps its socket with its data
        with open(f"{self.folder}/postgresql.auto.conf", "a") as file:
            line = f"host={primary.folder} user=postgres application_name=standby"
            file.write(f"\nprimary_conninfo = '{line}'\nsynchronous_standby_names = ''\n")
        options = f"-c unix_socket_directories={self.folder} -c listen_addresses="
        primary.run("pg_ctl", "-D", self.folder, "-w", "-o", options, "-l", f"{self.folder}/log", "start")

    async def fall_behind(self) -> None:
        """From now on it hears nothing from its primary."""
        raw = await asyncpg.connect(f"postgresql://postgres@/postgres?host={self.folder}")
        await settings(raw, primary_conninfo="''")
        async with asyncio.timeout(10):
            while await raw.fetchval("SELECT count(*) FROM pg_stat_wal_receiver"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await raw.close()

    def promote(self) -> None:
        self._primary.run("pg_ctl", "-D", self.folder, "-w", "promote")

    def remove(self) -> None:
        self._primary.run("pg_ctl", "-D", self.folder, "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)


async def settings(raw: Any, **values: str | None) -> None:
    """Change settings of a running server, for sessions that are there as well."""
    for name, value in values.items():
        await raw.execute(f"ALTER SYSTEM RESET {name}" if value is None else f"ALTER SYSTEM SET {name} = {value}")
    await raw.execute("SELECT pg_reload_conf()")
