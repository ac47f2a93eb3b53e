"""The group of all commands: their order in `--help`, and errors as one clear line."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from romancy import __version__
from romancy.cli.acting import cancel, resume, send, start
from romancy.cli.check import check
from romancy.cli.demo import demo
from romancy.cli.failing import as_line
from romancy.cli.reading import list_, show, waits
from romancy.cli.replaying import replay
from romancy.cli.running import run, worker
from romancy.cli.why import why

SECTIONS = {
    "Run": (demo, run, worker, check),
    "Look": (list_, show, why, waits, replay),
    "Act": (start, send, cancel, resume),
}


class Romancy(click.Group):
    """Lists its commands by what they are for; whatever goes wrong is one line on stderr."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [command.name or "" for commands in SECTIONS.values() for command in commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{c.name:{width}}", c.get_short_help_str(90)) for c in commands])

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
            line, code = as_line(error)
            click.echo(f"romancy: {line}", err=True)
            sys.exit(code)
        sys.exit(code if isinstance(code, int) else 0)


@click.group(
    cls=Romancy,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="romancy")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Durable workflows: run them, look at them, act on them.

    Most commands work on a database: --database/-d, else $ROMANCY_DATABASE, else ./romancy.db.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _commands in SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)
