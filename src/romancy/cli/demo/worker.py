"""The demo's worker process: `python -m romancy.cli.demo.worker DATABASE`. Ends when its stdin is closed."""

from __future__ import annotations

import asyncio
import sys
import threading

from romancy import App, WorkerOptions
from romancy.cli.demo.workers import READY
from romancy.cli.demo.workflows import WORKFLOWS, tell


async def serve(database: str) -> None:
    """Run until the parent process closes stdin or is gone."""
    closed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch() -> None:
        sys.stdin.buffer.read()
        loop.call_soon_threadsafe(closed.set)

    threading.Thread(target=watch, name="stdin", daemon=True).start()
    async with App(database, workflows=WORKFLOWS, worker=WorkerOptions(grace=1)):
        tell(READY)
        await closed.wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
