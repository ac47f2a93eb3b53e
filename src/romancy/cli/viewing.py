"""`viewer` and `top`: what a database holds, live."""

from __future__ import annotations

import asyncio
import logging
import select
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import click
from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from romancy.app import App
from romancy.cli.database import check_exists, database_option, on
from romancy.cli.loading import load, module_option, register
from romancy.cli.logs import log_to_stderr
from romancy.cli.screen import json_option, print_json
from romancy.cli.serving import check_guarded, run_server
from romancy.cli.words import clean, one_line, relative, wanted
from romancy.core.model import Status
from romancy.options import SCOPES
from romancy.records import Wait
from romancy.viewer.catalog import CAP, Catalog
from romancy.viewer.catalog import Group as WaitGroup
from romancy.viewer.words import STATUS_WORDS, count

try:
    import termios
    import tty
except ImportError:  # not on Windows: Ctrl-C ends it there
    termios = tty = None

T = TypeVar("T")
_WINDOW = 10.0
"""Seconds over which what happens is counted."""
_TYPES, _TIMERS, _AHEAD = 12, 12, 7 * 86_400
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
@database_option
def viewer(host: str, port: int, allow_actions: bool, insecure: bool, modules: tuple[str, ...], database: str) -> None:
    """Serve the viewer alone: a web page on a database, without a worker.

    It is at /viewer/. It only shows, unless --allow-actions is given. With --module it knows the workflows' source and
    signatures. Who may look is said by $ROMANCY_TOKENS; without tokens it listens on this machine only.
    """
    check_exists(database)
    log_to_stderr(logging.INFO)
    app = App(database, worker=False)
    for name in modules:
        register(app, load(name))
    check_guarded(app, host, insecure)
    run_server(app, host, port, SCOPES if allow_actions else ("read",))


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
@database_option
@json_option
def top(once: bool, every: float, database: str, as_json: bool) -> None:
    """Watch what runs, what is waited for and what falls due next.

    q or Ctrl-C ends it. Where there is no terminal it is printed once.
    """
    console = Console(highlight=False)
    if as_json:
        print_json(_as_json(_on_existing(database, _glance)))
    elif once or not console.is_terminal:
        console.print(_drawn(_on_existing(database, _glance)))
    else:
        _on_existing(database, lambda app: _watch(app, console, every))


def _on_existing(database: str, work: Callable[[App], Awaitable[T]]) -> T:
    check_exists(database)
    return on(App(database, worker=False), work)


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
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as screen:
        while True:
            screen.update(_drawn(await _glance(app)), refresh=True)
            if not sys.stdin.isatty():
                await asyncio.sleep(every)
            elif await asyncio.to_thread(_asked_to_stop, every):
                return


def _asked_to_stop(within: float) -> bool:
    """Waits for a key that long."""
    ready, _, _ = select.select([sys.stdin], [], [], within)
    return bool(ready) and sys.stdin.read(1) in ("q", "Q", "\x03", "\x04", "")


@contextmanager
def _keys() -> Generator[None]:
    """Keys arrive as they are pressed, and are not shown; Ctrl-C is one of them."""
    if termios is None or tty is None or not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _drawn(glance: Glance) -> Group:
    numbers = [
        Text.assemble((f"{count(n, CAP)} ", "bold"), (STATUS_WORDS[status], _COLOURS.get(status, "") if n else "dim"))
        for status, n in glance.counts.items()
    ]
    rates = "  ".join(f"{rate:.1f} {name}" for name, rate in glance.rates.items())
    parts = [Columns(numbers, padding=(0, 3)), Text(f"a second, over {_WINDOW:g} s: {rates}", "dim"), Text()]
    return Group(*parts, _groups(glance), Text(), _due(glance))


def _groups(glance: Glance) -> Table | Text:
    if not glance.groups:
        return Text("nobody waits for an event", "dim")
    table = _table("waited for", "how many", "one of them")
    for group in glance.groups:
        one = group.waits[0].instance_id if group.waits else ""
        table.add_row(Text(clean(group.type)), count(group.count, CAP), Text(clean(one), "dim"))
    return table


def _due(glance: Glance) -> Table | Text:
    if not glance.due:
        return Text("nothing falls due within a week", "dim")
    table = _table("falls due", "kind", "what", "instance")
    for wait in glance.due:
        moment = "" if wait.due_at is None else relative(wait.due_at, glance.now)
        what = one_line(wanted(wait) or wait.wait_id, 60)
        table.add_row(
            moment, "timeout" if wait.kind == "event" else wait.kind, Text(what), Text(clean(wait.instance_id))
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=True, overflow="ellipsis", justify="right" if name == "how many" else "left")
    return table


def _as_json(glance: Glance) -> dict[str, object]:
    groups = [{"type": group.type, "count": group.count} for group in glance.groups]
    return {
        "counts": dict(glance.counts),
        "per_second": glance.rates,
        "waited_for": groups,
        "falls_due": list(glance.due),
    }
