"""Output: colored tables and facts on a terminal, aligned plain text when piped, or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, cast

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

STATUS_STYLES = {
    "queued": "bright_black",
    "running": "bold blue",
    "waiting_for_event": "cyan",
    "waiting_for_timer": "magenta",
    "waiting_for_child": "blue",
    "compensating": "yellow",
    "completed": "green",
    "failed": "bold red",
    "cancelled": "yellow",
    "blocked": "bold red",
}
_COLUMNS = {"instance": "bold", "line": "dim", "n": "dim"}
_TIMES = {"started", "since", "until", "at"}
_FIRST = ("for", "about", "detail")
_FOLDED = ("for", "recorded", "the code")
_ELASTIC = (*_FIRST, "workflow", "operation", "wait", "line", "recorded", "the code")
"""Columns that can be cut, or folded, in the order in which they get spare room."""
_LEAST, _GAP = 16, 2
_WIDE = 100
_WHEN = re.compile(r"(.*\d)[+-]\d\d:\d\d(?:\.\d+)? \((.+)\)$")

_UNPRINTABLE = re.compile(r"[^\x00-\x7e\u00a1-\U0010ffff]|[\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Characters that JSON allows unescaped but that must not reach a terminal."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class Screen:
    """Prints the output of a command. Text is never treated as markup: an id can be `[red]x`."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=False)

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        drop: Sequence[str] = (),
        struck: Collection[int] = (),
    ) -> None:
        """Print rows with headings; without rows, print nothing.

        On a narrow terminal, the columns in `drop` are omitted, first one first.
        On any terminal, the rows with the numbers in `struck` are struck through.
        """
        lines = list(map(tuple, rows))
        if not lines:
            return
        if self._console.is_terminal:
            self._rich_table(columns, lines, drop, struck)
            return
        lines = [tuple(columns), *lines]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        for line in lines:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

    def _rich_table(
        self, columns: Sequence[str], rows: list[tuple[str, ...]], drop: Sequence[str], struck: Collection[int]
    ) -> None:
        wide = self._console.width >= _WIDE
        held = {
            name: [name, *(_moment(row[i], wide) if name in _TIMES else row[i] for row in rows)]
            for i, name in enumerate(columns)
        }
        widths = _fit(held, drop, self._console.width)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for name, width in widths.items():
            cut = name == "about" or (not wide and name in _ELASTIC and name not in _FOLDED)
            table.add_column(
                name, width=width, style=_COLUMNS.get(name), no_wrap=cut, overflow="ellipsis" if cut else "fold"
            )
        for i in range(1, len(rows) + 1):
            style = "dim strike" if i - 1 in struck else None
            table.add_row(*(_cell(name, held[name][i]) for name in widths), style=style)
        self._console.print(table)

    def facts(self, facts: Mapping[str, str]) -> None:
        """Print names and values, one pair per line; a value can have several lines."""
        if self._console.is_terminal:
            grid = Table.grid(padding=(0, 2, 0, 0))
            grid.add_column(style="dim", no_wrap=True)
            grid.add_column(overflow="fold")
            for name, text in facts.items():
                grid.add_row(name, _cell(name, text))
            self._console.print(grid)
            return
        width = max(map(len, facts), default=0)
        for name, text in facts.items():
            for i, line in enumerate(text.split("\n")):
                click.echo(f"{(name if i == 0 else '').ljust(width)}  {line}".rstrip())

    def say(self, text: str = "", style: str = "") -> None:
        """Print a line of text."""
        self._print(Text(text, style))

    def heading(self, text: str) -> None:
        """Print a heading after an empty line."""
        self.say()
        self.say(text, "bold")

    def _print(self, text: Text) -> None:
        if self._console.is_terminal:
            self._console.print(text)
        else:
            click.echo(text.plain.rstrip())


def _cell(name: str, text: str) -> Text:
    return Text(text, STATUS_STYLES.get(text, "") if name == "status" else "")


def _moment(text: str, wide: bool) -> str:
    """Shorten a time to two lines, or to the relative part. The zone is the local one and left out."""
    return _WHEN.sub(r"\1\n\2" if wide else r"\2", text)


def _fit(held: Mapping[str, list[str]], drop: Sequence[str], room: int) -> dict[str, int]:
    """Return the columns to show and their widths. If they still do not fit, the first one is folded."""
    whole = {name: max(cell_len(line) for text in texts for line in text.split("\n")) for name, texts in held.items()}
    widths = {name: min(width, _LEAST) if name in _ELASTIC else width for name, width in whole.items()}

    def spare() -> int:
        return room - sum(widths.values()) - _GAP * (len(widths) - 1)

    for name in drop:
        if spare() >= 0:
            break
        del widths[name]
    for name in _ELASTIC:
        if name in widths:
            widths[name] += max(0, min(spare(), whole[name] - widths[name]))
    if spare() < 0:
        first = next(iter(widths))
        widths[first] = max(min(widths[first], _LEAST // 2), widths[first] + spare())
    return widths


def note(text: str) -> None:
    """Print a note on stderr, so that piped output stays clean."""
    click.echo(text, err=True)


def print_json(answer: Any) -> None:
    """Print one JSON document, with times as ISO 8601 in UTC."""
    text = json.dumps(answer, indent=2, ensure_ascii=False, default=plain)
    click.echo(_UNPRINTABLE.sub(lambda found: json.dumps(found[0])[1:-1], text))


def plain(given: object) -> Any:
    """Return a record as JSON, one level deep."""
    if isinstance(given, datetime):
        return given.isoformat()
    if is_dataclass(given) and not isinstance(given, type):
        return {field.name: getattr(given, field.name) for field in fields(given) if field.repr}
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, Any]", given))
    return list(cast("Sequence[Any]", given)) if isinstance(given, Sequence) else str(given)
