"""How a soak is going: a table on a terminal, a line now and then elsewhere, and counts in a file."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

NOT_FAULTS = ("rounds", "programs", "events", "entries", "violations", "known")
_LINE_EVERY = 30.0


@dataclass
class Part:
    """What one part of the soak has done so far."""

    name: str
    counts: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0

    @property
    def faults(self) -> Counter[str]:
        return Counter({kind: n for kind, n in self.counts.items() if kind not in NOT_FAULTS})


class Display:
    """Shows parts while they run."""

    def __init__(self, parts: list[Part], log: Path | None) -> None:
        self.console = Console()
        self._parts, self._log = parts, log
        self._live = Live(console=self.console, refresh_per_second=2) if self.console.is_terminal else None
        self._said = time.monotonic()

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._tell()
        if self._live is not None:
            self._live.stop()

    def update(self) -> None:
        if self._live is not None:
            self._live.update(self._picture())
        if time.monotonic() - self._said > _LINE_EVERY:
            self._tell()

    def print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def write(self, line: dict[str, Any]) -> None:
        """Keep something in the file."""
        if self._log is not None:
            with self._log.open("a") as file:
                file.write(json.dumps({"at": round(time.time(), 1), **line}) + "\n")

    def _tell(self) -> None:
        self._said = time.monotonic()
        for part in self._parts:
            if part.seconds:
                self.write({"part": part.name, "seconds": round(part.seconds, 1), **part.counts})
                if self._live is None:
                    print(_line(part), file=sys.stderr, flush=True)
        if self._live is not None:
            self._live.update(self._picture())

    def _picture(self) -> Group:
        table = Table("part", *(Text(name, justify="right") for name in _COLUMNS), box=None, pad_edge=False)
        for part in self._parts:
            table.add_row(part.name, *(Text(value, justify="right") for value in _values(part)))
        kinds = [Text(f"{p.name}: " + _kinds(p), style="dim") for p in self._parts if p.faults]
        return Group(table, *kinds)


_COLUMNS = ("programs", "events", "entries", "faults", "faults/s", "violations", "known", "seconds")


def _values(part: Part) -> list[str]:
    faults = part.faults.total()
    counted = [part.counts[name] for name in ("programs", "events", "entries")]
    rest = [faults, round(faults / part.seconds) if part.seconds else 0]
    more = [part.counts["violations"], part.counts["known"], round(part.seconds)]
    return [f"{value:,}" for value in (*counted, *rest, *more)]


def _line(part: Part) -> str:
    shown = ", ".join(f"{name} {value}" for name, value in zip(_COLUMNS, _values(part), strict=True))
    return f"{part.name}: {shown} ({_kinds(part)})"


def _kinds(part: Part) -> str:
    return ", ".join(f"{kind} {n:,}" for kind, n in part.faults.most_common())
