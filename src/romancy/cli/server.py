"""`romancy serve`: an app's HTTP face, and its worker, in one process."""

from __future__ import annotations

import logging
import socket
from collections.abc import Collection
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import click

from romancy.app import App, http_app
from romancy.cli.database import database_options, settle
from romancy.cli.errors import Failed, Refused
from romancy.cli.logs import log_to_stderr
from romancy.cli.modules import app_of, load, register
from romancy.cli.reloader import reload_on_change
from romancy.options import SCOPES
from romancy.service import runtime_of


@click.command()
@click.argument("target", metavar="MODULE[:APP]")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8001, show_default=True, help="0: any that is free.")
@click.option("--insecure", is_flag=True, help="Listen beyond this machine although the app has no tokens.")
@click.option(
    "--grace",
    type=click.FloatRange(0, 3600),
    help="Seconds requests, and then activities, may take to end when it is stopped; else the App's.",
)
@click.option("--reload", is_flag=True, help="Start anew when a .py file below this folder changes; for development.")
@database_options
def serve(
    target: str,
    host: str,
    port: int,
    insecure: bool,
    grace: float | None,
    reload: bool,
    database: str,
    schema: str | None,
) -> None:
    """Take events and serve the control API; work on the workflows too.

    An App(worker=False) is served without working on anything: `romancy worker` beside it does that.

    A MODULE that defines one App, or MODULE:APP, gives its settings and its database unless another is given; else
    every workflow in the module is worked on. Who may use it is said by the App's tokens, or by $ROMANCY_TOKENS
    (separated by spaces); without any it listens on this machine only.
    """
    if reload:
        raise click.exceptions.Exit(reload_on_change())
    log_to_stderr(logging.INFO)
    app = _load(target, database, schema)
    check_guarded(app, host, insecure)
    if insecure:
        open_to_all(app)
    if grace is not None:
        runtime = runtime_of(app)
        runtime.worker = replace(runtime.worker, grace=grace)
    run_server(app, host, port)


def _load(target: str, database: str, schema: str | None) -> App:
    name, _, wanted = target.partition(":")
    module = load(name)
    own = app_of(module, wanted or None)
    apps = {id(found) for found in vars(module).values() if isinstance(found, App)}
    if own is None and len(apps) > 1:
        raise Refused(f"{name!r} defines several Apps; say which one: {name}:APP")
    app = settle(own, database, schema, serves=True)
    register(app, module)
    if own is None and not app.workflows:
        raise Failed(f"there is no App and no workflow in {name!r}; is @workflow missing?")
    return app


def check_guarded(app: App, host: str, insecure: bool, *, shows: bool = False) -> None:
    """Beyond this machine an app without tokens is open to everybody: that has to be said."""
    runtime = runtime_of(app)
    if not runtime.tokens and not (insecure or runtime.http.open) and not _is_loopback(host):
        could = "look at" if shows else "act on"
        raise Refused(
            f"without tokens anybody who reaches {host} could {could} the workflows; give the App tokens=[...] or set "
            "ROMANCY_TOKENS, or say --insecure"
        )


def open_to_all(app: App) -> None:
    """Without tokens an app answers this machine only, whatever it listens on."""
    runtime = runtime_of(app)
    runtime.http = replace(runtime.http, open=True)


_SERVES = "serves {url} ({who}) on {place} {known}"


def run_server(app: App, host: str, port: int, allows: Collection[str] = SCOPES, said: str = _SERVES) -> None:
    """Serve until a signal comes, and say so. `allows`: the scopes that are of any use, whatever a token says."""
    from romancy.http import server  # only here: uvicorn takes its time to import

    try:
        bound = server.listen(host, port)
    except OSError as error:
        why = error.strerror or error
        raise Failed(f"can't listen on {host}:{port}: {why}; choose another --port or --host") from None
    with bound:
        server.run(server.serve(app, http_app(app, allows), bound, lambda: _announce(app, bound, said)))


def _announce(app: App, bound: socket.socket, said: str) -> None:
    host, port = bound.getsockname()[:2]
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    runtime = runtime_of(app)
    is_open = runtime.http.open and not _is_loopback(host)
    who = "with a token" if runtime.tokens else "without tokens" if is_open else "from this machine only"
    database = runtime.shown_database if "://" in app.database else Path(app.database).name
    known = f"with {', '.join(app.workflows) or 'no workflows'}" if runtime.works else "without a worker"
    logging.getLogger("romancy").info("romancy %s", said.format(url=where, who=who, place=database, known=known))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
