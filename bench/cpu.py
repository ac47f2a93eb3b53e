"""The CPU time of processes, from /proc: of a server and everything that it has started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

_TICK = 1 / os.sysconf("SC_CLK_TCK")


def cpu_of_tree(root: int) -> float:
    """Return the CPU seconds of a process and its descendants, with those that have ended and were waited for."""
    stats = dict(_stats())
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[1]), []).append(pid)
    ticks, family = 0, [root]
    for pid in family:
        if pid in stats:
            ticks += sum(int(field) for field in stats[pid][11:15])
            family += children.get(pid, ())
    return ticks * _TICK


def postmaster(url: str) -> int | None:
    """Return the process of a PostgreSQL server on this machine. None if its URL names no folder."""
    folder = parse_qs(urlsplit(url).query).get("host", [""])[0]
    file = Path(folder) / "postmaster.pid"
    return int(file.read_text().split()[0]) if folder and file.exists() else None


def _stats() -> Iterator[tuple[int, list[str]]]:
    """Yield every process with the fields of its `stat` from the state on."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            yield int(process.name), (process / "stat").read_text().rpartition(")")[2].split()
