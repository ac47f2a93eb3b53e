"""The demo's output: tables and lines, formatted on a terminal, plain when piped."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

from rich.box import ROUNDED
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from romancy import HistoryEntry, Instance, Wait
from romancy.cli.screen import STATUS_STYLES
from romancy.core.clock import SystemClock
from romancy.core.durations import lasting, span
from romancy.core.model import from_us

_WORKERS = ("bright_blue", "bright_magenta", "bright_cyan", "bright_yellow")


class _DemoConsole(Console):
    """Raises a broken pipe as an error. Rich exits, which would end the event loop under the workers' feet."""

    def on_broken_pipe(self) -> None:
        raise  # called while it is handled


def make_console() -> Console:
    """Return a console as wide as the terminal, or wide enough for the tables in a pipe."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # for terminals without box characters
    piped = not is_terminal(sys.stdout) and "COLUMNS" not in os.environ
    return _DemoConsole(highlight=False, soft_wrap=False, width=120 if piped else None)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a standard stream is a terminal. It is None if it was closed from the start."""
    return stream is not None and stream.isatty()


def heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def worker_line(console: Console, number: int, line: str) -> None:
    """Print a line that a worker printed."""
    style = _WORKERS[(number - 1) % len(_WORKERS)]
    console.print(Text.assemble((f"  worker {number} | ", style), line))


def waiting_table(instances: Sequence[Instance]) -> Table:
    """Return a table of what each instance waits for, since when and until when."""
    status, what = Column("status", no_wrap=True), Column("waits for", overflow="fold")
    table = Table("instance", status, what, "since", "until", box=ROUNDED)
    now = from_us(SystemClock().now())
    for instance in instances:
        waits: Sequence[Wait | None] = instance.waits or [None]
        for wait in waits:
            table.add_row(
                Text(instance.instance_id),
                Text(instance.status, style=STATUS_STYLES.get(instance.status, "")),
                Text("-" if wait is None else _what(wait)),
                Text("-" if wait is None else f"{span((now - wait.since).total_seconds())} ago"),
                Text("-" if wait is None else _until(wait, now)),
            )
    return table


def live_table(instances: Sequence[Instance], worker: str) -> Table:
    """Return the table that is redrawn while the user tries commands."""
    table = waiting_table([i for i in instances if i.finished_at is None])
    for instance in (i for i in instances if i.finished_at is not None):
        table.add_row(
            Text(instance.instance_id),
            Text(instance.status, style=STATUS_STYLES.get(instance.status, "")),
            Text(f"done: {plain(instance.output)}", overflow="ellipsis", no_wrap=True),
            "",
            Text(f"took {took(instance)}"),
        )
    table.caption = f"{worker}; press Ctrl-C to quit"
    return table


def results_table(instances: Sequence[Instance], judged: Mapping[str, bool]) -> Table:
    """Return a table of how each instance ended, how long it took, and whether that was expected."""
    table = Table("instance", "status", "result", "took", "as expected", box=ROUNDED)
    for instance in instances:
        good = judged[instance.instance_id]
        table.add_row(
            Text(instance.instance_id),
            Text(instance.status, style=STATUS_STYLES.get(instance.status, "")),
            Text(plain(instance.output if instance.error is None else instance.error)),
            Text(took(instance)),
            Text("yes" if good else "NO", style="green" if good else "bold red"),
        )
    return table


def history_table(entries: Sequence[HistoryEntry]) -> Table:
    """Return a table of the history of an instance."""
    table = Table("n", "after", "what happened", Column("operation", overflow="fold"), "data", box=ROUNDED)
    for entry in entries:
        data = next((x for x in (entry.error, entry.result, entry.event and entry.event["data"]) if x is not None), "")
        table.add_row(
            str(entry.n),
            f"{(entry.at - entries[0].at).total_seconds():.3f} s",
            entry.kind,
            Text(entry.operation),
            Text(plain(data if entry.n else entry.input)),
        )
    return table


def took(instance: Instance) -> str:
    return (
        "-" if instance.finished_at is None else lasting((instance.finished_at - instance.started_at).total_seconds())
    )


def plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _what(wait: Wait) -> str:
    if wait.kind == "timer":
        return "a timer"
    where = "".join(f", {name} = {value!r}" for name, value in wait.where.items())
    return f"{' or '.join(wait.types)}{where}" if wait.types else f"{wait.kind} {wait.wait_id}"


def _until(wait: Wait, now: datetime) -> str:
    return "forever" if wait.due_at is None else f"in {span((wait.due_at - now).total_seconds())}"
