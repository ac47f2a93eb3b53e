"""`--database` and `--schema`: the database a command works on."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import click
from click.core import ParameterSource

from romancy.app import App
from romancy.cli.errors import Refused
from romancy.options import WITHOUT_HTTP, Database
from romancy.service import runtime_of
from romancy.storage.urls import check_schema, is_postgres

T = TypeVar("T")
DEFAULT = "romancy.db"
_database_option = click.option(
    "--database",
    "-d",
    envvar="ROMANCY_DATABASE",
    default=DEFAULT,
    metavar="PATH|URL",
    help="The database; else $ROMANCY_DATABASE, else ./romancy.db.",
)
schema_option = click.option(
    "--schema",
    envvar="ROMANCY_SCHEMA",
    metavar="NAME",
    help="Where in a PostgreSQL database; else $ROMANCY_SCHEMA, else the schema named romancy.",
)


def database_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which database; the command gets `database` and `schema`."""
    return _database_option(schema_option(command))


def is_typed(name: str) -> bool:
    """Whether an option is on the command line, not only in the environment."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def schema_of(database: str, schema: str | None) -> str | None:
    """The schema that was asked for, if the database can have one; the environment's is not meant for files."""
    if schema is None or (not is_postgres(database) and not is_typed("schema")):
        return None
    if not is_postgres(database):
        raise Refused("--schema is for databases with a postgresql:// URL")
    try:
        check_schema(schema)
    except ValueError as error:
        raise Refused(str(error)) from None
    return schema


def settle(own: App | None, database: str, schema: str | None, *, serves: bool = False) -> App:
    """The user's app, on another database or schema if one was given, else a plain one."""
    if own is None:
        return _app(database, schema_of(database, schema), serves)
    source, runtime = click.get_current_context().get_parameter_source, runtime_of(own)
    if source("database") is not ParameterSource.DEFAULT:
        runtime.database = replace(runtime.database, url=database)
    if source("schema") is not ParameterSource.DEFAULT or not is_postgres(own.database):
        runtime.database = replace(runtime.database, schema=schema_of(own.database, schema))
    return own


def app_to_look(database: str, schema: str | None, *, serves: bool = False) -> App:
    """To look, send and ask: where there is nothing yet, nothing is made."""
    app = _app(database, schema, serves, worker=False)
    runtime_of(app).creates = False
    return app


def _app(database: str, schema: str | None, serves: bool, *, worker: bool = True) -> App:
    try:
        return App(Database(database, schema), tokens=() if serves else WITHOUT_HTTP, worker=worker)
    except ValueError as error:  # what the environment says of tokens
        raise Refused(str(error)) from None


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
