"""`romancy doctor`: say what is wrong with a database, a server or a deployment, and what to do about it."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Sequence

import click

from romancy import __version__
from romancy.app import App
from romancy.cli.database import app_without_worker, file_of, on, refuse_memory
from romancy.cli.errors import Refused
from romancy.cli.findings import Finding, failure, has_problem, ok, problem, show
from romancy.cli.lists import present
from romancy.cli.modules import codec_in_environment
from romancy.cli.place_checks import Place, check_connections, check_file, check_server
from romancy.cli.screen import json_option, print_json
from romancy.cli.state_checks import (
    check_blocked,
    check_inbox,
    check_overdue,
    check_queues,
    check_sinks,
    check_stranded,
    check_workers,
)
from romancy.cli.target import Target
from romancy.cli.target_options import TargetOptions, target_options
from romancy.core.model import from_us
from romancy.desk import OperatorsDesk
from romancy.errors import AccessDenied, RomancyError, StorageError
from romancy.service import runtime_of
from romancy.storage.urls import is_postgres, without_password


@click.command()
@click.option("--deep", is_flag=True, help="Also read the whole SQLite file, to find damage. This can take minutes.")
@target_options
@json_option
def doctor(options: TargetOptions, deep: bool, as_json: bool) -> None:
    """Say what is wrong with a database or a server, and how to fix it.

    It checks versions, permissions, clocks, connections, workers, and what can't go on: blocked instances, overdue
    timers, queues that stand still, sinks that fail. With --url, it checks what the server shows. Nothing is changed:
    a database is neither created nor upgraded.

    Exits with 1 if there is a problem. Warnings alone exit with 0.
    """
    found = [ok("romancy", f"version {__version__}, Python {platform.python_version()}"), *_examine(options, deep)]
    if as_json:
        print_json({"items": found})
    else:
        show(found)
    if has_problem(found):
        raise click.exceptions.Exit(1)


def _examine(options: TargetOptions, deep: bool) -> list[Finding]:
    if options.url is not None:
        return _examine_server(options)
    place = _look(options, deep)
    if not place.can_open:
        return place.findings
    app = app_without_worker(options.database, options.schema)
    try:
        return [*place.findings, *on(app, lambda app: examine_database(app, place))]
    except StorageError as error:
        advice = "run this again; if the problem is still there, restore the database from a backup"
        return [*place.findings, failure("database", error, advice)]


def _look(options: TargetOptions, deep: bool) -> Place:
    """Look at a database before it is opened."""
    database, has_codec = options.database, codec_in_environment() is not None
    if is_postgres(database):
        if deep:
            raise Refused("--deep is for SQLite files; PostgreSQL has pg_amcheck")
        return asyncio.run(check_server(database, without_password(database), options.schema, has_codec=has_codec))
    refuse_memory(database)
    path = file_of(database)
    if path is None:
        raise Refused(f"{database!r} is neither a file nor a postgresql:// URL")
    return check_file(database, path, has_codec=has_codec, deep=deep)


async def examine_database(app: App, place: Place) -> list[Finding]:
    """Read what is in a database."""
    runtime = runtime_of(app)
    desk, now = OperatorsDesk(runtime.engine.storage, runtime.clock), from_us(runtime.clock.now())
    workers = await desk.workers()
    found = await check_workers(app, workers, now)
    if place.limits:
        from romancy.storage.tools.server_state import PER_WORKER  # imported lazily: the driver is optional

        found += check_connections(place, sum(worker.is_alive for worker in workers), PER_WORKER)
    return [
        *found,
        *await check_stranded(desk, workers, now),
        *await check_blocked(app),
        *await check_overdue(desk, workers, now),
        *await check_queues(app, now),
        *await check_sinks(app),
        *await check_inbox(app),
    ]


def _examine_server(options: TargetOptions) -> list[Finding]:
    async def work(target: Target) -> Sequence[Finding]:
        verbs, now = target.verbs, present()
        return [
            *await check_workers(verbs, await verbs.list_workers(), now),
            *await check_blocked(verbs),
            *await check_queues(verbs, now),
            *await check_sinks(verbs),
            *await check_inbox(verbs),
        ]

    try:
        found = options.do(work)
    except AccessDenied as error:
        return [problem("server", str(error), "give a token that can read with ROMANCY_TOKEN or --token-file")]
    except RomancyError as error:
        return [
            problem(
                "server",
                str(error).removesuffix("; check the URL").removesuffix("; is it running, and is the URL right?"),
                "check the URL, and that `romancy serve` runs there",
            )
        ]
    return [ok("server", f"{options.url} answers"), *found]
