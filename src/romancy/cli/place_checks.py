"""The part of `romancy doctor` that comes before a database is opened: opening an old one would upgrade it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from romancy.cli.errors import Refused
from romancy.cli.findings import Finding, failure, has_problem, ok, problem, warning
from romancy.cli.words import plural
from romancy.core.durations import span
from romancy.errors import StorageError
from romancy.storage.opener import SEALED
from romancy.storage.tools import file_state, migration
from romancy.storage.tools.file_state import read_file
from romancy.storage.urls import DEFAULT_SCHEMA

LITTLE = 200 * 1024 * 1024
"""Bytes: with less on the disk, there is a warning."""
_RESTORE = "restore it from a backup, and remove the -wal and -shm files beside it before"
OFF = 2.0
"""Seconds by which clocks may differ without a warning."""


@dataclass(frozen=True)
class Place:
    """What is known of a database before it is opened. `can_open`: opening it would change nothing."""

    findings: list[Finding]
    can_open: bool
    limits: Sequence[tuple[str, int, int]] = ()
    """Whose connections are limited, how many there can be, and how many there are; empty for a file."""


def check_file(database: str, path: Path, *, has_codec: bool, deep: bool) -> Place:
    """Check a SQLite file."""
    file, found = str(path), list[Finding]()
    if not path.exists():
        advice = "give another with -d or ROMANCY_DATABASE; `romancy worker` and `romancy run` create one"
        return Place([problem("file", f"no database at {database!r}", advice)], can_open=False)
    if not path.is_file():
        return Place([problem("file", f"{database!r} is not a file", "give the database file with -d")], can_open=False)
    if unwritable := file_state.unwritable(file):
        names = ", ".join(map(repr, unwritable))
        advice = "give its user write access to the file and its folder"
        return Place([problem("file", f"this user can't write to {names}", advice)], can_open=False)
    found += _surroundings(file)
    try:
        state = read_file(file, deep=deep)
    except StorageError as error:
        return Place([*found, failure("file", error, f"if it is damaged, {_RESTORE}")], can_open=False)
    if state.damage:
        found.append(problem("integrity", f"{database!r} is damaged: {state.damage[0]}", _RESTORE))
    elif deep:
        found.append(ok("integrity", "the whole file was read, and nothing is damaged"))
    if not state.version:
        advice = "give another with -d or ROMANCY_DATABASE"
        return Place([*found, problem("schema", f"{database!r} is not a Romancy database", advice)], can_open=False)
    found += _versions(database, None, state.version, state.min_reader, has_codec=has_codec)
    if state.journal_mode != "wal":
        advice = "any worker or other command sets it to wal; the rest is checked after that"
        found.append(warning("file", f"the journal mode is {state.journal_mode}, not wal", advice))
    elif not any(finding.check == "file" for finding in found):
        found.insert(0, ok("file", f"{file}, SQLite {sqlite3.sqlite_version}"))
    is_current = state.version >= migration.newest(database)
    return Place(found, is_current and state.journal_mode == "wal" and not has_problem(found))


def _surroundings(file: str) -> list[Finding]:
    found = list[Finding]()
    if kind := file_state.remote_file_system(file):
        advice = "SQLite's locks don't work there: move the file to a local disk, or use PostgreSQL"
        found.append(problem("file", f"it is on a network file system ({kind})", advice))
    if file_state.is_readable_by_all(file):
        found.append(warning("file", "every user of this machine can read it", f"run `chmod o-rwx {file}*`"))
    if (free := file_state.free_bytes(file)) < LITTLE:
        advice = "make room: when it is full, work pauses and nothing is accepted"
        found.append(warning("disk", f"{free // 2**20:,} MiB are free on its disk", advice))
    return found


async def check_server(url: str, shown: str, schema: str | None, *, has_codec: bool) -> Place:
    """Check a PostgreSQL database, and what its user is allowed to do."""
    try:
        from romancy.storage.tools.server_state import read_server  # imported lazily: the driver is optional
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise Refused("PostgreSQL needs a driver; install it with: pip install 'romancy[postgres]'") from None
    try:
        state = await read_server(url, schema)
    except StorageError as error:
        advice = "check the URL, the user's privileges, and that the server runs and is no read-only standby"
        return Place([failure("server", error, advice)], can_open=False)
    found = [ok("server", f"{shown}, PostgreSQL {state.server_version}")]
    if state.lacking:
        names = ", ".join(f"{privilege} on {table}" for table, privilege in state.lacking[:3])
        more = f" and {len(state.lacking) - 3} more" if len(state.lacking) > 3 else ""
        advice = "grant SELECT, INSERT, UPDATE, DELETE on all tables and USAGE on all sequences of the schema"
        found.append(problem("privileges", f"this user lacks {names}{more}", advice))
    elif state.version:
        found.append(ok("privileges", "this user can read and write all tables"))
    if not state.is_direct:
        advice = "LISTEN can't go through a transaction pooler: give workers Database(..., notify_url=DIRECT-URL)"
        found.append(warning("notices", "the connection goes through a pooler", advice))
    found.append(_clock(state.clock_offset))
    if state.missing_numbers:
        says = f"the data comes from another server, whose transaction numbers were {state.missing_numbers:,} ahead"
        advice = "a worker makes up for that when it starts; `romancy doctor` checks the rest after that"
        found.append(problem("order", f"{says}: open instances would not take new events", advice))
    if not state.version:
        says, run = f"schema {schema or DEFAULT_SCHEMA!r} holds no Romancy tables", _migrate(shown, schema)
        return Place([*found, problem("schema", says, f"`{run}` creates them")], can_open=False)
    found += _versions(shown, schema, state.version, state.min_reader, has_codec=has_codec)
    can_open = state.version >= migration.newest(url) and not has_problem(found)
    return Place(found, can_open, state.limits)


def _clock(offset: float) -> Finding:
    if abs(offset) < OFF:
        return ok("clock", "this machine and the server agree")
    side = "ahead of" if offset > 0 else "behind"
    says = f"the server's clock is {span(abs(offset))} {side} this machine's"
    return warning("clock", says, "workers follow the server's: make sure that it is right, and run NTP on both")


def _versions(database: str, schema: str | None, version: int, min_reader: int, *, has_codec: bool) -> list[Finding]:
    newest = migration.newest(database)
    sealed, oldest = divmod(min_reader, SEALED)
    found = list[Finding]()
    if oldest > newest:
        says = f"the schema has version {version}, which this romancy (version {newest}) is too old for"
        found.append(problem("schema", says, "upgrade the package"))
    elif version < newest:
        advice = f"`{_migrate(database, schema)}` upgrades it, and so does a worker of this version when it starts"
        found.append(warning("schema", f"the schema has version {version}, this romancy has {newest}", advice))
    elif version > newest:
        advice = "upgrade the workers that are left behind"
        found.append(warning("schema", f"the schema has version {version}, this romancy only {newest}", advice))
    else:
        found.append(ok("schema", f"version {version}"))
    if sealed and not has_codec:
        says = "the values are sealed, and this command has no codec"
        found.append(
            warning("codec", says, "set ROMANCY_CODEC=MODULE:CODEC; a worker without App(codec=...) can't start")
        )
    elif sealed:
        found.append(ok("codec", "the values are sealed, and there is a codec"))
    return found


def _migrate(database: str, schema: str | None) -> str:
    return f"romancy migrate -d {database}" + ("" if schema in (None, DEFAULT_SCHEMA) else f" --schema {schema}")


def check_connections(place: Place, workers: int, per_worker: int) -> list[Finding]:
    """Compare the connections that the workers may open with those that are allowed."""
    found = list[Finding]()
    for of, most, used in place.limits:
        needed, limit = workers * per_worker, f"the {of} allows {most:,}"
        if needed > most:
            says = f"{plural(workers, 'live worker')} may use {needed:,} connections, but {limit}"
            found.append(problem("connections", says, f"raise {_RAISED[of]}, run fewer workers, or use a pooler"))
        elif used + per_worker > most:
            says = f"{used:,} connections are in use, and {limit}: another worker may need {per_worker}"
            found.append(warning("connections", says, f"raise {_RAISED[of]}, or use a pooler"))
    if place.limits and not found:
        _, most, used = place.limits[0]
        found.append(ok("connections", f"{used:,} of {most:,} in use, at most {per_worker} by each worker"))
    return found


_RAISED = {
    "server": "max_connections of the server",
    "user": "the limit with ALTER ROLE ... CONNECTION LIMIT",
    "database": "the limit with ALTER DATABASE ... CONNECTION LIMIT",
}
