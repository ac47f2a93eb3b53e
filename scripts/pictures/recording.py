"""Run a program in a terminal, and keep what it printed, and when."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import termios
from collections.abc import Sequence
from dataclasses import dataclass, replace

from romancy.core.clock import stopwatch

_HEADING = re.compile(r"(\x1b\[[0-9;]*m)*\d\. ")
_LONGEST, _TO_READ = 1.6, 1.4
"""Seconds: a longer pause is cut, and a heading does not follow sooner."""


@dataclass(frozen=True)
class Line:
    """A line, with its colors as escape sequences, and the seconds after which it was printed."""

    at: float
    text: str


def record(command: Sequence[str], columns: int, rows: int) -> list[Line]:
    """Run a program that only prints lines. Raises if it fails, or if it moves the cursor."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "TMPDIR")}
    env = kept | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    lines: list[Line] = []
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        began, rest = stopwatch(), b""
        while part := _read(ours):
            *whole, rest = (rest + part).split(b"\n")
            at = stopwatch() - began
            lines += [Line(at, line.decode().rstrip("\r")) for line in whole]
    os.close(ours)
    if process.returncode != 0:
        raise RuntimeError(f"{command} ended with {process.returncode}: {lines[-3:]}")
    if moved := [line for line in lines if re.search(r"\x1b\[[^m]*[A-Za-ln-z]", line.text)]:
        raise RuntimeError(f"only lines can be shown, but it moves the cursor: {moved[0].text!r}")
    return lines


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux: the other side is closed
        return b""


def paced(lines: Sequence[Line], first: float) -> list[Line]:
    """Return the lines with pauses that people can follow, the first line at `first`."""
    told: list[Line] = []
    at, before = first, lines[0].at
    for n, line in enumerate(lines):
        pause = min(line.at - before, _LONGEST)
        is_before_heading = not line.text and n + 1 < len(lines) and _HEADING.match(lines[n + 1].text)
        at += max(pause, _TO_READ) if is_before_heading else pause
        before = line.at
        told.append(replace(line, at=at))
    return told
