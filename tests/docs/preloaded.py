"""Runs scripts in processes that have imported Romancy already.

The documentation has hundreds of small programs, and most of the time of each would go into its imports. So one process
imports what they need, and forks for each of them. A program finds everything as if Python had been started for it:
its folder first on the path, its environment, its own output, an exit with all that belongs to it.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

PATIENCE = 60
USUAL = ("romancy", "romancy.client", "romancy.http", "romancy.sync", "romancy.testing", "romancy.viewer")


def run_script(script: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder and return what it printed."""
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place, "out"), Path(place, "err")
        paths = {"script": str(script), "folder": str(folder), "out": str(out), "err": str(err)}
        host = _host()
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(json.dumps(paths | {"env": dict(os.environ)}) + "\n")
        host.stdin.flush()
        code = int(host.stdout.readline())
        printed = [path.read_text(encoding="utf-8") for path in (out, err)]
    return subprocess.CompletedProcess([str(script)], code, *printed)


@cache
def _host() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__],
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def _serve() -> None:
    """Run scripts until the tests are over, which closes the standard input."""
    for name in USUAL:
        __import__(name)
    while line := sys.stdin.readline():
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(asked)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(asked: dict[str, Any]) -> NoReturn:
    signal.alarm(PATIENCE)  # ends it
    for number, (path, flags) in enumerate(
        [(os.devnull, os.O_RDONLY), (asked["out"], os.O_WRONLY | os.O_CREAT), (asked["err"], os.O_WRONLY | os.O_CREAT)]
    ):
        os.dup2(os.open(path, flags), number)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["folder"])
    sys.argv = [asked["script"]]
    sys.path[0] = str(Path(asked["script"]).parent)
    runpy.run_path(asked["script"], run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    _serve()
