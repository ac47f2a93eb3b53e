"""`--database` and `--schema`: the database a command works on."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from romancy.app import App
from romancy.cli.errors import Refused
from romancy.cli.modules import codec_in_environment, redaction_in_environment
from romancy.core.redaction import redacting
from romancy.errors import StorageError
from romancy.options import WITHOUT_HTTP, Database
from romancy.service import runtime_of
from romancy.storage.sqlite.migrations import stored_versions
from romancy.storage.urls import check_schema, is_postgres

T = TypeVar("T")
DEFAULT = "romancy.db"
_database_option = click.option(
    "--database",
    "-d",
    envvar="ROMANCY_DATABASE",
    default=DEFAULT,
    metavar="PATH|URL",
    help="Database to use.  [env: ROMANCY_DATABASE; default: ./romancy.db]",
)
schema_option = click.option(
    "--schema",
    envvar="ROMANCY_SCHEMA",
    metavar="NAME",
    help="Schema in a PostgreSQL database.  [env: ROMANCY_SCHEMA; default: romancy]",
)


def database_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--database` and `--schema`; the command receives `database` and `schema`."""
    return _database_option(schema_option(command))


def is_typed(name: str) -> bool:
    """Whether an option was given on the command line, not only in the environment."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def is_default(name: str) -> bool:
    """Whether an option was given neither on the command line nor in the environment."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.DEFAULT


def schema_of(database: str, schema: str | None) -> str | None:
    """Return the requested schema. One from the environment is ignored for SQLite files."""
    if schema is None or (not is_postgres(database) and not is_typed("schema")):
        return None
    if not is_postgres(database):
        raise Refused("--schema only applies to PostgreSQL; give a postgresql:// URL with -d")
    try:
        check_schema(schema)
    except ValueError as error:
        raise Refused(str(error)) from None
    return schema


def settle(own: App | None, database: str, schema: str | None, *, serves: bool = False) -> App:
    """Return the user's app, with the given database and schema, or a new app if there is none."""
    if own is None:
        return _app(database, schema_of(database, schema), serves)
    source, runtime = click.get_current_context().get_parameter_source, runtime_of(own)
    if runtime.codec is None:
        runtime.codec = codec_in_environment()
    if source("database") is not ParameterSource.DEFAULT:
        runtime.database = replace(runtime.database, url=database)
    if source("schema") is not ParameterSource.DEFAULT or not is_postgres(own.database):
        runtime.database = replace(runtime.database, schema=schema_of(own.database, schema))
    return own


def app_without_worker(database: str, schema: str | None, *, serves: bool = False, codec: Any = None) -> App:
    """Return an app that reads, starts and sends. It runs nothing and creates no schema in PostgreSQL.

    `codec`: of the user's app, if there is one.
    """
    app = _app(database, schema, serves, worker=False)
    runtime = runtime_of(app)
    runtime.creates, runtime.codec = False, codec or runtime.codec
    return app


def _app(database: str, schema: str | None, serves: bool, *, worker: bool = True) -> App:
    try:
        tokens = () if serves else WITHOUT_HTTP
        given = {"codec": codec_in_environment(), "redact": redaction_in_environment()}
        return App(Database(database, schema), tokens=tokens, worker=worker, **given)
    except ValueError as error:  # invalid tokens in the environment
        raise Refused(str(error)) from None


def on(app: App, work: Callable[[App], Awaitable[T]]) -> T:
    """Start the app, do the work, and stop the app."""

    async def main() -> T:
        async with app:
            with redacting(runtime_of(app).redact):
                return await work(app)

    return asyncio.run(main())


def file_of(database: str) -> Path | None:
    """Return the file of a path or URL, or None if it is not a file on this machine."""
    scheme, separator, rest = database.partition("://")
    if separator and scheme not in ("sqlite", "file"):
        return None
    return Path((rest.removeprefix("/") if rest.startswith("//") else rest) if separator else database)


def refuse_memory(database: str) -> None:
    """Refuse a database in memory, which would end with the command."""
    if _is_in_memory(database):
        raise Refused(f"{database!r} only lasts as long as this command; give a file or URL with -d")


def check_shareable(app: App) -> None:
    """Refuse a database in memory, of which every process would have its own."""
    if _is_in_memory(app.database):
        raise Refused(
            f"several workers can't share {app.database!r}; give a file or URL with -d, or leave out --workers"
        )


def _is_in_memory(database: str) -> bool:
    return str(file_of(database)) in (":memory:", "/:memory:")


def check_exists(database: str) -> None:
    """Refuse a database that opening would create, or fill with our tables."""
    refuse_memory(database)
    file = file_of(database)
    if file is None:
        return
    if not file.exists() or (file.is_file() and file.stat().st_size == 0):
        raise Refused(
            f"no database at {database!r}; give another with -d or ROMANCY_DATABASE, "
            "or create one with `romancy run` or `romancy worker`"
        )
    if file.is_file() and not _is_ours(file):
        raise Refused(f"{database!r} is not a Romancy database; give another with -d or ROMANCY_DATABASE")


def _is_ours(file: Path) -> bool:
    """False only if that is certain; other problems with the file are reported when it is opened."""
    try:
        connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
        try:
            return stored_versions(connection, str(file)) != (0, 0)
        finally:
            connection.close()
    except (sqlite3.Error, StorageError):
        return True
