"""`romancy serve --workers N` and `romancy worker --workers N`: real processes on one port, killed and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from romancy import App, Database
from romancy.cli import supervisor
from tests import pg_server
from tests.helpers import eventually

ROMANCY = [sys.executable, "-m", "romancy"]
CE = {"content-type": "application/cloudevents+json"}
APP = """
import asyncio, os, pathlib
from romancy import *

@activity
async def work(ctx: ActivityContext, seconds: float) -> int:
    pathlib.Path(f"{ctx.instance_id}.begun").touch()
    await asyncio.sleep(seconds)
    return os.getpid()

@workflow
async def slow(ctx: WorkflowContext, seconds: float) -> int:
    return await work(ctx, seconds)

@workflow(on_event="order")
async def order(ctx: WorkflowContext, event: ReceivedEvent[dict[str, str]]) -> str:
    await work(ctx, 0.01)
    return event.id

app = App(workflows=[slow, order])
"""


class Group:
    """A supervisor and its workers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:  # until the last process that could write to it is gone
            self.lines.append(line)

    def log(self) -> str:
        return "".join(self.lines)

    def logged(self, pattern: str, times: int = 1) -> re.Match[str]:
        """Wait until the log has this many lines with the pattern, and return the last match."""

        def found() -> Sequence[re.Match[str]]:
            is_over = not self._reading.is_alive()
            matches = list(re.finditer(pattern, self.log()))
            assert len(matches) >= times or not is_over, self.log()
            return matches if len(matches) >= times else ()

        return eventually(found, 60, f"{pattern!r} in the log", every=0.02)[-1]

    @property
    def url(self) -> str:
        return self.logged(r"serves (http://\S+) .* in \d+ processes")[1]

    def pids(self) -> list[int]:
        """The workers that run now."""
        pid = self.process.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def end(self) -> str:
        """Wait until all of it is gone: only then the pipe of the log ends."""
        self._reading.join(60)
        assert not self._reading.is_alive(), self.log()
        return self.log()

    def stop(self, number: int = signal.SIGTERM) -> str:
        self.process.send_signal(number)
        assert self.process.wait(60) == 0, self.log()
        return self.end()


@contextmanager
def running(*words: str, **env: str) -> Iterator[Group]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ROMANCY_")} | {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [*ROMANCY, *words]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=kept | env, start_new_session=True
    ) as process:
        group = Group(process)
        try:
            yield group
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            group.end()


@pytest.fixture
def app(folder: Path) -> Path:
    (folder / "tiny.py").write_text(APP)
    return folder


def start(url: str, seconds: float, id: str) -> None:
    body = {"args": [seconds], "instance_id": id}
    assert httpx2.post(f"{url}/api/workflows/slow/start", json=body, timeout=30).status_code == 201


def outcome(id: str) -> Any:
    """The output of an instance that has ended."""

    async def read() -> Any:
        async with App("romancy.db", worker=False) as app:
            found = await app.get_instance(id)
            assert found.status == "completed", found
            return found.output

    return asyncio.run(read())


def is_gone(pid: int) -> bool:
    """Whether a process has ended. Nobody may have asked for its exit code yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


# --- quick ----------------------------------------------------------------------------------------------------------
def test_what_is_refused(refused, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in ("serve", "worker"):
        for count in ("0", "-1", "many"):
            assert "'--workers'" in refused(command, "shop", "--workers", count)
    assert "--reload runs one process" in refused("serve", "shop", "--workers", "2", "--reload")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = refused("serve", "shop", "--workers", "2", "--port", port, code=1)
        assert f"can't listen on 127.0.0.1:{port}: Address already in use" in told
    monkeypatch.setenv("ROMANCY_WORKERS", "0")
    assert "'--workers'" in refused("worker", "shop")
    monkeypatch.setenv("ROMANCY_WORKERS", "2")
    assert "unset ROMANCY_WORKERS" in refused("serve", "shop", "--reload")


def test_windows_is_refused(refused, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "IS_AVAILABLE", False)
    assert "not available on Windows" in refused("worker", "shop", "--workers", "2")


def test_a_module_that_can_not_be_imported_is_one_error(folder: Path) -> None:
    (folder / "broken.py").write_text("print(undefined)\n")
    with running("serve", "broken", "--workers", "3", "--port", "0") as group:
        assert group.process.wait(60) == 1
        text = group.end()
        assert text.startswith("romancy: can't import module 'broken': NameError: name 'undefined' is not defined")
        assert text.count("\n") == 1


def test_a_database_in_memory_can_not_be_shared(app: Path) -> None:
    with running("worker", "tiny:app", "-d", ":memory:", ROMANCY_WORKERS="2") as group:
        assert group.process.wait(60) == 2
        assert group.end().startswith("romancy: several workers can't share ':memory:'; give a file or URL with -d")


def test_requests_on_one_port_reach_all_workers_and_they_finish_their_work(app: Path) -> None:
    with running("serve", "tiny:app", "--workers", "2", "--port", "0") as group:
        url = group.url
        assert "(from this machine only) on romancy.db with order, slow in 2 processes\n" in group.log()
        workers, answered = set(group.pids()), set[int]()
        assert len(workers) == 2
        numbers = iter(range(1000))

        def have_all_answered() -> bool:
            id = str(next(numbers))
            start(url, 0, id)  # each with a connection of its own
            answer = httpx2.get(f"{url}/api/instances/{id}/result", params={"timeout": 20}, timeout=30)
            answered.add(answer.json()["output"])
            return answered == workers

        eventually(have_all_answered, 60)
        start(url, 1.5, "late")
        eventually(Path("late.begun").exists, 30)
        log = group.stop()
        assert "Traceback" not in log
        assert log.count("stopping: running work is finished or handed back") == 2
    assert outcome("late") in workers
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(url)


# --- plays ----------------------------------------------------------------------------------------------------------
@pytest.mark.play
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_workers_are_killed_and_no_event_is_lost(app: Path, schema: str, kind: str) -> None:
    place = Database(pg_server.url(), schema) if kind == "postgres" else Database("romancy.db")
    words = ("-d", place.url) if place.schema is None else ("-d", place.url, "--schema", place.schema)
    accepted: list[str] = []
    done = threading.Event()

    def load(url: str, name: int) -> None:
        n = 0
        while not done.is_set():
            event = {"specversion": "1.0", "id": f"{name}-{n}", "source": "test", "type": "order", "data": {}}
            with suppress(httpx2.TransportError):  # its worker was killed: send it again
                if httpx2.post(url, content=json.dumps(event), headers=CE, timeout=30).status_code == 202:
                    accepted.append(event["id"])
                    n += 1

    with running("serve", "tiny:app", "--workers", "3", "--port", "0", *words) as group:
        threads = [threading.Thread(target=load, args=(group.url, name)) for name in range(4)]
        for thread in threads:
            thread.start()
        for kills in range(1, 7):
            count = len(accepted)
            eventually(lambda count=count: len(accepted) > count + 20, 60)
            os.kill(group.pids()[0], signal.SIGKILL)
            group.logged("was killed by SIGKILL; starting it again", kills)
            eventually(lambda: len(group.pids()) == 3, 60)
        done.set()
        for thread in threads:
            thread.join(60)

        async def completed() -> int:
            async with App(place, worker=False) as app:
                return await app.count_instances(workflow="order", status="completed")

        eventually(lambda: asyncio.run(completed()) >= len(accepted), 60, f"{len(accepted)} orders", every=0.5)
        assert asyncio.run(completed()) == len(set(accepted))
        assert "Traceback" not in group.stop()


@pytest.mark.play
def test_when_the_supervisor_is_killed_its_workers_finish_and_end(app: Path) -> None:
    with running("serve", "tiny:app", "--workers", "2", "--port", "0") as group:
        url, workers = group.url, group.pids()
        start(url, 1.5, "late")
        eventually(Path("late.begun").exists, 30)
        group.process.kill()
        log = group.end()
        assert log.count("stopping: running work is finished or handed back") == 2
        assert "Traceback" not in log
        eventually(lambda: all(map(is_gone, workers)), 30)
        with socket.create_server(("127.0.0.1", int(url.rpartition(":")[2]))):
            pass
    assert outcome("late") in workers


@pytest.mark.play
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("who_first", ["supervisor", "workers"])
def test_a_signal_to_every_process_stops_gracefully(app: Path, number: signal.Signals, who_first: str) -> None:
    """As Ctrl-C in a terminal and systemd do it. Twice in a process it would end it at once."""
    with running("worker", "tiny:app", "--workers", "2") as group:
        group.logged("romancy works in 2 processes")
        subprocess.run([*ROMANCY, "start", "slow", "3", "--id", "late"], check=True)
        eventually(Path("late.begun").exists, 30)
        workers = group.pids()
        turns = [[group.process.pid], workers]
        for pids in turns if who_first == "supervisor" else reversed(turns):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):  # a worker without work has ended already
                    os.kill(pid, number)
            group.logged("stopping: running work is finished or handed back", 2)
        assert group.process.wait(60) == 0
        assert "Traceback" not in group.end()
    assert outcome("late") in workers


@pytest.mark.play
def test_a_second_signal_ends_all_at_once(app: Path) -> None:
    with running("serve", "tiny:app", "--workers", "2", "--port", "0", "--grace", "60") as group:
        url, workers = group.url, group.pids()
        start(url, 50, "late")
        eventually(Path("late.begun").exists, 30)
        group.process.send_signal(signal.SIGTERM)
        group.logged("stopping 2 workers")
        group.process.send_signal(signal.SIGTERM)
        assert group.process.wait(10) == -signal.SIGTERM
        group.end()
        eventually(lambda: all(map(is_gone, workers)), 30)


@pytest.mark.play
def test_one_that_can_no_longer_start_is_tried_again_while_the_others_work(app: Path) -> None:
    with running("serve", "tiny:app", "--workers", "2", "--port", "0") as group:
        url, (first, _) = group.url, group.pids()
        (app / "tiny.py").write_text("def broken(:\n")
        os.kill(first, signal.SIGKILL)
        group.logged("worker 1 was killed by SIGKILL; starting it again in 0.1 s")
        group.logged("worker 1 exited with code 1; starting it again in 0.2 s")
        assert httpx2.get(f"{url}/health/ready", timeout=30).status_code == 200
        (app / "tiny.py").write_text(APP)
        group.logged(r"romancy\[1\]: romancy works on romancy.db", 2)
        group.stop()
