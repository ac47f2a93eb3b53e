"""`romancy serve`: real processes on real ports, stopped by signals, also under load."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.helpers import eventually

ROMANCY = [sys.executable, "-m", "romancy"]
CE = {"content-type": "application/cloudevents+json"}
APP = """
import asyncio
from romancy import *

@activity
async def work(ctx: ActivityContext, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"

@workflow
async def slow(ctx: WorkflowContext, seconds: float) -> str:
    return await work(ctx, seconds)

app = App("own.db", workflows=[slow])
guarded = App("own.db", workflows=[slow], tokens=["secret"])
idle = App("own.db", workflows=[slow], worker=False)
"""


class Served:
    def __init__(self, process: subprocess.Popen[str], lines: list[str]) -> None:
        self.process, self.lines = process, lines
        self.url = re.search(r"serves (http://\S+)", lines[-1])[1]  # type: ignore[index]
        self.client = httpx2.Client(base_url=self.url, timeout=30)

    def has_begun(self) -> None:
        """Returns when the server has read what was sent on other connections: it reads them all before it answers."""
        for _ in range(10):  # what came in while it already worked on this one is read before the next
            assert self.client.get("/health/live").status_code == 200

    def stop(self, number: int = signal.SIGTERM) -> str:
        self.process.send_signal(number)
        assert self.process.wait(30) == 0
        assert self.process.stderr is not None
        return self.process.stderr.read()


@contextmanager
def serving(*words: str, **env: str) -> Iterator[Served]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ROMANCY_")}
    command = [*ROMANCY, "serve", *words, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=kept | env) as process:
        try:
            assert process.stderr is not None
            lines: list[str] = []
            while not lines or " serves " not in lines[-1]:
                lines.append(process.stderr.readline())
                assert lines[-1], "".join(lines)
            served = Served(process, lines)
            try:
                yield served
            finally:
                served.client.close()
        finally:
            if process.poll() is None:
                process.kill()


def send(client: httpx2.Client, id: str, **options: Any) -> httpx2.Response:
    event = {"specversion": "1.0", "id": id, "source": "test", "type": "t"}
    return client.post("/", content=json.dumps(event), headers=CE, **options)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(folder: Path, number: signal.Signals) -> None:
    with serving("shop") as served:
        last = served.lines[-1]
        assert re.search(
            r"serves http://127\.0\.0\.1:\d+ \(from this machine only\) on romancy\.db with delivers,", last
        )
        assert send(served.client, "1").status_code == 202
        started = served.client.post("/api/workflows/hello/start", json={"args": ["Ada"], "instance_id": "h"})
        assert started.status_code == 201
        result = served.client.get("/api/instances/h/result", params={"timeout": 20}).json()
        assert result["output"] == {"greeting": "hello Ada "}
        log = served.stop(number)
        assert "Traceback" not in log
        assert " INFO romancy: stopping: " in log
    assert (folder / "romancy.db").exists()


def test_an_app_gives_its_settings_and_database(folder: Path) -> None:
    (folder / "tiny.py").write_text(APP)
    with serving("tiny.py:app") as served:
        assert " on own.db with slow" in served.lines[-1]
    with serving("tiny.py:idle") as served:
        assert served.lines[-1].endswith(" on own.db without a worker\n")
    with serving("tiny:guarded", "-d", "given.db") as served:
        assert " (with a token) on given.db with slow" in served.lines[-1]
        assert served.client.get("/api/instances").status_code == 401
        bearer = {"authorization": "Bearer secret"}
        assert served.client.get("/api/instances", headers=bearer).status_code == 200


def test_tokens_of_the_environment_let_it_listen_everywhere(folder: Path) -> None:
    with serving("shop", "--host", "0.0.0.0", ROMANCY_TOKENS="events:one two") as served:
        url = served.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx2.get(f"{url}/api/instances").status_code == 401
        assert httpx2.get(f"{url}/api/instances", headers={"authorization": "Bearer one"}).status_code == 403
        assert httpx2.get(f"{url}/api/instances", headers={"authorization": "Bearer two"}).status_code == 200


def test_without_tokens_it_listens_on_this_machine_only(refused, folder: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("ROMANCY_TOKENS", raising=False)
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.test"):
        assert "--insecure" in refused("serve", "shop", "--host", host)
    with serving("shop", "--host", "0.0.0.0", "--insecure") as served:
        assert "(without tokens)" in served.lines[-1]


def test_what_can_not_be_served(refused, folder: Path) -> None:
    (folder / "empty.py").write_text("")
    (folder / "two.py").write_text("from romancy import App\na, b = App(), App()\n")
    (folder / "badly.py").write_text("from romancy import App\napp = App(tokens=['events:'])\n")
    (folder / "tiny.py").write_text(APP.replace("own.db", "missing/own.db"))
    assert "can't find module 'unheard'" in refused("serve", "unheard")
    assert "'shop' has no App named 'nope'" in refused("serve", "shop:nope")
    fast = "class FastAPI:\n    def __call__(self): ...\napi = FastAPI()\n"
    (folder / "fast.py").write_text(f"from romancy import App\n{fast}app = App()\n")
    said = refused("serve", "fast:api")
    assert "it is a FastAPI, which `uvicorn fast:api` serves; available: fast:app" in said
    assert "no App and no workflow in 'empty'" in refused("serve", "empty", code=1)
    assert "several Apps" in refused("serve", "two")
    assert "a token is a secret" in refused("serve", "badly", code=1)
    assert "missing" in refused("serve", "tiny:app", "--port", "0")
    assert "--port" in refused("serve", "shop", "--port", "70000")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"can't listen on 127.0.0.1:{port}: Address already in use" in refused(
            "serve", "shop", "--port", port, code=1
        )
    assert not (folder / "romancy.db").exists()


def test_stopped_under_load_every_event_that_was_acknowledged_is_stored(folder: Path) -> None:
    with serving("shop") as served:
        accepted: list[str] = []
        begun = threading.Event()

        def load(name: int) -> None:
            with httpx2.Client(base_url=served.url, timeout=20) as client:
                for n in range(100_000):
                    try:
                        answer = send(client, f"{name}-{n}")
                    except httpx2.TransportError:  # the server has closed the connection or is gone
                        return
                    if answer.status_code != 202:
                        assert answer.status_code == 503
                        assert answer.headers["retry-after"]
                        return
                    accepted.append(f"{name}-{n}")
                    if len(accepted) > 100:
                        begun.set()

        threads = [threading.Thread(target=load, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        assert begun.wait(30)
        begin = time.monotonic()
        log = served.stop()
        assert time.monotonic() - begin < 10
        for thread in threads:
            thread.join(30)
        assert "Traceback" not in log
    database = sqlite3.connect(folder / "romancy.db")
    stored = {id for (id,) in database.execute("SELECT id FROM romancy_events")}
    database.close()
    assert set(accepted) <= stored


def test_requests_under_way_are_finished_and_waiting_for_results_ends(folder: Path) -> None:
    (folder / "tiny.py").write_text(APP)
    with serving("tiny:app", "--grace", "5") as served:
        served.client.post("/api/workflows/slow/start", json={"args": [1.0], "instance_id": "s"})
        host, port = served.url.removeprefix("http://").split(":")
        waiting = http.client.HTTPConnection(host, int(port), timeout=60)
        waiting.request("GET", "/api/instances/s/result?timeout=50")
        with closing(waiting), socket.create_connection((host, int(port)), timeout=60) as slow:
            body = b'{"specversion":"1.0","id":"late","source":"s","type":"t"}'
            slow.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/cloudevents+json\r\n")
            slow.sendall(b"content-length: %d\r\n\r\n" % len(body))
            served.has_begun()
            served.process.send_signal(signal.SIGTERM)
            found = json.load(waiting.getresponse())
            slow.sendall(body)
            answer = slow.recv(65536)
        assert answer.startswith(b"HTTP/1.1 202 ")
        assert served.process.wait(30) == 0
        assert found["status"] in ("running", "completed")
    database = sqlite3.connect(folder / "own.db")
    assert database.execute("SELECT status FROM romancy_instances").fetchall() == [(10,)], "the activity was waited for"
    database.close()


def test_a_client_that_does_not_end_is_not_waited_for_longer_than_the_grace(folder: Path) -> None:
    with serving("shop", "--grace", "1") as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as slow:
            slow.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n")
            served.has_begun()
            begin = time.monotonic()
            log = served.stop()
            assert time.monotonic() - begin < 20
            assert slow.recv(65536).startswith(b"HTTP/1.1 503 ")
        assert "Traceback" not in log


def test_a_second_signal_is_not_waited_for(folder: Path) -> None:
    (folder / "tiny.py").write_text(APP)
    with serving("tiny:app", "--grace", "60") as served:
        served.client.post("/api/workflows/slow/start", json={"args": [50.0], "instance_id": "s"})
        eventually(lambda: served.client.get("/api/instances/s").json()["waits"], 20)
        served.process.send_signal(signal.SIGTERM)
        assert served.process.stderr is not None
        assert "stopping" in served.process.stderr.readline()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(10) == -signal.SIGTERM


def test_reload(folder: Path) -> None:
    (folder / "tiny.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    env = {k: v for k, v in os.environ.items() if not k.startswith("ROMANCY_")} | {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [*ROMANCY, "serve", "tiny:app", "--reload", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:

            def workflows() -> list[str]:
                try:
                    answer = httpx2.get(f"http://127.0.0.1:{port}/api/workflows")
                except httpx2.TransportError:
                    return []
                return [item["name"] for item in answer.json().get("items", [])]

            eventually(lambda: workflows() == ["slow"], 30, every=0.05)
            (folder / "tiny.py").write_text("def broken(:\n")
            eventually(lambda: workflows() == [], 30, every=0.05)
            (folder / "tiny.py").write_text(
                APP.replace("async def slow(", "async def slower(").replace("[slow]", "[slower]")
            )
            eventually(lambda: workflows() == ["slower"], 30, every=0.05)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    with socket.create_server(("127.0.0.1", port)):
        pass  # nobody is left on it


def test_the_viewer_alone_says_where_it_is_and_that_it_shows(folder: Path, database: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ROMANCY_")}
    command = [*ROMANCY, "viewer", "--port", "0", "-m", "shop"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=kept) as process:
        try:
            assert process.stderr is not None
            opened, shows = process.stderr.readline(), process.stderr.readline()
            assert opened.endswith("romancy is open on romancy.db without a worker\n")
            pattern = r"romancy serves the viewer of romancy\.db at (http://\S+/viewer/) \(from this machine only\)"
            found = re.search(pattern, shows)
            assert found, shows
            assert httpx2.get(found[1]).status_code == 200
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.usefixtures("database")
def test_what_anybody_could_do_is_said_as_it_is(refused) -> None:
    assert "could see the workflows" in refused("viewer", "--host", "0.0.0.0")
    assert "could control the workflows" in refused("viewer", "--host", "0.0.0.0", "--allow-actions")
    assert "could control the workflows" in refused("serve", "shop", "--host", "0.0.0.0")
