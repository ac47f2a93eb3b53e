"""The command line: `romancy --help`. A command works on a target: a database, or a server that has one.

group.py            all commands: their order in `--help`, and errors as one clear line
workers.py          `run` and `worker`
server.py           `serve`
check.py            `check`; checker/ reads the code
lists.py            `list`, `show`, `waits`
why.py              `why`
replays.py          `replay`
live.py             `viewer` and `top`
actions.py          `start`, `send`, `cancel`, `resume`
databases.py        `migrate` and `copy`
demo/               `demo`
target.py           what a command can ask of a target
target_options.py   `--database`, `--url` and the like: which target it is
database_target.py  a database as a target
server_target.py    a server as a target
database.py         `--database` and `--schema` alone
modules.py          the user's modules: found and imported
arguments.py        words on the command line as a workflow's arguments
reloader.py         `--reload`
errors.py           errors as people read them, and exit codes
screen.py           tables, facts and JSON
words.py            times and values in words
logs.py             what a worker's log looks like
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(prog_name: str | None = None) -> None:
    """The entry point. It imports late, so that Ctrl-C is one line from the first moment on."""
    try:
        from romancy.cli.group import main as group

        group(prog_name=prog_name)
    except KeyboardInterrupt:
        sys.stderr.write("romancy: interrupted\n")
        sys.exit(130)
