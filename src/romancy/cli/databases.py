"""`romancy migrate` and `romancy copy`: databases brought up to date, and from one place to another."""

from __future__ import annotations

import asyncio
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from romancy.cli.database import database_options, file_of, refuse_memory, schema_of, schema_option
from romancy.cli.errors import Refused
from romancy.cli.screen import Screen
from romancy.cli.words import plural
from romancy.errors import StorageError
from romancy.storage.tools import migration
from romancy.storage.urls import DEFAULT_SCHEMA, is_postgres, without_password


@click.command()
@database_options
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if it is behind.")
def migrate(database: str, schema: str | None, check: bool) -> None:
    """Bring the schema of a database up to date.

    Workers do it themselves when they open a database, if they may. Where they run as a user who may not, run this
    before them, as one who may. Older workers that still run go on working unless it says otherwise.
    """
    refuse_memory(database)
    schema = schema_of(database, schema)
    before, newest = asyncio.run(migration.version(database, schema)), migration.newest(database)
    screen, where = Screen(), "" if schema in (None, DEFAULT_SCHEMA) else f" (schema {schema})"
    if before >= newest:
        newer = f", newer than the {newest} this romancy brings" if before > newest else ""
        screen.say(f"up to date at version {before}{newer}{where}")
    elif not check:
        asyncio.run(migration.migrate(database, schema))
        screen.say((f"brought from version {before} to {newest}" if before else f"made at version {newest}") + where)
    else:
        behind = f"behind: version {before}, and this romancy brings {newest}{where}"
        screen.say(behind if before else f"nothing there yet, {_place(database, schema)}")
        raise click.exceptions.Exit(1)


def _place(database: str, schema: str | None) -> str:
    if not is_postgres(database):
        return f"at {database!r}"
    return f"in schema {schema or DEFAULT_SCHEMA!r} of {without_password(database)}"


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
    if not is_postgres(url):
        raise Refused(f"{url!r} is not a postgresql:// URL; give the database to copy to")
    path = file_of(file)
    if path is None:
        raise Refused(f"{file!r} is not a file; give the SQLite database to copy")
    schema = schema_of(url, schema) or DEFAULT_SCHEMA
    counts = asyncio.run(_copy(str(path), url, schema))
    waiting = {name: plural(counts[table], name) for name, table in _NAMED.items()}
    Screen().say(f"copied {waiting['instance']}, {waiting['event']} and {waiting['wait']}, and verified the counts")
    if schema != DEFAULT_SCHEMA:
        Screen().say(f"they are in schema {schema!r}: give it to the workers, and to romancy's commands with --schema")
    Screen().say(f"start the workers on the new database, and put {file} away: nobody may go on working on it")


_NAMED = {"instance": "instances", "event": "events", "wait": "waits"}


async def _copy(path: str, url: str, schema: str) -> dict[str, int]:
    try:
        from romancy.storage.tools.copy import copy  # here, because the driver is optional
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

        return await copy(path, url, schema=schema, told=told)
