"""The group of all commands: their order in `--help`, and errors as one clear line.

A command is imported when it is called: `--help`, `--version` and slips of the pen need none of them.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "demo": ("demo:demo", "See Romancy at work: workflows wait, a worker is killed, nothing is lost."),
        "run": ("workers:run", "Run a workflow to its end and print the result."),
        "worker": ("workers:worker", "Work on the workflows of modules until Ctrl-C or SIGTERM."),
        "serve": ("server:serve", "Take events and serve the control API; work on the workflows too."),
        "check": ("check:check", "Find clocks, randomness and I/O in workflow code."),
    },
    "Look": {
        "list": ("lists:list_", "List instances, newest first."),
        "show": ("lists:show", "Show one instance with its waits and history."),
        "why": ("why:why", "Say what an instance waits for, and which events came near."),
        "waits": ("lists:waits", "List everything that is waited for."),
        "replay": ("replays:replay", "Run an instance's history through today's code."),
        "viewer": ("live:viewer", "Serve the viewer alone: a web page on a database, without a worker."),
        "top": ("live:top", "Watch what runs, what is waited for and what falls due next."),
    },
    "Act": {
        "start": ("actions:start", "Start a workflow by name; a worker that has it runs it."),
        "send": ("actions:send", "Send an event."),
        "cancel": ("actions:cancel", "Cancel an instance; its code may clean up first."),
        "resume": ("actions:resume", "Try a blocked instance again, after you fixed its code."),
    },
    "Move": {
        "migrate": ("databases:migrate", "Bring the schema of a database up to date."),
        "copy": ("databases:copy", "Move a SQLite database to PostgreSQL, with all that waits in it."),
    },
}
"""By what they are for: each command with where it is (below this package), and the first line of its help."""
_WHERE = {name: where for commands in SECTIONS.values() for name, (where, _) in commands.items()}


class Romancy(click.Group):
    """Lists its commands by what they are for; whatever goes wrong is one line on stderr."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_WHERE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _WHERE:
            return None
        module, _, attribute = _WHERE[cmd_name].partition(":")
        return getattr(import_module(f"romancy.cli.{module}"), attribute)

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
        except BrokenPipeError:  # as in `romancy list | head -1`; what is left in the buffer has nowhere to go
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


def _show_version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
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
    """Durable workflows: run them, look at them, act on them.

    Most commands work on a database: --database/-d, else $ROMANCY_DATABASE, else ./romancy.db. Those that look or act
    can ask a server instead: --url, or $ROMANCY_URL.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
