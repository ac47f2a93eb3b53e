"""The database a command works on."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from romancy.app import App
from romancy.cli.failing import Refused

T = TypeVar("T")
DEFAULT = "romancy.db"
database_option = click.option(
    "--database",
    "-d",
    envvar="ROMANCY_DATABASE",
    default=DEFAULT,
    metavar="PATH|URL",
    help="The database; else $ROMANCY_DATABASE, else ./romancy.db.",
)


def on(app: App, work: Callable[[App], Awaitable[T]]) -> T:
    """Start the app, do something, stop it."""

    async def main() -> T:
        async with app:
            return await work(app)

    return asyncio.run(main())


def file_of(database: str) -> Path | None:
    """The file behind a path or URL; None where there is none on this machine."""
    scheme, separator, rest = database.partition("://")
    if separator and scheme not in ("sqlite", "file"):
        return None
    return Path((rest.removeprefix("/") if rest.startswith("//") else rest) if separator else database)


def refuse_memory(database: str) -> None:
    """A database in memory ends with the command."""
    if str(file_of(database)) in (":memory:", "/:memory:"):
        raise Refused(f"{database!r} is empty and belongs to this process alone; give a file or URL with -d")


def check_exists(database: str) -> None:
    """Refuse what opening would create, or fill with our tables."""
    refuse_memory(database)
    file = file_of(database)
    if file is None:
        return
    if not file.exists() or (file.is_file() and file.stat().st_size == 0):
        raise Refused(
            f"there is no database at {database!r}; give another with -d or ROMANCY_DATABASE, "
            "or make one with `romancy run` or `romancy worker`"
        )
    if file.is_file() and not _is_ours(file):
        raise Refused(f"{database!r} is a database of another program; give Romancy's with -d or ROMANCY_DATABASE")


def _is_ours(file: Path) -> bool:
    """False only if it is certain; whatever is wrong with the file is told when it is opened."""
    try:
        connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
        try:
            query = "SELECT 1 FROM sqlite_master WHERE name = 'schema_info'"
            return connection.execute(query).fetchone() is not None
        finally:
            connection.close()
    except sqlite3.Error:
        return True
