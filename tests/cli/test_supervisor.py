"""The supervisor of `--workers N`, with tiny scripts as workers: real processes and signals, no Romancy in them."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from romancy.cli import supervisor as module
from romancy.cli.lifeline import Lifeline, environment, take_lifeline
from romancy.cli.supervisor import BackOff, Supervisor

WORKER = """
import json, os, socket, sys, time
number, *fds = map(int, os.environ["ROMANCY_LIFELINE"].split())
lifeline = socket.socket(fileno=fds[0])
with open("starts", "a") as file:
    file.write(f"{number} {os.getpid()}\\n")
def is_ready(stop_timeout=20.0):
    lifeline.sendall(json.dumps({"message": "it works", "stop_timeout": stop_timeout}).encode())
    lifeline.shutdown(socket.SHUT_WR)
def finish():
    assert lifeline.recv(1) == b""
    with open("finished", "a") as file:
        file.write(f"{number}\\n")
"""
SOON = BackOff(first=0.01, longest=0.08)


def make(script: str, count: int, bound: socket.socket | None = None, back_off: BackOff = SOON) -> Supervisor:
    return Supervisor([sys.executable, "-I", "-S", "-c", WORKER + script], count, bound, back_off)


@asynccontextmanager
async def supervising(supervisor: Supervisor) -> AsyncIterator[asyncio.Task[int]]:
    running = asyncio.create_task(supervisor.run())
    try:
        yield running
    finally:
        if not running.done():
            supervisor.on_signal(signal.SIGTERM)
            supervisor.on_signal(signal.SIGTERM)
            await running


async def until_started(supervisor: Supervisor) -> list[int]:
    """The pids of all workers, once all have been ready."""
    for worker in supervisor.workers:
        await worker.started.wait()
    return [worker.process.pid for worker in supervisor.workers if worker.process is not None]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def starts() -> list[str]:
    return [line.split()[0] for line in Path("starts").read_text().splitlines()]


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO, "romancy")
    return caplog


def test_the_pauses_double_until_a_worker_has_run_for_long() -> None:
    back_off, pauses = BackOff(), [0.0]
    for _ in range(9):
        pauses.append(back_off.pause(pauses[-1], lived=1.0))
    assert pauses[1:] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert back_off.pause(10.0, lived=59.0) == 10.0
    assert back_off.pause(10.0, lived=60.0) == 0.1


async def test_all_are_started_and_finish_their_work_when_it_stops(log: pytest.LogCaptureFixture) -> None:
    supervisor = make("is_ready(); finish()", 3)
    async with supervising(supervisor) as running:
        pids = await until_started(supervisor)
        assert len(set(pids)) == 3
        await until(lambda: bool(log.messages))
        supervisor.on_signal(signal.SIGTERM)
        assert await running == 0
    assert starts()[0] == "1", "the first one starts alone"
    assert sorted(starts()) == sorted(Path("finished").read_text().split()) == ["1", "2", "3"]
    assert log.messages == ["it works in 3 processes", "stopping 3 workers"]


async def test_one_that_dies_is_started_again_and_the_others_stay(log: pytest.LogCaptureFixture) -> None:
    supervisor = make("is_ready(); finish()", 2)
    async with supervising(supervisor) as running:
        first, second = await until_started(supervisor)
        await until(lambda: bool(log.messages))
        supervisor.workers[1].started.clear()
        os.kill(second, signal.SIGKILL)
        again = await until_started(supervisor)
        assert again[0] == first
        assert again[1] != second
        supervisor.on_signal(signal.SIGTERM)
        assert await running == 0
    assert starts() == ["1", "2", "2"]
    assert log.messages[1] == "worker 2 was killed by SIGKILL; starting it again in 0.01 s"


async def test_one_that_keeps_dying_is_started_less_and_less_often(log: pytest.LogCaptureFixture) -> None:
    supervisor = make("is_ready(); sys.exit(3 if number == 2 else finish())", 2)
    async with supervising(supervisor) as running:
        await until(lambda: len(log.messages) > 6)
        supervisor.on_signal(signal.SIGTERM)
        assert await running == 0
    restarts = [text for text in log.messages if "starting it again" in text]
    assert all(text.startswith("worker 2 exited with code 3; ") for text in restarts)
    assert re.findall(r"in ([\d.]+) s", " ".join(restarts))[:5] == ["0.01", "0.02", "0.04", "0.08", "0.08"]
    assert starts().count("1") == 1


async def test_one_that_can_not_start_ends_all_with_its_exit_code(log: pytest.LogCaptureFixture) -> None:
    assert await make("sys.exit(2)", 3).run() == 2
    assert starts() == ["1"], "not tried again, and not by the others"
    assert log.messages == [], "the worker itself says what is wrong"


async def test_a_later_one_that_can_not_start_ends_all(log: pytest.LogCaptureFixture) -> None:
    assert await make("if number == 2: sys.exit(1)\nis_ready(); finish()", 3).run() == 1
    assert starts().count("2") == 1
    assert "2" not in Path("finished").read_text().split()
    assert log.messages == ["worker 2 could not start; stopping the others"]


async def test_one_that_is_killed_before_it_is_ready_is_started_again() -> None:
    script = "if starts() == 1: os.kill(os.getpid(), 11)\nis_ready(); finish()"
    supervisor = make("starts = lambda: len(open('starts').readlines())\n" + script, 1)
    async with supervising(supervisor) as running:
        await until_started(supervisor)
        supervisor.on_signal(signal.SIGTERM)
        assert await running == 0
    assert starts() == ["1", "1"]


async def test_one_that_does_not_stop_in_time_is_killed(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MARGIN", 0.1)
    supervisor = make("is_ready(0.2 if number == 1 else 0.1); finish(); time.sleep(60 if number == 1 else 0)", 2)
    async with supervising(supervisor) as running:
        await until_started(supervisor)
        supervisor.on_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running, 20) == 0
    assert log.messages[-1] == "worker 1 has not stopped within 0.3 s; killing it"


async def test_the_second_signal_kills_at_once() -> None:
    supervisor = make("is_ready(60); finish(); time.sleep(60)", 2)
    async with supervising(supervisor) as running:
        await until_started(supervisor)
        supervisor.on_signal(signal.SIGTERM)
        supervisor.on_signal(signal.SIGINT)
        assert await asyncio.wait_for(running, 20) == -signal.SIGINT


async def test_one_that_is_still_starting_is_not_waited_for() -> None:
    supervisor = make("time.sleep(60)", 2)
    async with supervising(supervisor) as running:
        await until(Path("starts").exists)
        supervisor.on_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running, 4) == 0


async def test_it_can_stop_while_a_process_is_being_started() -> None:
    supervisor = make("time.sleep(60)", 2)
    async with supervising(supervisor) as running:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        supervisor.on_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running, 4) == 0


async def test_a_death_is_noticed_while_a_child_of_it_keeps_the_lifeline_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAST_WORDS", 0.1)
    script = """
if len(open("starts").readlines()) == 1:
    if not os.fork():
        with open("orphan", "w") as file:
            file.write(str(os.getpid()))
        time.sleep(60)
    while not os.path.exists("orphan") or not open("orphan").read():
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
is_ready(); finish()
"""
    supervisor = make(script, 1)
    async with supervising(supervisor) as running:
        await until_started(supervisor)
        os.kill(int(Path("orphan").read_text()), signal.SIGKILL)
        supervisor.on_signal(signal.SIGTERM)
        assert await running == 0
    assert starts() == ["1", "1"]


def test_a_worker_can_be_ready_after_its_supervisor_was_killed() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        lifeline = Lifeline(1, theirs, None)
        lifeline.report("it works", 1.0)
        assert os.read(lifeline.fileno(), 1) == b"", "it is told to stop all the same"


def test_processes_of_the_users_code_get_no_lifeline(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, socket.socket() as bound:
        for each in (theirs, bound):
            each.set_inheritable(True)
        monkeypatch.setenv("ROMANCY_LIFELINE", environment(2, theirs, bound)["ROMANCY_LIFELINE"])
        lifeline = take_lifeline()
        assert lifeline is not None
        assert (lifeline.number, lifeline.fileno()) == (2, theirs.detach())
        assert lifeline.bound is not None
        assert lifeline.bound.detach() == bound.fileno()
        assert not os.get_inheritable(lifeline.fileno())
        assert not os.get_inheritable(bound.fileno())
        assert "ROMANCY_LIFELINE" not in os.environ
        assert take_lifeline() is None
        os.close(lifeline.fileno())
        lifeline._connection.detach()


async def test_the_socket_is_passed_on_and_closed_when_it_stops() -> None:
    script = """
shared = socket.socket(fileno=fds[1])
shared.listen()
is_ready()
connection, _ = shared.accept()
connection.sendall(b"%d" % number)
finish()
"""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        address = bound.getsockname()
        supervisor = make(script, 2, bound)
        async with supervising(supervisor) as running:
            await until_started(supervisor)
            answers: set[bytes] = set()
            for _ in range(2):
                reader, writer = await asyncio.open_connection(*address)
                answers.add(await reader.readexactly(1))
                writer.close()
            assert answers == {b"1", b"2"}
            supervisor.on_signal(signal.SIGTERM)
            assert await running == 0
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
