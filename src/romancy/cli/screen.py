"""What comes out: tables and facts with colours on a terminal, aligned plain text when piped, or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, cast

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_STATUS = {
    "running": "bold blue",
    "waiting_for_event": "cyan",
    "waiting_for_timer": "cyan",
    "compensating": "yellow",
    "completed": "green",
    "failed": "bold red",
    "cancelled": "yellow",
    "blocked": "bold magenta",
}
_COLUMNS = {"instance": "bold", "line": "dim", "n": "dim"}
_TIMES = {"started", "since", "until", "at"}
_WIDE = 100
_ZONE = re.compile(r"(\d)[+-]\d\d:\d\d(?:\.\d+)? \((.+)\)$")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class Screen:
    """Where the answers of a command go. Text is never read as markup: an id may well be `[red]x`."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=False)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], whole: str = "") -> None:
        """Rows below their headings; on a terminal that is wide enough the column `whole` is not folded."""
        if self._console.is_terminal:
            self._rich_table(columns, rows, whole)
            return
        lines = [tuple(columns), *map(tuple, rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        for line in lines:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

    def _rich_table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], whole: str) -> None:
        fixed = {*_TIMES, "status", whole if self._console.width >= _WIDE else ""}
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for name in columns:
            table.add_column(name, overflow="fold", style=_COLUMNS.get(name), no_wrap=name in fixed)
        for row in rows:
            table.add_row(*(_cell(name, _stacked(name, text)) for name, text in zip(columns, row, strict=True)))
        self._console.print(table)

    def facts(self, facts: Mapping[str, str]) -> None:
        """Names and values, one pair a line; values may have several lines."""
        width = max(map(len, facts), default=0)
        for name, text in facts.items():
            for i, line in enumerate(text.split("\n")):
                head = (name if i == 0 else "").ljust(width)
                self._print(Text.assemble((head, "dim"), "  ", _cell(name, line)))

    def say(self, text: str = "", style: str = "") -> None:
        """A line of text."""
        self._print(Text(text, style))

    def heading(self, text: str) -> None:
        """Opens a part of the answer."""
        self.say()
        self.say(text, "bold")

    def _print(self, text: Text) -> None:
        if self._console.is_terminal:
            self._console.print(text)
        else:
            click.echo(text.plain.rstrip())


def _cell(name: str, text: str) -> Text:
    return Text(text, _STATUS.get(text, "") if name == "status" else "")


def _stacked(name: str, text: str) -> str:
    """A time in two short lines; whoever sits at the terminal knows the zone."""
    return _ZONE.sub(r"\1\n\2", text) if name in _TIMES else text


def note(text: str) -> None:
    """Something beside the answer: on stderr, so that what is piped stays clean."""
    click.echo(text, err=True)


def print_json(answer: Any) -> None:
    """One JSON document, times as ISO 8601 in UTC."""
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False, default=_plain))


def _plain(given: object) -> Any:
    if isinstance(given, datetime):
        return given.isoformat()
    if is_dataclass(given) and not isinstance(given, type):
        return {field.name: getattr(given, field.name) for field in fields(given) if field.repr}
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, Any]", given))
    return list(cast("Sequence[Any]", given)) if isinstance(given, Sequence) else str(given)
