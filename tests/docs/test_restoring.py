"""A backup is made and restored as docs/deployment.md says, after a worker was killed."""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs.test_docs import DOCS

PAGE = (DOCS / "deployment.md").read_text(encoding="utf-8").partition("## Backups")[2].partition("\n## ")[0]
SHOP = """
import asyncio, os, signal
from romancy import App, WorkflowContext, wait_event, workflow

@workflow
async def order(ctx: WorkflowContext, text: str) -> None:
    await wait_event(ctx, "paid")

async def main() -> None:
    async with App("shop.db", workflows=[order]) as app:
        for n in range(50):
            await app.start_workflow(order, "old" * 200, instance_id=f"old-{n}")
        print("back it up", flush=True)
        input()
        for n in range(100):
            await app.start_workflow(order, "new" * 200, instance_id=f"new-{n}")
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def commands() -> dict[str, list[str]]:
    """Return the commands of the page: those that back a file up, each alone, and those that restore it."""
    made = re.findall(r"`((?:sqlite3|python)\b[^`]+)`", PAGE.replace("\n  ", " "))
    restored = re.findall(r"^    (\S.*)$", PAGE, re.MULTILINE)
    return {"back up": made, "restore": restored}


def shell(command: str, folder: Path, code: int = 0) -> str:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        command, shell=True, cwd=folder, env={"PATH": path}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def instances(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute("SELECT DISTINCT substr(id, 1, 3) FROM romancy_instances ORDER BY 1").fetchall()
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return [prefix for (prefix,) in found]


@pytest.mark.parametrize("tool", ["sqlite3", "python"])
def test_a_backup_of_a_running_file_is_restored_after_a_kill(tool: str, tmp_path: Path) -> None:
    [command] = [command for command in commands()["back up"] if command.split()[0] == tool]
    if shutil.which(tool) is None and tool == "sqlite3":
        pytest.skip("no sqlite3 on this machine")
    (tmp_path / "shop.py").write_text(SHOP)
    with subprocess.Popen(
        [sys.executable, "shop.py"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as shop:
        assert shop.stdout is not None
        assert shop.stdin is not None
        assert shop.stdout.readline() == "back it up\n"
        shell(command, tmp_path)
        shop.stdin.write("\n")
    assert shop.returncode == -signal.SIGKILL
    assert (tmp_path / "shop.db-wal").stat().st_size > 0, "it holds what the copy must not get"
    *restore, check = commands()["restore"]
    for command in restore:
        shell(command, tmp_path)
    said = shell(check, tmp_path, code=1)
    assert "the whole file was read, and nothing is damaged" in said
    assert [line.split()[1] for line in said.splitlines() if line.startswith("problem")] == ["workers"]
    assert instances(tmp_path / "shop.db") == ["old"]
