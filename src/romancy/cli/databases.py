"""`romancy migrate` and `romancy copy`: upgrade a database, and copy it to PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from romancy.cli.database import database_options, file_of, refuse_memory, schema_of, schema_option
from romancy.cli.errors import Refused
from romancy.cli.screen import Screen
from romancy.cli.words import clean, plural
from romancy.errors import StorageError
from romancy.storage.tools import migration
from romancy.storage.urls import DEFAULT_SCHEMA, is_postgres, without_password


@click.command()
@database_options
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if the schema is out of date.")
def migrate(database: str, schema: str | None, check: bool) -> None:
    """Upgrade the schema of a database.

    Workers upgrade the schema themselves when they open a database, if their user has the privileges. If not, run this
    command first, as a user who has them. Workers of older versions keep working unless this command says otherwise.
    """
    refuse_memory(database)
    schema = schema_of(database, schema)
    before, newest = asyncio.run(migration.version(database, schema)), migration.newest(database)
    screen, where = Screen(), "" if schema in (None, DEFAULT_SCHEMA) else f" (schema {schema})"
    if before >= newest:
        newer = f", newer than this romancy's version {newest}" if before > newest else ""
        screen.say(f"up to date at version {before}{newer}{where}")
    elif not check:
        asyncio.run(migration.migrate(database, schema))
        done = f"upgraded from version {before} to" if before else "created the tables, version"
        screen.say(f"{done} {newest}{where}")
    else:
        outdated = f"out of date: version {before}, this romancy has {newest}{where}"
        screen.say(outdated if before else f"no schema yet {_place(database, schema)}")
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
    """Copy a SQLite database to PostgreSQL.

    First stop every process that uses the file. The schema in PostgreSQL must be empty or not exist yet. Either
    everything of Romancy is copied or nothing, and workflows then continue in PostgreSQL. Tables of your own in the
    file are named, but not copied. The file is not changed. Put it away afterwards, so that no worker continues to use
    it.

    \b
      romancy copy workflow.db postgresql://romancy@db.example/shop
    """
    if not is_postgres(url):
        raise Refused(f"{url!r} is not a postgresql:// URL; give the database to copy to")
    path = file_of(file)
    if path is None:
        raise Refused(f"{file!r} is not a file; give the SQLite database to copy")
    schema = schema_of(url, schema) or DEFAULT_SCHEMA
    counts, own = asyncio.run(_copy(str(path), url, schema))
    waiting = {name: plural(counts[table], name) for name, table in _NAMED.items()}
    Screen().say(f"copied {waiting['instance']}, {waiting['event']} and {waiting['wait']}, and verified the counts")
    if own:
        names = ", ".join(f"{clean(name)} ({plural(rows, 'row')})" for name, rows in own.items())
        Screen().say(f"not copied: your own tables {names}; copy them before you start the workers", "yellow")
    if schema != DEFAULT_SCHEMA:
        Screen().say(f"they are in schema {schema!r}: set it for the workers, and use --schema with the commands")
    Screen().say(f"start the workers on the new database, and put {file} away: no worker must use it any more")


_NAMED = {"instance": "instances", "event": "events", "wait": "waits"}


async def _copy(path: str, url: str, schema: str) -> tuple[dict[str, int], dict[str, int]]:
    try:
        from romancy.storage.tools.copy import copy, own_tables  # imported lazily: the driver is optional
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StorageError("PostgreSQL needs a driver; install it with: pip install 'romancy[postgres]'") from None

    columns = TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        known: dict[str, Any] = {}

        def report(table: str, copied: int, total: int) -> None:
            if total and table not in known:
                known[table] = bars.add_task(table, total=total)
            if total:
                bars.update(known[table], completed=copied)

        return await copy(path, url, schema=schema, told=report), own_tables(path)
