"""`viewer` and `top`: live views of a database."""

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
from romancy.cli.database import app_without_worker, check_exists, database_options, on, schema_of
from romancy.cli.logs import log_to_stderr
from romancy.cli.modules import load, module_option, register
from romancy.cli.screen import STATUS_STYLES, json_option, print_json
from romancy.cli.server import bind, check_guarded, host_option, open_to_all, port_option, run_server
from romancy.cli.words import RARE, clean, one_line, relative, wanted
from romancy.core.model import Status
from romancy.records import QueueRecord, Wait
from romancy.signals import on_first_signal
from romancy.tokens import SCOPES
from romancy.viewer.catalog import CAP, Catalog
from romancy.viewer.catalog import Group as WaitGroup
from romancy.viewer.words import STATUS_WORDS, count

try:
    import termios
    import tty
except ImportError:  # Windows: only Ctrl-C ends it
    termios = tty = None

_WINDOW = 10.0
"""Seconds over which rates are measured."""
_TYPES, _TIMERS, _QUEUES, _AHEAD = 12, 12, 12, 7 * 86_400
_LEAST = 16
"""Minimum width of a column that is cut."""


@click.command()
@host_option
@port_option(default=8002)
@click.option("--allow-actions", is_flag=True, help="Allow start, send, cancel, resume, retry and fork.")
@click.option("--insecure", is_flag=True, help="Accept other machines although there are no tokens.")
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
    """Serve the viewer, a web page for a database, without a worker.

    The page is at /viewer/. It is read-only unless --allow-actions is given. With --module, it also shows the source
    and signatures of the workflows.

    Access is controlled by $ROMANCY_TOKENS (separated by spaces). Without tokens, only this machine has access.
    """
    check_exists(database)
    log_to_stderr(logging.INFO)
    app = app_without_worker(database, schema_of(database, schema), serves=True)
    for name in modules:
        register(app, load(name))
    check_guarded(app, host, insecure, shows=not allow_actions)
    if insecure:
        open_to_all(app)
    allows = SCOPES if allow_actions else ("read",)
    run_server(app, bind(host, port), allows, "serves the viewer of {place} at {url}/viewer/ ({who})")


# --- top ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Glance:
    """The data of one screen."""

    now: datetime
    counts: Mapping[Status, int]
    rates: dict[str, float]
    groups: Sequence[WaitGroup]
    due: Sequence[Wait]
    queues: Sequence[QueueRecord]


@click.command()
@click.option("--once", is_flag=True, help="Print once and exit.")
@click.option(
    "--every", type=click.FloatRange(0.2, 3600), default=1.0, show_default=True, help="Seconds between updates."
)
@database_options
@json_option
def top(once: bool, every: float, database: str, schema: str | None, as_json: bool) -> None:
    """Watch instances, open waits and upcoming timers.

    Press q or Ctrl-C to quit. Prints once if the output is not a terminal.
    """
    console = Console(highlight=False)
    check_exists(database)
    app = app_without_worker(database, schema_of(database, schema))
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
        (await app.list_queues())[:_QUEUES],
    )


async def _watch(app: App, console: Console, every: float) -> None:
    """Redraw until a key or a signal ends it, even in the middle of a query."""
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
    """Read keys as they are pressed, without echo. A reading thread would outlive the command."""
    if termios is None or tty is None or not sys.stdin.isatty():
        yield
        return
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def pressed() -> None:
        keys = os.read(terminal, 1024)
        if not keys or set(keys.lower()) & set(b"q\x03\x04"):  # no bytes: the terminal is gone
            stop()

    try:
        tty.setcbreak(terminal)
        mode = termios.tcgetattr(terminal)
        mode[6][termios.VMIN] = 0  # never block: a signal can discard the pressed key
        termios.tcsetattr(terminal, termios.TCSADRAIN, mode)
        loop.add_reader(terminal, pressed)
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _drawn(glance: Glance, room: int) -> Group:
    numbers = [
        Text.assemble(
            (f"{count(n, CAP)} ", "bold"), (STATUS_WORDS[status], STATUS_STYLES.get(status, "") if n else "dim")
        )
        for status, n in glance.counts.items()
        if n or status not in RARE
    ]
    rates = "  ".join(f"{rate:.1f} {name}" for name, rate in glance.rates.items())
    parts = [Columns(numbers, padding=(0, 3)), Text(f"per second, over {_WINDOW:g} s: {rates}", "dim"), Text()]
    queues = [_queues(glance, room), Text()] if glance.queues else []
    return Group(*parts, *queues, _groups(glance, room), Text(), _due(glance, room))


def _queues(glance: Glance, room: int) -> Table:
    rows = [
        (
            clean(queue.name),
            f"{queue.running:,}",
            f"{queue.waiting:,}",
            "" if queue.oldest_at is None else relative(queue.oldest_at, glance.now),
        )
        for queue in glance.queues
    ]
    return _table(("queue", "running", "waiting", "oldest"), rows, "queue", room)


def _groups(glance: Glance, room: int) -> Table | Text:
    if not glance.groups:
        return Text("no open waits for events", "dim")
    rows = [
        (clean(group.type), count(group.count, CAP), clean(group.waits[0].instance_id) if group.waits else "")
        for group in glance.groups
    ]
    return _table(("event type", "waits", "one instance"), rows, "event type", room)


def _due(glance: Glance, room: int) -> Table | Text:
    if not glance.due:
        return Text("nothing is due within a week", "dim")
    rows = [
        (
            "" if wait.due_at is None else relative(wait.due_at, glance.now),
            "timeout" if wait.kind == "event" else wait.kind,
            one_line(wanted(wait) or wait.wait_id, 60),
            clean(wait.instance_id),
        )
        for wait in glance.due
    ]
    return _table(("due", "kind", "for", "instance"), rows, "for", room)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], cut: str, room: int) -> Table:
    """If the table is too wide, cut one column, then fold the last one, so that ids stay complete."""
    widths = {name: max(map(cell_len, (name, *(row[i] for row in rows)))) for i, name in enumerate(columns)}
    left = room - sum(widths.values()) + widths[cut] - 2 * (len(columns) - 1)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        is_last = name == columns[-1]
        table.add_column(
            name,
            no_wrap=not is_last,
            overflow="fold" if is_last else "ellipsis",
            justify="right" if name in ("waits", "running", "waiting") else "left",
            style="dim" if name == "one instance" else "",
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
        "queues": list(glance.queues),
    }
