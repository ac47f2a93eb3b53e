"""The demo runs through, returns by itself without a terminal, and in one goes on serving until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import httpx2
import pytest
from rich.console import Console

from romancy.cli.demo import browser, is_interactive
from romancy.cli.demo import story as stories
from romancy.cli.demo.workers import Worker, WorkerGone

DEMO = (sys.executable, "-m", "romancy.cli.demo")
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/viewer/")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def environ(folder: Path) -> dict[str, str]:
    unset = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    more = {"TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1", "COLUMNS": "120"}
    return env | more | {"TERM": "xterm", "ROMANCY_TOKENS": "not-asked-for-by-the-demo"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [(), pytest.param(("--once", "--no-browser"), marks=pytest.mark.play)], ids=" ".join
)
def test_without_a_terminal_it_runs_through_and_returns(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = subprocess.run(
        [*DEMO, *options],
        env=environ(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    out = done.stdout
    assert done.returncode == 0, out + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in out, "a pipe gets plain text"
    assert bool(ADDRESS.search(out)) == ("--no-browser" not in options)
    assert re.search(r"worker 1 is killed: SIGKILL to process \d+", out)
    assert out.count("packing ORD-1 (idempotency key payment-ORD-1/pack_order:1)") == 2
    for batch in (1, 2, 3):
        assert out.count(f"processed batch {batch},") == 1
    for instance in ("payment-ORD-1", "payment-ORD-2", "approval-REQ-1", "batch-monday"):
        assert re.search(rf"{instance}\W+completed.*\byes\b", out), out
    assert re.search(r"event_received\W+payment\.completed\.ORD-1:1", out), "the history is shown"
    assert "All 4 finished as expected" in out
    assert "Your turn" not in out
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@contextmanager
def in_a_terminal(
    folder: Path, *options: str, **env: str
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[str], str]]]:
    """Start the demo in a terminal. Also yields what reads until a pattern is shown ('': until the end)."""
    ours, theirs = os.openpty()
    shown = ""

    def read(pattern: str) -> str:
        nonlocal shown
        while not pattern or not re.search(pattern, shown):
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                part = b""
            if not part:
                assert not pattern, shown
                break
            shown = ESCAPES.sub("", shown + part.decode("utf-8", "replace"))
        return shown

    with subprocess.Popen(
        [*DEMO, *options], env=environ(folder) | env, stdin=theirs, stdout=theirs, stderr=theirs
    ) as p:
        os.close(theirs)
        try:
            yield p, read
        finally:
            if p.poll() is None:
                p.kill()
            os.close(ours)


@pytest.mark.play
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_says_how_to_quit_where_no_table_can_be_drawn(tmp_path: Path) -> None:
    with in_a_terminal(tmp_path, "--no-browser", TERM="dumb") as (process, read):
        told = read(r"kill -9 \d+")
        assert re.search(r"Your turn, until you press Ctrl-C\.", told), told
        process.send_signal(signal.SIGINT)
        rest = read("")
        assert process.wait(30) == 0, rest


def opening(folder: Path) -> Path:
    """Write a browser that notes which page it was to open."""
    folder.mkdir()
    (folder / "browser").write_text(f'#!/bin/sh\necho "$1" > {folder}/part && mv {folder}/part {folder}/opened\n')
    (folder / "browser").chmod(0o755)
    return folder / "opened"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_in_a_terminal_it_serves_until_told(tmp_path: Path) -> None:
    opened = opening(tmp_path / "desktop")
    work = tmp_path / "work"
    work.mkdir()
    with in_a_terminal(work, BROWSER=str(opened.with_name("browser"))) as (process, read):
        told = read(r"Ctrl-C to quit")
        killed = re.search(r"kill -9 (\d+)", told)
        assert killed, told
        assert re.search(r"romancy send approval\.decision '.*' -d \S+demo\.db", told), told
        address = ADDRESS.findall(told)[0]
        front, root = httpx2.get(address), address.removesuffix("viewer/")
        assert front.status_code == 200, "no token is asked for"
        assert "payment-ORD-3" in front.text
        decision = {"request_id": "REQ-2", "approver": "you", "approved": True}
        event = {"specversion": "1.0", "type": "approval.decision", "source": "test", "id": "1", "data": decision}
        sent = httpx2.post(root, json=event, headers={"content-type": "application/cloudevents+json"})
        assert sent.status_code == 202, sent.text
        read(r'done: \{"approved": true, "approver": "you"')
        os.kill(int(killed[1]), signal.SIGKILL)
        read("another takes over")
        with httpx2.stream("GET", f"{root}api/stream", timeout=60) as page:  # an open page does not hold it up
            parts = page.iter_raw()  # kept: the page is closed with it
            next(parts)
            process.send_signal(signal.SIGINT)
            told_at = time.monotonic()
            rest = read("")
            assert process.wait(30) == 0, rest
            assert time.monotonic() - told_at < 9, "requests that go on get ten seconds"
    assert "Traceback" not in rest
    assert opened.read_text() == f"{address}\n"
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(address)
    assert list(work.iterdir()) == [], "nothing is left behind"


@pytest.mark.slow
@pytest.mark.play
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_in_a_terminal_without_a_browser(tmp_path: Path) -> None:
    opened = opening(tmp_path / "desktop")
    work = tmp_path / "work"
    work.mkdir()
    with in_a_terminal(work, "--no-browser", BROWSER=str(opened.with_name("browser"))) as (process, read):
        told = read(r"Ctrl-C to quit")
        process.send_signal(signal.SIGTERM)
        rest = read("")
        assert process.wait(30) == 0, rest
    assert "Traceback" not in rest
    assert not ADDRESS.search(told)
    assert not opened.exists()
    assert list(work.iterdir()) == [], "nothing is left behind"


@pytest.mark.parametrize("missing", ["stdin", "stdout", None])
def test_both_ends_must_be_a_terminal(missing: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(ours, "w"), os.fdopen(theirs) as terminal, open(os.devnull) as nothing:
        for name in ("stdin", "stdout"):
            monkeypatch.setattr(sys, name, nothing if name == missing else terminal)
        assert is_interactive() == (missing is None)
        monkeypatch.undo()


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="there is always a desktop")
@pytest.mark.parametrize(
    ("env", "can_open"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "a b"}, False),
        ({"BROWSER": "w3", "SSH_CONNECTION": "a b"}, True),
    ],
)
def test_a_browser_is_opened_only_on_a_desktop(env: dict[str, str], can_open: bool) -> None:
    assert browser.can_open(env) == can_open


def begun(command: list[str], folder: Path, errors: int) -> subprocess.Popen[str]:
    """Run the demo in a pipe. `errors`: where its errors go."""
    return subprocess.Popen(
        command,
        env=environ(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        encoding="utf-8",
    )


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ends_cleanly_when_told_early(tmp_path: Path) -> None:
    with begun([*DEMO, "--once"], tmp_path, subprocess.STDOUT) as process:
        assert process.stdout is not None
        told = next(line for line in process.stdout if line.startswith("1. "))
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(30) == 130, rest
    assert "Worker 1" in told
    assert "Traceback" not in rest
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize(
    "last",
    [
        pytest.param("The database is", marks=pytest.mark.play),
        "1. Four workflows",
        pytest.param("5. Worker 2 starts", marks=pytest.mark.play),
    ],
)
def test_ends_cleanly_when_its_reader_is_gone(tmp_path: Path, last: str) -> None:
    """After the last two, the next lines are those of a worker."""
    with begun([sys.executable, "-m", "romancy", "demo", "--once"], tmp_path, subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        next(line for line in process.stdout if line.startswith(last))
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(60) == 1
    assert said == ""
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    commands = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in commands, "no worker is left"


def test_a_worker_is_heard_after_its_reader_is_gone(tmp_path: Path) -> None:
    """Whatever the timing: the line that can't be shown is one of a worker's."""
    told: list[str] = []

    def hear(_: Worker, line: str) -> None:
        told.append(line)
        raise BrokenPipeError

    async def listen() -> Worker:
        worker = await Worker.spawn(1, str(tmp_path / "none" / "demo.db"), hear)  # ends with an error of many lines
        with pytest.raises(WorkerGone):
            await worker.printed("never")
        await worker.stop()
        return worker

    worker = asyncio.run(listen())
    assert len(worker.lines) > 1, "its lines are still read, so that it can end"
    assert len(told) == 1


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize("options", ["--once >&-", pytest.param("<&- >&-", marks=pytest.mark.play)])
def test_without_an_output_it_runs_through(tmp_path: Path, options: str) -> None:
    done = subprocess.run(
        f"exec {sys.executable} -m romancy demo {options}",
        shell=True,
        env=environ(tmp_path),
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.parametrize("seconds", [50, 100])
def test_the_time_of_each_chapter_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    async def take() -> bool:
        loop, chapters = asyncio.get_running_loop(), 0
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + chapters * seconds)

        async def chapter(*_: object) -> bool:
            nonlocal chapters
            chapters += 1
            await asyncio.sleep(0.01)  # a turn of the loop, which notices the time
            return True

        for name in ("_start", "_wait_and_deliver", "_kill", "_take_over", "_finish"):
            monkeypatch.setattr(stories.Story, name, chapter)
        return await stories.Story(Console(quiet=True), str(tmp_path / "demo.db")).tell()

    assert 50 < stories.LIMIT < 100
    with pytest.raises(TimeoutError) if seconds > stories.LIMIT else nullcontext():
        assert asyncio.run(take())
