"""Worker processes as the demo holds them: started, listened to, killed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from romancy.core.clock import stopwatch

READY = "ready"
"""What a worker says first."""
_LOOK_EVERY = 0.01


class WorkerGone(Exception):
    """A worker ended that was still needed."""


class Worker:
    """One worker process. What it says is kept, with the moment it was heard, and passed on."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, hear: Callable[[Worker, str], None]) -> None:
        self.number, self.process = number, process
        self.lines: list[tuple[float, str]] = []
        self._hear = hear
        self._listening = asyncio.create_task(self._listen())

    def __repr__(self) -> str:
        return f"<Worker {self.number} pid={self.process.pid} returncode={self.process.returncode}>"

    @classmethod
    async def spawn(cls, number: int, database: str, hear: Callable[[Worker, str], None]) -> Worker:
        """Start a worker process; it is up when it says `READY`."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "romancy.cli.demo.worker", database),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,  # Ctrl-C is for the demo, which then ends its workers in order
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
            if line != READY:
                self._hear(self, line)
        await self.process.wait()

    async def said(self, beginning: str) -> float:
        """When it said a line that begins so; waits until it does."""
        while True:
            for at, line in self.lines:
                if line.startswith(beginning):
                    return at
            if not self.is_alive:
                raise WorkerGone(f"worker {self.number} ended with code {self.process.returncode}, too early")
            await asyncio.sleep(_LOOK_EVERY)

    async def kill(self) -> None:
        """Without warning: SIGKILL."""
        if self.is_alive:
            self.process.kill()
        await self._listening

    async def stop(self) -> None:
        """Let it hand back what it has and end; if it does not, kill it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.wait_for(asyncio.shield(self._listening), 3)
        except TimeoutError:
            await self.kill()
