"""`romancy migrate` and `romancy copy`: databases brought up to date, and from one place to another."""

from __future__ import annotations

import asyncio
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from romancy.cli.database import database_option, file_of, refuse_memory
from romancy.cli.failing import Refused
from romancy.cli.screen import Screen
from romancy.cli.words import plural
from romancy.errors import StorageError
from romancy.storage import migrating

schema_option = click.option(
    "--schema", metavar="NAME", help="Where PostgreSQL keeps its tables; else the schema named romancy."
)


@click.command()
@database_option
@schema_option
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if it is behind.")
def migrate(database: str, schema: str | None, check: bool) -> None:
    """Bring the schema of a database up to date.

    Workers do it themselves when they open a database, if they may. Where they run as a user who may not, run this
    before them, as one who may. Older workers that still run go on working unless it says otherwise.
    """
    refuse_memory(database)
    if schema is not None and file_of(database) is not None:
        raise Refused("--schema is for databases with a postgresql:// URL")
    before, newest = asyncio.run(migrating.version(database, schema)), migrating.newest(database)
    screen = Screen()
    if before >= newest:
        newer = f", newer than the {newest} this romancy brings" if before > newest else ""
        screen.say(f"up to date at version {before}{newer}")
    elif check:
        screen.say(f"behind: version {before}, and this romancy brings {newest}" if before else "nothing there yet")
        raise click.exceptions.Exit(1)
    else:
        asyncio.run(migrating.migrate(database, schema))
        screen.say(f"brought from version {before} to {newest}" if before else f"made at version {newest}")


@click.command()
@click.argument("file", metavar="SQLITE_FILE")
@click.argument("url", metavar="POSTGRES_URL")
@schema_option
def copy(file: str, url: str, schema: str | None) -> None:
    """Move a SQLite database to PostgreSQL, with all that waits in it.

    Stop every process that works on the file first. The schema there must be empty or not exist yet. All of it arrives
    or nothing; workflows then go on there as they would have here. The file is left as it is: put it away, so that
    nobody goes on working on it too.

    \b
      romancy copy workflow.db postgresql://romancy@db.example/shop
    """
    if not url.startswith(("postgresql://", "postgres://")):
        raise Refused(f"{url!r} is not a postgresql:// URL; give the database to copy to")
    path = file_of(file)
    if path is None:
        raise Refused(f"{file!r} is not a file; give the SQLite database to copy")
    counts = asyncio.run(_copy(str(path), url, {} if schema is None else {"schema": schema}))
    waiting = {name: plural(counts[table], name) for name, table in _NAMED.items()}
    Screen().say(f"copied {waiting['instance']}, {waiting['event']} and {waiting['wait']}, and verified the counts")
    Screen().say(f"start the workers on the new database, and put {file} away: nobody may go on working on it")


_NAMED = {"instance": "instances", "event": "events", "wait": "waits"}


async def _copy(path: str, url: str, options: dict[str, Any]) -> dict[str, int]:
    try:
        from romancy.storage.copying import copy  # here, because the driver is optional
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StorageError("PostgreSQL needs its driver; install it with: pip install 'romancy[postgres]'") from None

    columns = TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as bars:
        known: dict[str, Any] = {}

        def told(table: str, copied: int, total: int) -> None:
            if total and table not in known:
                known[table] = bars.add_task(table, total=total)
            if total:
                bars.update(known[table], completed=copied)

        return await copy(path, url, told=told, **options)
