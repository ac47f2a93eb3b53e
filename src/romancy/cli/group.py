"""The group of all commands: their order in `--help`, and errors as one line.

A command is imported only when it is called, so `--help`, `--version` and usage errors stay fast.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "demo": ("demo:demo", "Watch a demo: workflows wait, a worker is killed, nothing is lost."),
        "init": ("project:init", "Write a new project that runs: a workflow, its tests, a Dockerfile."),
        "run": ("workers:run", "Run a workflow to completion and print its result."),
        "worker": ("workers:worker", "Run a worker for the workflows of one or more modules."),
        "serve": ("server:serve", "Accept events, serve the control API, and run the workflows."),
        "mcp": (
            "romancy.contrib.mcp.command:mcp",
            "Offer workflows to AI agents as tools (MCP), or a view for operators.",
        ),
        "check": ("check:check", "Check workflow code for clocks, randomness and I/O."),
    },
    "Inspect": {
        "list": ("lists:list_", "List instances, newest first."),
        "show": ("lists:show", "Show an instance with its waits and history."),
        "why": ("why:why", "Explain what an instance waits for and which events came close."),
        "doctor": ("doctor:doctor", "Say what is wrong with a database or a server, and how to fix it."),
        "waits": ("lists:waits", "List open waits."),
        "schedules": ("schedules:schedules", "List schedules; pause, resume, trigger or delete one."),
        "events": ("events:events", "List events, newest first, or which old ones are kept for whom."),
        "inbox": ("inbox:inbox", "List what is in the inbox: starts and events of `app.within`."),
        "queues": ("queues:queues", "List queues: how many instances run, and how many wait."),
        "questions": ("questions:questions", "List questions to people that workflows wait for."),
        "sinks": ("sinks:sinks", "List sinks and the events they gave up, or try these again."),
        "workers": ("desk:workers", "List workers: where they run, which workflows they have, and their load."),
        "replay": ("replays:replay", "Replay the history of an instance with the current code."),
        "viewer": ("live:viewer", "Serve the viewer, a web page for a database, without a worker."),
        "tail": ("emissions:tail", "Follow what an instance emits, on one topic or on all, until it ends."),
        "top": ("live:top", "Watch instances, open waits and upcoming timers."),
    },
    "Control": {
        "start": ("actions:start", "Start a workflow by name."),
        "send": ("actions:send", "Send an event."),
        "answer": ("questions:answer", "Answer a question in place of a person."),
        "cancel": ("bulk:cancel", "Cancel instances."),
        "resume": ("bulk:resume", "Retry blocked instances after fixing their code."),
        "retry": ("reruns:retry", "Let instances go on that failed or were cancelled."),
        "retry-now": ("desk:retry_now", "Begin attempts now that wait because earlier ones failed."),
        "fork": ("reruns:fork", "Start a new instance with a part of the history of another."),
    },
    "Manage databases": {
        "migrate": ("databases:migrate", "Upgrade the schema of a database."),
        "copy": ("databases:copy", "Copy a SQLite database to PostgreSQL."),
    },
}
"""Commands by section: each with its location, usually below this package, and the first line of its help."""
_WHERE = {name: where for commands in SECTIONS.values() for name, (where, _) in commands.items()}


class Romancy(click.Group):
    """Lists its commands by section and prints any error as one line on stderr."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_WHERE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _WHERE:
            return None
        module, _, attribute = _WHERE[cmd_name].partition(":")
        try:
            found = import_module(module if module.startswith("romancy.") else f"romancy.cli.{module}")
        except ModuleNotFoundError as error:  # of an optional package: the error says how to install it
            raise click.ClickException(str(error)) from error
        return getattr(found, attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _WHERE))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", text) for name, (_, text) in commands.items()])

    def main(self, *args: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **kwargs)
        try:
            code = super().main(*args, standalone_mode=False, **kwargs)
        except BrokenPipeError:  # as in `romancy list | head -1`: discard the rest of the buffer
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            sys.exit(1)
        except Exception as error:
            if os.environ.get("ROMANCY_DEBUG"):
                raise
            from romancy.cli.errors import as_line

            line, code = as_line(error)
            click.echo(f"romancy: {line}", err=True)
            sys.exit(code)
        sys.exit(code if isinstance(code, int) else 0)


def _show_version(ctx: click.Context, option: click.Parameter, is_set: bool) -> None:
    if is_set and not ctx.resilient_parsing:
        from romancy import __version__

        click.echo(f"romancy, version {__version__}")
        ctx.exit()


@click.group(
    cls=Romancy,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Run, inspect and control durable workflows.

    Most commands work on a database: the one given with -d/--database or $ROMANCY_DATABASE, by default ./romancy.db.
    Many can use a server instead, given with --url or $ROMANCY_URL.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
