"""The demo runs through, piped and without a terminal, and goes on serving when asked to."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = (sys.executable, "-m", "romancy.cli.demo")


def environ(folder: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1", "COLUMNS": "120"}


@pytest.mark.slow
def test_once_runs_through(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--once"],
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
    assert re.search(r"worker 1 is killed: SIGKILL to process \d+", out)
    assert out.count("packing ORD-1 (idempotency key payment-ORD-1/pack_order:1)") == 2
    for batch in (1, 2, 3):
        assert out.count(f"processed batch {batch},") == 1
    for instance in ("payment-ORD-1", "payment-ORD-2", "approval-REQ-1", "batch-monday"):
        assert re.search(rf"{instance}\W+completed.*\byes\b", out), out
    assert re.search(r"event_received\W+payment\.completed\.ORD-1:1", out), "the history is shown"
    assert "All 4 finished as expected" in out
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize("ending", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.play)])
def test_serves_until_told(tmp_path: Path, ending: signal.Signals) -> None:
    with subprocess.Popen(
        DEMO,
        env=environ(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if re.search(r"payment-ORD-3: waiting_for_event", line):
                break
        told = "".join(lines)
        killed = re.search(r"kill -9 (\d+)", told)
        assert killed, told
        assert re.search(r"romancy send approval\.decision '.*' -d \S+demo\.db", told), told
        os.kill(int(killed[1]), signal.SIGKILL)
        for line in process.stdout:
            lines.append(line)
            if "another takes over" in line:
                break
        process.send_signal(ending)
        rest = process.stdout.read()
        assert process.wait(30) == 0, "".join(lines) + rest
    assert "Traceback" not in rest
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ends_cleanly_when_told_early(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*DEMO, "--once"],
        env=environ(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        told = next(line for line in process.stdout if line.startswith("1. "))
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(30) == 130, rest
    assert "Worker 1" in told
    assert "Traceback" not in rest
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
