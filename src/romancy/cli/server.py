"""`romancy serve`: an app's HTTP server and its worker, in one process or in several."""

from __future__ import annotations

import logging
import socket
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import click

from romancy.app import App, http_app
from romancy.cli.database import check_shareable, database_options, settle
from romancy.cli.errors import Failed, Refused
from romancy.cli.lifeline import Lifeline, take_lifeline
from romancy.cli.logs import log_to_stderr
from romancy.cli.modules import app_of, load, register
from romancy.cli.reloader import reload_on_change
from romancy.cli.supervisor import supervise, workers_option
from romancy.core.garbage import collect_less
from romancy.http.listener import listen, url_of
from romancy.service import runtime_of
from romancy.tokens import SCOPES

host_option = click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
port_option = partial(
    click.option,
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)


@click.command()
@click.argument("target", metavar="MODULE[:APP]")
@host_option
@port_option(default=8001)
@click.option("--insecure", is_flag=True, help="Accept other machines although the App has no tokens.")
@click.option(
    "--grace",
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    help="Time for requests, and then activities, to finish on shutdown; by default the App's.",
)
@click.option("--reload", is_flag=True, help="Restart when a .py file below this folder changes; for development.")
@workers_option
@database_options
def serve(
    target: str,
    host: str,
    port: int,
    insecure: bool,
    grace: float | None,
    reload: bool,
    workers: int,
    database: str,
    schema: str | None,
) -> None:
    """Accept events, serve the control API, and run the workflows.

    If MODULE defines one App, or MODULE:APP names one, its settings apply, and its database unless another is given.
    Otherwise, the server runs every workflow in the module. An App(worker=False) is served without running workflows;
    run `romancy worker` beside it.

    With --workers N, N processes share the port. Those that die are restarted.

    Access is controlled by the App's tokens or by $ROMANCY_TOKENS (separated by spaces). Without tokens, only this
    machine has access.
    """
    if reload and workers > 1:
        raise Refused("--reload runs one process; leave out --workers (and unset ROMANCY_WORKERS)")
    if reload:
        raise click.exceptions.Exit(reload_on_change())
    lifeline = take_lifeline()
    log_to_stderr(logging.INFO, lifeline)
    if workers > 1 and lifeline is None:
        raise click.exceptions.Exit(supervise(workers, bind(host, port)))
    app = _load(target, database, schema)
    if lifeline is not None:
        check_shareable(app)
    check_guarded(app, host, insecure)
    if insecure:
        open_to_all(app)
    if grace is not None:
        runtime = runtime_of(app)
        runtime.worker = replace(runtime.worker, grace=grace)
    run_server(app, lifeline.bound if lifeline and lifeline.bound else bind(host, port), lifeline=lifeline)


def _load(target: str, database: str, schema: str | None) -> App:
    name, _, wanted = target.partition(":")
    module = load(name)
    own = app_of(module, wanted or None)
    apps = {id(found) for found in vars(module).values() if isinstance(found, App)}
    if own is None and len(apps) > 1:
        raise Refused(f"{name!r} defines several Apps; choose one with {name}:APP")
    app = settle(own, database, schema, serves=True)
    register(app, module)
    if own is None and not app.workflows:
        raise Failed(f"no App and no workflow in {name!r}; is @workflow missing?")
    return app


def check_guarded(app: App, host: str, insecure: bool, *, shows: bool = False) -> None:
    """Refuse to serve other machines without tokens, unless the user asked for it."""
    runtime = runtime_of(app)
    if not runtime.tokens and not (insecure or runtime.http.open) and not _is_loopback(host):
        access = "see" if shows else "control"
        raise Refused(
            f"without tokens, anyone who can reach {host} could {access} the workflows; give the App tokens=[...], set "
            "ROMANCY_TOKENS, or add --insecure"
        )


def open_to_all(app: App) -> None:
    """Let an app without tokens answer other machines; by default it refuses them."""
    runtime = runtime_of(app)
    runtime.http = replace(runtime.http, open=True)


_SERVES = "serves {url} ({who}) on {place} {known}"


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address."""
    try:
        return listen(host, port)
    except OSError as error:
        why = error.strerror or error
        raise Failed(f"can't listen on {host}:{port}: {why}; choose another --port or --host") from None


def run_server(
    app: App,
    bound: socket.socket,
    allows: Collection[str] = SCOPES,
    message: str = _SERVES,
    lifeline: Lifeline | None = None,
) -> None:
    """Serve until a signal, and log `message` when ready. `allows`: the scopes that tokens can grant at most."""
    from romancy.http import server  # imported lazily: uvicorn is slow to import

    def on_started() -> None:
        collect_less()
        text = f"romancy {_describe(app, bound, message)}"
        if lifeline is not None:
            lifeline.report(text, runtime_of(app).grace)
        else:
            logging.getLogger("romancy").info("%s", text)

    with bound:
        descriptor = None if lifeline is None else lifeline.fileno()
        server.run(server.serve(app, http_app(app, allows), bound, on_started, descriptor))


def _describe(app: App, bound: socket.socket, message: str) -> str:
    runtime = runtime_of(app)
    is_open = runtime.http.open and not _is_loopback(bound.getsockname()[0])
    who = "with a token" if runtime.tokens else "without tokens" if is_open else "from this machine only"
    database = runtime.shown_database if "://" in app.database else Path(app.database).name
    known = f"with {', '.join(app.workflows) or 'no workflows'}" if runtime.works else "without a worker"
    return message.format(url=url_of(bound), who=who, place=database, known=known)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
