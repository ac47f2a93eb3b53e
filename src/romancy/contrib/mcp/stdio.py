"""A server over standard input and output, as coding agents start it. The client is the user of this machine."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TextIO

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from romancy.core.garbage import collect_less
from romancy.service import Service
from romancy.signals import on_first_signal


@contextmanager
def own_stdout() -> Generator[TextIO]:
    """Keep standard output for the protocol: what is printed meanwhile goes to standard error.

    Begin before the user's module is imported: a line that it prints would be taken for an answer.
    """
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n") as wire:
        os.dup2(2, 1)
        try:
            yield wire
        finally:
            sys.stdout.flush()
            os.dup2(wire.fileno(), 1)


async def serve_stdio(app: Service, server: Server[Any], wire: TextIO) -> None:
    """Run the app, and answer on `wire` until the input ends or a signal arrives."""
    async with app:  # before the input is read: if it can't start, nothing waits for input
        collect_less()
        async with stdio_server(stdout=anyio.wrap_file(wire)) as (reading, writing):
            serving = asyncio.ensure_future(server.run(reading, writing, server.create_initialization_options()))

            def stop() -> None:
                serving.cancel()

            on_first_signal(stop)
            await asyncio.wait({serving})
            await app.stop()
            if serving.cancelled():
                os._exit(0)  # everything is stored; only a thread still waits for input, which can't be interrupted
    serving.result()
