"""`romancy viewer` and `romancy top`: real processes, as people start them."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from romancy import App
from tests.helpers import eventually
from tests.viewer.conftest import WORKFLOWS
from tests.viewer.test_catalog import until

ROMANCY = [sys.executable, "-m", "romancy"]
ENV = {name: value for name, value in os.environ.items() if not name.startswith("ROMANCY_")}


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.db")

    async def stock() -> None:
        async with App(path, workflows=WORKFLOWS) as app:
            await app.start_workflow("approval", "ada", instance_id="a")
            await app.start_workflow("reminder", instance_id="nap")
            await until(app, "nap", "waiting_for_timer")

    asyncio.run(stock())
    return path


@contextmanager
def viewing(*words: str, **env: str) -> Iterator[httpx2.Client]:
    command = [*ROMANCY, "viewer", "--port", "0", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENV | env)
    assert process.stderr is not None
    try:
        url = None
        while url is None:
            line = process.stderr.readline()
            assert line, "it did not start"
            url = re.search(r"(http://[^/\s]+)", line)
        with httpx2.Client(base_url=url[1], timeout=20) as client:
            yield client
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_the_viewer_alone_only_shows(database: str) -> None:
    with viewing("-d", database) as client:
        page = client.get("/viewer/")
        assert page.status_code == 200
        assert "nap" in page.text
        shown = client.get("/viewer/instances/nap").text
        words = "This viewer is read-only: &quot;romancy viewer --allow-actions&quot; lets visitors cancel instances"
        assert f' disabled title="{words}"' in shown
        assert client.post("/cancel/nap", json={}).status_code == 403
        assert client.get("/api/instances/nap").json()["status"] == "waiting_for_timer"


def test_a_token_is_not_blamed_for_the_missing_flag(database: str) -> None:
    with viewing("-d", database, ROMANCY_TOKENS="all-of-it") as client:
        client.headers["authorization"] = "Bearer all-of-it"
        shown = client.get("/viewer/instances/nap").text
        words = "This viewer is read-only: &quot;romancy viewer --allow-actions&quot; lets visitors"
        assert f' disabled title="{words} cancel instances"' in shown
        assert f' disabled title="{words} fork instances"' in shown
        assert f' disabled title="{words} send events"' in client.get("/viewer/send").text


def test_the_viewer_alone_acts_if_told_so(database: str) -> None:
    with viewing("-d", database, "--allow-actions", "-m", "tests.viewer.conftest") as client:
        assert client.post("/cancel/nap", json={}).status_code == 200
        assert "Sleeps." in client.get("/viewer/workflows").text
        assert "waits here" in client.get("/viewer/instances/a").text


def test_the_viewer_alone_asks_for_the_tokens_of_the_environment(database: str) -> None:
    with viewing("-d", database, ROMANCY_TOKENS="read:secret") as client:
        assert client.get("/viewer/").status_code == 401
        assert client.get("/viewer/", headers={"authorization": "Bearer secret"}).status_code == 200


def test_the_viewer_makes_no_database(tmp_path: Path) -> None:
    for name in ("viewer", "top"):
        done = subprocess.run([*ROMANCY, name, "-d", str(tmp_path / "no.db")], capture_output=True, text=True, env=ENV)
        assert done.returncode == 2
        assert "no database at" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_top_once_and_as_json(database: str) -> None:
    done = subprocess.run(
        [*ROMANCY, "top", "--once", "-d", database], capture_output=True, text=True, env=ENV, check=True
    )
    assert "1 waiting for event" in done.stdout
    assert re.search(r"approved +1 +a", done.stdout)
    assert re.search(r"in 29 min \d+ s +timer +sleep:1 +nap", done.stdout)
    said = subprocess.run(
        [*ROMANCY, "top", "--json", "-d", database], capture_output=True, text=True, env=ENV, check=True
    )
    found = json.loads(said.stdout)
    assert found["counts"]["waiting_for_timer"] == 1
    assert found["waited_for"] == [{"type": "approved", "count": 1}]
    assert [wait["instance_id"] for wait in found["falls_due"]] == ["nap"]


@contextmanager
def on_a_terminal(*words: str) -> Iterator[tuple[int, int]]:
    """A command on a terminal of its own: its process id, and our end of the terminal. It does not outlive the test."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [*ROMANCY, *words], ENV | {"TERM": "xterm", "COLUMNS": "100"})
    try:
        yield pid, terminal
    finally:
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        os.close(terminal)


@pytest.mark.parametrize("key", [b"q", b"xQ", b"\x03"])
def test_top_on_a_terminal_ends_with_q_or_ctrl_c(database: str, key: bytes) -> None:
    """At once, not when it would have looked next."""
    shown = b""
    with on_a_terminal("top", "-d", database, "--every", "3600") as (pid, terminal):

        def read() -> bool:
            nonlocal shown
            shown += os.read(terminal, 65536)
            return b"approved" in shown and b"nap" in shown

        eventually(read, 60)
        os.write(terminal, key)
        status = eventually(lambda: _ended(pid, terminal), 60)
        assert os.waitstatus_to_exitcode(status[0]) == 0


def _ended(pid: int, terminal: int) -> list[int]:
    with suppress(OSError):
        os.set_blocking(terminal, False)
        os.read(terminal, 65536)
    done, status = os.waitpid(pid, os.WNOHANG)
    return [status] if done else []
