"""`--workers N`: run a command in N processes, and restart those that die.

The supervisor runs none of the user's code and opens no database. Every worker is a fresh Python that runs the same
command line. It gets a `lifeline` and, for `romancy serve`, the socket to accept connections from.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import click

from romancy.cli.errors import Refused
from romancy.cli.lifeline import Report, environment

_logger = logging.getLogger("romancy")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
IS_AVAILABLE = sys.platform != "win32"
"""On Windows, processes can't inherit sockets this way."""
workers_option = click.option(
    "--workers",
    type=click.IntRange(1, 1000),
    default=1,
    envvar="ROMANCY_WORKERS",
    metavar="N",
    help="Processes to run; those that die are restarted.  [env: ROMANCY_WORKERS; default: 1]",
)
_MARGIN = 5.0
"""Seconds that workers have to stop, in addition to the time they asked for."""
_LAST_WORDS = 1.0
"""Seconds to wait for the report of a worker that is dead already, in case its children keep the lifeline open."""


@dataclass(frozen=True)
class BackOff:
    """How long to wait before a worker that died is started again, in seconds."""

    first: float = 0.1
    longest: float = 10.0
    calm: float = 60.0
    """After a worker has run this long, its next pause is the first one again."""

    def pause(self, last: float, lived: float) -> float:
        """Return the pause after the `last` one, for a worker that lived this long."""
        return self.first if not last or lived >= self.calm else min(2 * last, self.longest)


class Worker:
    """One of the workers: a process, and its successors."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: Process | None = None
        self.started = asyncio.Event()
        """Set once a process of this worker was ready."""
        self.report: Report | None = None
        """What the current process has reported. None until it is ready."""
        self._lifeline: socket.socket | None = None
        self._is_stopping = False

    def __repr__(self) -> str:
        return f"<Worker {self.number} pid={self.process.pid if self.process else None}>"

    async def run(self, command: Sequence[str], bound: socket.socket | None) -> int:
        """Run one process to its end, and return its exit code."""
        self.report = None
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            with theirs:
                passed = [each.fileno() for each in (theirs, bound) if each is not None]
                env = environment(self.number, theirs, bound)
                self.process = await asyncio.create_subprocess_exec(*command, env=env, pass_fds=passed)
            self._lifeline = ours
            if self._is_stopping:  # asked while the process was being started
                self.stop()
            reporting = asyncio.create_task(self._await_report(ours))
            try:
                code = await self.process.wait()
                await asyncio.wait([reporting], timeout=_LAST_WORDS)
                return code
            finally:
                reporting.cancel()
                self.process = self._lifeline = None

    async def _await_report(self, ours: socket.socket) -> None:
        loop, data = asyncio.get_running_loop(), b""
        while part := await loop.sock_recv(ours, 65536):
            data += part
        if data:
            self.report = Report.from_bytes(data)
            self.started.set()

    def stop(self) -> None:
        """Let the process finish its work and end. One that is not ready yet has nothing to finish."""
        self._is_stopping = True
        if self._lifeline is not None:
            with suppress(OSError):  # on macOS, if the process has just died
                self._lifeline.shutdown(socket.SHUT_WR)
        if self.process is not None and self.report is None:
            self.process.terminate()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()


class Supervisor:
    """Keeps N workers running until a signal arrives."""

    def __init__(
        self, command: Sequence[str], count: int, bound: socket.socket | None = None, back_off: BackOff | None = None
    ) -> None:
        self.workers = [Worker(number) for number in range(1, count + 1)]
        self._command, self._bound = command, bound
        self._back_off = back_off or BackOff()
        self._stopping = asyncio.Event()
        self._keeping: list[asyncio.Task[None]] = []
        self._exit_code = 0

    def __repr__(self) -> str:
        return f"<Supervisor {self.workers}>"

    async def run(self) -> int:
        """Run until a signal, or until a worker can't start.

        Returns the exit code: 0, that of the worker that could not start, or -N if signal N was the second one.
        """
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.on_signal, number)
        async with asyncio.TaskGroup() as group:
            starting = group.create_task(self._start(group))
            await self._stopping.wait()
            starting.cancel()
            await self._stop()
        return self._exit_code

    def on_signal(self, number: int) -> None:
        """Stop gracefully the first time, at once the second time."""
        if not self._stopping.is_set():
            _logger.info("stopping %d workers", len(self.workers))
            self._stopping.set()
        else:
            self._exit_code = -number
            for worker in self.workers:
                worker.kill()

    async def _start(self, group: asyncio.TaskGroup) -> None:
        """Start one worker, then the others: what is wrong with all of them is reported once."""
        for worker in self.workers:
            self._keeping.append(group.create_task(self._keep(worker)))
            await self.workers[0].started.wait()
        for worker in self.workers:
            await worker.started.wait()
        report = self.workers[0].report
        _logger.info("%s in %d processes", report.message if report else "romancy works", len(self.workers))

    async def _keep(self, worker: Worker) -> None:
        """Run a worker, and start it again when it ends."""
        loop, pause = asyncio.get_running_loop(), 0.0
        while True:
            began = loop.time()
            ended, code = await self._run(worker)
            if self._stopping.is_set():
                return
            if code > 0 and not worker.started.is_set():
                self._give_up(worker, code)
                return
            pause = self._back_off.pause(pause, loop.time() - began)
            _logger.warning("worker %d %s; starting it again in %g s", worker.number, ended, pause)
            if await self._stops_within(pause):
                return

    async def _run(self, worker: Worker) -> tuple[str, int]:
        """Run one process of a worker. Returns how it ended, in words, and its exit code."""
        try:
            code = await worker.run(self._command, self._bound)
        except OSError as error:  # out of processes, memory or descriptors
            return f"could not be started: {error}", 0
        return _describe(code), code

    def _give_up(self, worker: Worker, code: int) -> None:
        """The worker has said what is wrong. Starting it again would not help."""
        if len(self._keeping) > 1:
            _logger.error("worker %d could not start; stopping the others", worker.number)
        self._exit_code = code
        self._stopping.set()

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    async def _stop(self) -> None:
        if self._bound is not None:
            self._bound.close()  # else new connections would wait for a worker, instead of being refused
        for worker in self.workers:
            worker.stop()
        limit = _MARGIN + max(worker.report.stop_timeout if worker.report else 0.0 for worker in self.workers)
        await asyncio.wait(self._keeping, timeout=limit)
        for worker in self.workers:
            if worker.process is not None:
                _logger.warning("worker %d has not stopped within %g s; killing it", worker.number, limit)
                worker.kill()


def _describe(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def supervise(count: int, bound: socket.socket | None = None) -> int:
    """Run this command line in `count` processes. Returns the exit code."""
    if not IS_AVAILABLE:
        raise Refused(
            "--workers is not available on Windows; start the command several times, each with its own --port"
        )
    # `python -m` looks for modules in the current folder first, the script `romancy` does not. Workers do as we do.
    is_module = getattr(sys.modules["__main__"], "__spec__", None) is not None
    command = [sys.executable, *([] if is_module else ["-P"]), "-m", "romancy", *sys.argv[1:]]
    code = asyncio.run(_supervise(command, count, bound))
    if code == -signal.SIGINT:
        raise KeyboardInterrupt
    if code < 0:  # end as a process without a handler
        signal.signal(-code, signal.SIG_DFL)
        signal.raise_signal(-code)
    return code


async def _supervise(command: Sequence[str], count: int, bound: socket.socket | None) -> int:
    return await Supervisor(command, count, bound).run()
