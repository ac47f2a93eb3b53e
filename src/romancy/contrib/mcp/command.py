"""`romancy mcp`: workflows as tools of agents, or a read-only server for operators."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TextIO

import click

from romancy.app import App
from romancy.cli.database import database_options, settle
from romancy.cli.errors import Failed, Refused
from romancy.cli.logs import log_to_stderr
from romancy.cli.modules import app_of, load, register
from romancy.cli.server import bind, check_guarded, open_to_all
from romancy.contrib.mcp.calls import Caller, Calls
from romancy.contrib.mcp.endpoint import MCPApp, Places
from romancy.contrib.mcp.offers import Offer, is_marked, make_offers
from romancy.contrib.mcp.operator_tools import make_server as make_operations
from romancy.contrib.mcp.operator_tools import operations
from romancy.contrib.mcp.stdio import own_stdout, serve_stdio
from romancy.contrib.mcp.workflow_tools import make_server as make_tools
from romancy.http import server as http_server
from romancy.http.listener import url_of
from romancy.service import runtime_of


@click.command()
@click.argument("target", metavar="MODULE[:APP]")
@click.option("--operations", "is_operations", is_flag=True, help="Offer read-only tools for operators instead.")
@click.option("--http", "address", metavar="HOST:PORT", help="Serve both over HTTP, at /mcp and /operations.")
@click.option("--as", "person", metavar="NAME", help="Your name. It is recorded, and you can answer questions to it.")
@click.option("--insecure", is_flag=True, help="With --http: accept other machines although the App has no tokens.")
@database_options
def mcp(
    target: str,
    is_operations: bool,
    address: str | None,
    person: str | None,
    insecure: bool,
    database: str,
    schema: str | None,
) -> None:
    """Offer workflows to AI agents as tools (MCP), or a view for operators.

    It talks over standard input and output, as coding agents start it, and runs the workflows. The tools are the
    workflows that are marked with `@tool` of romancy.contrib.mcp. With --operations, the tools only read (list, show,
    why, replay, waits, events), and no workflow is run.

    With --http, clients need a token of the App, or of $ROMANCY_TOKENS. Without tokens, only this machine has access.

    It needs the package `mcp`: pip install "romancy[mcp]".

    \b
      romancy mcp shop:app
      romancy mcp shop:app --operations
      romancy mcp shop:app --http 127.0.0.1:8002
    """
    if address is not None and is_operations:
        raise Refused("--http serves both, at /mcp and /operations; leave out --operations")
    if address is not None and person is not None:
        raise Refused("--as can't be used with --http, where the name of the token says who the client is")
    if insecure and address is None:
        raise Refused("--insecure requires --http")
    log_to_stderr(logging.INFO if address else logging.WARNING)
    if address is not None:
        _serve_http(_load(target, database, schema), target, address, insecure)
        return
    with own_stdout() as wire:
        _serve_stdio(_load(target, database, schema), target, is_operations, person, wire)


def _serve_stdio(app: App, target: str, is_operations: bool, person: str | None, wire: TextIO) -> None:
    if is_operations:
        runtime = runtime_of(app)
        runtime.works = runtime.creates = False  # who looks runs nothing, least of all code that is being changed
        server = make_operations(app)
    else:
        server = make_tools(Calls(app, _offers(app, target), Caller(person)))
    asyncio.run(serve_stdio(app, server, wire))


def _load(target: str, database: str, schema: str | None) -> App:
    name, _, wanted = target.partition(":")
    module = load(name)
    app = settle(app_of(module, wanted or None), database, schema, serves=True)
    register(app, module)
    return app


def _offers(app: App, target: str) -> Mapping[str, Offer]:
    marked = [wf for wf in app.workflows.values() if is_marked(wf)]
    if not marked:
        raise Failed(
            f"no workflow in {target!r} is marked as a tool; put @tool of romancy.contrib.mcp above its @workflow "
            "(or use --operations)"
        )
    try:
        return make_offers(marked, 5.0)
    except ValueError as error:
        raise Failed(str(error)) from error


def _serve_http(app: App, target: str, address: str, insecure: bool) -> None:
    host, port = _address(address)
    check_guarded(app, host, insecure)
    if insecure:
        open_to_all(app)
    tools = MCPApp(app, make_tools(Calls(app, _offers(app, target))), "control")
    places = Places({"/mcp": tools, "/operations": operations(app)})
    bound = bind(host, port)

    def on_started() -> None:
        who = "with a token" if runtime_of(app).tokens else "without tokens" if insecure else "from this machine only"
        logging.getLogger("romancy").info("romancy serves %s/mcp and /operations (%s)", url_of(bound), who)

    with bound:
        http_server.run(http_server.serve(app, places, bound, on_started))


def _address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise Refused(f"--http takes HOST:PORT, as in 127.0.0.1:8002, not {address!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
