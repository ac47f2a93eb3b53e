"""`viewer` and `top`: what a database holds, live."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import click
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from romancy.app import App
from romancy.cli.database import app_to_look, check_exists, database_options, on, schema_of
from romancy.cli.logs import log_to_stderr
from romancy.cli.modules import load, module_option, register
from romancy.cli.screen import json_option, print_json
from romancy.cli.server import check_guarded, open_to_all, run_server
from romancy.cli.words import RESERVED, clean, one_line, relative, wanted
from romancy.core.model import Status
from romancy.options import SCOPES
from romancy.records import Wait
from romancy.signals import on_first_signal
from romancy.viewer.catalog import CAP, Catalog
from romancy.viewer.catalog import Group as WaitGroup
from romancy.viewer.words import STATUS_WORDS, count

try:
    import termios
    import tty
except ImportError:  # not on Windows: Ctrl-C ends it there
    termios = tty = None

_WINDOW = 10.0
"""Seconds over which what happens is counted."""
_TYPES, _TIMERS, _AHEAD = 12, 12, 7 * 86_400
_LEAST = 16
"""Characters left of a column that is cut."""
_COLOURS = {
    "running": "bold blue",
    "waiting_for_event": "cyan",
    "waiting_for_timer": "magenta",
    "completed": "green",
    "failed": "bold red",
    "blocked": "bold red",
}


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8002, show_default=True, help="0: any that is free.")
@click.option("--allow-actions", is_flag=True, help="Let visitors start, send, cancel and resume too.")
@click.option("--insecure", is_flag=True, help="Listen beyond this machine although there are no tokens.")
@module_option
@database_options
def viewer(
    host: str,
    port: int,
    allow_actions: bool,
    insecure: bool,
    modules: tuple[str, ...],
    database: str,
    schema: str | None,
) -> None:
    """Serve the viewer alone: a web page on a database, without a worker.

    It is at /viewer/. It only shows, unless --allow-actions is given. With --module it knows the workflows' source and
    signatures. Who may look is said by $ROMANCY_TOKENS; without tokens it listens on this machine only.
    """
    check_exists(database)
    log_to_stderr(logging.INFO)
    app = app_to_look(database, schema_of(database, schema), serves=True)
    for name in modules:
        register(app, load(name))
    check_guarded(app, host, insecure, shows=not allow_actions)
    if insecure:
        open_to_all(app)
    run_server(app, host, port, SCOPES if allow_actions else ("read",), "shows {place} at {url}/viewer/ ({who})")


# --- top ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Glance:
    """All that is shown at a time."""

    now: datetime
    counts: Mapping[Status, int]
    rates: dict[str, float]
    groups: Sequence[WaitGroup]
    due: Sequence[Wait]


@click.command()
@click.option("--once", is_flag=True, help="Print it once, and end.")
@click.option(
    "--every", type=click.FloatRange(0.2, 3600), default=1.0, show_default=True, help="Seconds between looks."
)
@database_options
@json_option
def top(once: bool, every: float, database: str, schema: str | None, as_json: bool) -> None:
    """Watch what runs, what is waited for and what falls due next.

    q or Ctrl-C ends it. Where there is no terminal it is printed once.
    """
    console = Console(highlight=False)
    check_exists(database)
    app = app_to_look(database, schema_of(database, schema))
    if as_json:
        print_json(_as_json(on(app, _glance)))
    elif once or not console.is_terminal:
        console.print(_drawn(on(app, _glance), console.width))
    else:
        on(app, lambda app: _watch(app, console, every))


async def _glance(app: App) -> Glance:
    catalog = Catalog(app)
    rates = await catalog.rates(_WINDOW)
    return Glance(
        catalog.now,
        await catalog.counts(),
        {name: getattr(rates, name) / _WINDOW for name in ("started", "finished", "accepted")},
        await catalog.groups("", _TYPES, 1),
        await catalog.coming(_AHEAD, _TIMERS),
    )


async def _watch(app: App, console: Console, every: float) -> None:
    """Until a key or a signal ends it, whatever it is doing then."""
    stopped = asyncio.Event()
    on_first_signal(stopped.set)
    with _keys(stopped.set), Live(console=console, screen=True, auto_refresh=False) as screen:
        watching = asyncio.ensure_future(_repeat(app, console, screen, every))
        stopping = asyncio.ensure_future(stopped.wait())
        await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (watching, stopping):
            task.cancel()
        await asyncio.wait({watching, stopping})
    if not watching.cancelled():
        watching.result()


async def _repeat(app: App, console: Console, screen: Live, every: float) -> None:
    while True:
        screen.update(_drawn(await _glance(app), console.width), refresh=True)
        await asyncio.sleep(every)


@contextmanager
def _keys(stop: Callable[[], None]) -> Generator[None]:
    """Keys arrive as they are pressed, and are not shown. No thread waits for them: it would outlive the command."""
    if termios is None or tty is None or not sys.stdin.isatty():
        yield
        return
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def pressed() -> None:
        keys = os.read(terminal, 1024)
        if not keys or set(keys.lower()) & set(b"q\x03\x04"):  # nothing at all: the terminal is gone
            stop()

    try:
        tty.setcbreak(terminal)
        mode = termios.tcgetattr(terminal)
        mode[6][termios.VMIN] = 0  # never wait: a signal may have thrown away what was pressed
        termios.tcsetattr(terminal, termios.TCSADRAIN, mode)
        loop.add_reader(terminal, pressed)
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _drawn(glance: Glance, room: int) -> Group:
    numbers = [
        Text.assemble((f"{count(n, CAP)} ", "bold"), (STATUS_WORDS[status], _COLOURS.get(status, "") if n else "dim"))
        for status, n in glance.counts.items()
        if n or status not in RESERVED
    ]
    rates = "  ".join(f"{rate:.1f} {name}" for name, rate in glance.rates.items())
    parts = [Columns(numbers, padding=(0, 3)), Text(f"a second, over {_WINDOW:g} s: {rates}", "dim"), Text()]
    return Group(*parts, _groups(glance, room), Text(), _due(glance, room))


def _groups(glance: Glance, room: int) -> Table | Text:
    if not glance.groups:
        return Text("nobody waits for an event", "dim")
    rows = [
        (clean(group.type), count(group.count, CAP), clean(group.waits[0].instance_id) if group.waits else "")
        for group in glance.groups
    ]
    return _table(("waited for", "how many", "one of them"), rows, "waited for", room)


def _due(glance: Glance, room: int) -> Table | Text:
    if not glance.due:
        return Text("nothing falls due within a week", "dim")
    rows = [
        (
            "" if wait.due_at is None else relative(wait.due_at, glance.now),
            "timeout" if wait.kind == "event" else wait.kind,
            one_line(wanted(wait) or wait.wait_id, 60),
            clean(wait.instance_id),
        )
        for wait in glance.due
    ]
    return _table(("falls due", "kind", "what", "instance"), rows, "what", room)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], cut: str, room: int) -> Table:
    """Where there is not room enough one column is cut, and then the last one folded: ids can be told as a whole."""
    widths = {name: max(map(cell_len, (name, *(row[i] for row in rows)))) for i, name in enumerate(columns)}
    left = room - sum(widths.values()) + widths[cut] - 2 * (len(columns) - 1)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        is_last = name == columns[-1]
        table.add_column(
            name,
            no_wrap=not is_last,
            overflow="fold" if is_last else "ellipsis",
            justify="right" if name == "how many" else "left",
            style="dim" if name == "one of them" else "",
            max_width=max(_LEAST, left) if name == cut else None,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _as_json(glance: Glance) -> dict[str, object]:
    groups = [{"type": group.type, "count": group.count} for group in glance.groups]
    return {
        "counts": dict(glance.counts),
        "per_second": glance.rates,
        "waited_for": groups,
        "falls_due": list(glance.due),
    }
