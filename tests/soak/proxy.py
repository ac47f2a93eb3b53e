"""A way to PostgreSQL over loopback that can be cut, blocked, or lose the answers."""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import parse_qs, urlsplit


class Proxy:
    """Listens on a port of its own; `url` leads through it to the server behind `target` (one with a socket file)."""

    def __init__(self, target: str) -> None:
        [folder] = parse_qs(urlsplit(target).query)["host"]
        self._socket = f"{folder}/.s.PGSQL.5432"
        self._server: asyncio.Server | None = None
        self._lines: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._loses_answers = False
        self.url = ""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.heal()
        self.cut()

    # --- faults ------------------------------------------------------------------------------------------------------
    def cut(self) -> None:
        for line in list(self._lines):
            for writer in line:
                writer.transport.abort()

    def block(self) -> None:
        """Nothing gets through, and nobody is told."""
        self._flows.clear()

    def lose_answers(self) -> None:
        """What is asked is done, and nobody hears of it."""
        self._loses_answers = True

    def heal(self) -> None:
        if self._loses_answers:
            self._loses_answers = False
            self.cut()
        self._flows.set()

    # --- lines -------------------------------------------------------------------------------------------------------
    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            writer.transport.abort()
            return
        line = writer, server_writer
        self._lines.add(line)
        try:
            await asyncio.gather(
                self._pump(reader, server_writer, answers=False), self._pump(server_reader, writer, answers=True)
            )
        finally:
            self._lines.discard(line)
            for each in line:
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flows.wait()
                if not (answers and self._loses_answers):
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()
