"""The five-minute start, done as the page says: one file, a server, kill -9, an event meanwhile, a server again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "start.md").read_text(encoding="utf-8")
ROMANCY = [sys.executable, "-m", "romancy"]


def command(start: str) -> list[str]:
    """Return a command of the page, without `romancy` and `&`."""
    found = re.search(rf"^    romancy ({start}.*?)( &)?$", PAGE, re.MULTILINE)
    assert found, f"the page has no command {start!r}"
    return [part.strip("'") for part in re.findall(r"'[^']*'|\S+", found[1])]


def run(folder: Path, *words: str) -> str:
    done = subprocess.run([*ROMANCY, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def serve(folder: Path) -> subprocess.Popen[str]:
    words = [*ROMANCY, *command("serve"), "--port", "0"]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def first_line(server: subprocess.Popen[str]) -> str:
    assert server.stdout
    return server.stdout.readline()


def ask_until(folder: Path, status: str) -> None:
    """An activity prints before its result is stored; killed in between, it would run again."""
    while not re.search(rf"^status +{status}$", run(folder, *command("why")), re.MULTILINE):
        pass


@pytest.mark.play
def test_the_five_minute_start(tmp_path: Path) -> None:
    code = re.search(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert code
    (tmp_path / "shop.py").write_text(code[1], encoding="utf-8")

    with serve(tmp_path) as server:
        try:
            run(tmp_path, *command("start"))
            assert first_line(server) == "reserving the goods of ORD-1\n"
            ask_until(tmp_path, "waiting_for_event")
        finally:
            os.kill(server.pid, signal.SIGKILL)

    run(tmp_path, *command("send"))

    with serve(tmp_path) as server:
        try:
            assert first_line(server) == "shipping ORD-1 from shelf 7\n"
            ask_until(tmp_path, "completed")
        finally:
            server.terminate()
