"""A child that outlives its worker does not hide the worker's death."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from romancy.storage.sqlite import SQLiteStorage
from romancy.storage.sqlite.connection import lock_folder
from tests.crash.processes import ROOT

pytestmark = pytest.mark.play


def run(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.crash.forking", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("how", ["os.fork", "multiprocessing", "subprocess"])
async def test_the_successor_takes_over_at_once_although_the_child_lives(tmp_path: Path, how: str) -> None:
    database = str(tmp_path / "romancy.db")
    parent = run(database, how)
    assert parent.stdout is not None
    child = int(await asyncio.to_thread(parent.stdout.readline))
    storage = SQLiteStorage(database)
    try:
        await storage.open()
        assert await storage.take_over("heir") == [], "the parent lives"
        parent.kill()
        parent.wait()
        os.kill(child, 0)
        assert await storage.take_over("heir") == ["parent"]
        assert not lock_folder(database).exists(), "nothing is left behind"
    finally:
        await storage.close()
        os.kill(child, signal.SIGKILL)
        parent.kill()
        parent.wait()
        parent.stdout.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks into /proc")
def test_a_child_forked_in_the_middle_of_a_look_holds_nothing(tmp_path: Path) -> None:
    process = run(str(tmp_path.resolve()), "probe")
    assert process.communicate(timeout=60)[0] == "0\n"
