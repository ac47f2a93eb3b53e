"""`--reload`: run the command in a child process, and restart it when a source file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from romancy.cli.screen import note

_POLL_INTERVAL = 0.5
"""Seconds between checks of the files."""
_STOP_TIMEOUT = 30.0
"""Seconds that a child has to stop."""
_SKIPPED = ("venv", "node_modules", "__pycache__", "site-packages")


def reload_on_change() -> int:
    """Run this command line without --reload until a signal arrives."""
    stopped: list[int] = []

    def stop(number: int, frame: object) -> None:
        stopped.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    words = [word for word in sys.argv[1:] if word != "--reload"]
    seen = _files()
    child = _start(words)
    try:
        while not stopped:
            time.sleep(_POLL_INTERVAL)
            now = _files()
            if now == seen:
                continue
            changed = sorted({path for path, _ in now ^ seen})
            note(f"romancy: {changed[0]} changed; restarting")
            seen = now
            _stop(child)
            child = _start(words)
    finally:
        _stop(child)
    return 0


def _start(words: list[str]) -> subprocess.Popen[bytes]:
    # In its own session, so that Ctrl-C at the terminal does not reach it in addition to our SIGTERM.
    return subprocess.Popen([sys.executable, "-m", "romancy", *words], start_new_session=True)


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _files() -> set[tuple[str, int]]:
    """Return the .py files below the current folder, each with its modification time."""
    found: set[tuple[str, int]] = set()
    for folder, folders, names in os.walk("."):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        for name in names:
            if name.endswith(".py"):
                path = Path(folder, name)
                try:
                    found.add((str(path), path.stat().st_mtime_ns))
                except OSError:  # removed in the meantime; the next check sees it
                    continue
    return found
