"""Start, watch and kill the demo's worker processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from romancy.core.clock import stopwatch

READY = "ready"
"""The first line a worker prints."""
_POLL_INTERVAL = 0.01


class WorkerGone(Exception):
    """A worker ended although it was still needed."""


class Worker:
    """One worker process. Keeps each line it prints, with the time, and passes it on."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, hear: Callable[[Worker, str], None]) -> None:
        self.number, self.process = number, process
        self.lines: list[tuple[float, str]] = []
        self._hear, self._is_heard = hear, True
        self._listening = asyncio.create_task(self._listen())

    def __repr__(self) -> str:
        return f"<Worker {self.number} pid={self.process.pid} returncode={self.process.returncode}>"

    @classmethod
    async def spawn(cls, number: int, database: str, hear: Callable[[Worker, str], None]) -> Worker:
        """Start a worker process; it is ready when it prints `READY`."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "romancy.cli.demo.worker", database),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,  # Ctrl-C only reaches the demo, which then stops its workers
        )
        return cls(number, process, hear)

    @property
    def is_alive(self) -> bool:
        return not self._listening.done()

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        async for raw in self.process.stdout:
            line = raw.decode("utf-8", "replace").rstrip()
            self.lines.append((stopwatch(), line))
            if line != READY and self._is_heard:
                try:
                    self._hear(self, line)
                except OSError:  # the reader is gone: the next line of the story raises it, too
                    self._is_heard = False
        await self.process.wait()

    async def printed(self, prefix: str) -> float:
        """Wait until it has printed a line with this prefix, and return the time of that."""
        while True:
            for at, line in self.lines:
                if line.startswith(prefix):
                    return at
            if not self.is_alive:
                raise WorkerGone(f"worker {self.number} ended too early, with exit code {self.process.returncode}")
            await asyncio.sleep(_POLL_INTERVAL)

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self.is_alive:
            self.process.kill()
        await self._listening

    async def stop(self) -> None:
        """Let it hand back its instances and end; kill it if it does not."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.wait_for(asyncio.shield(self._listening), 3)
        except TimeoutError:
            await self.kill()
