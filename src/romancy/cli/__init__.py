"""The command line: `romancy --help`. A command works on a target: a database or a server.

group.py            all commands: their order in `--help`, and errors as one line
workers.py          `run` and `worker`
server.py           `serve`
project.py          `init`; templates/ holds the files it writes
check.py            `check`; checker/ analyzes the code
lists.py            `list`, `show`, `waits`
events.py           `events`
why.py              `why`
doctor.py           `doctor`
place_checks.py     what it checks before it opens a database: the file or the server, versions
state_checks.py     what it checks in it: workers, and what can't go on
findings.py         what it found, and how that is shown
inbox.py            `inbox`
questions.py        `questions`, `answer`
sinks.py            `sinks`
queues.py           `queues`
desk.py             `workers`, `retry-now`
endings.py          how an instance ended, and which command lets it go on
children.py         the children of an instance, for `show` and `why`
replays.py          `replay`
survey.py           `replay --all`: sums up the replays of all unfinished instances
differences.py      where code leaves a history, in words
emissions.py        `tail`
live.py             `viewer` and `top`
actions.py          `start` and `send`
bulk.py             `cancel` and `resume`, for one instance or many
reruns.py           `retry` and `fork`
schedules.py        `schedules`
databases.py        `migrate` and `copy`
demo/               `demo`
target.py           the interface of a target
target_options.py   `--database`, `--url` and related options: choose the target
database_target.py  a database as a target
server_target.py    a server as a target
instance_filters.py `--status`, `--workflow`, `--since`, ...: which instances are meant
database.py         `--database` and `--schema`
modules.py          find and import the user's modules
arguments.py        convert command-line words to workflow arguments
reloader.py         `--reload`
supervisor.py       `--workers`: several processes, restarted when they die
lifeline.py         what connects these processes with their supervisor
errors.py           error messages and exit codes
screen.py           output: tables, facts and JSON
words.py            format times and values as text
logs.py             log format
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(prog_name: str | None = None) -> None:
    """Run the command line. Imports happen inside the `try`, so that Ctrl-C during import prints one line."""
    try:
        from romancy.cli.group import main as group

        group(prog_name=prog_name)
    except KeyboardInterrupt:
        sys.stderr.write("romancy: interrupted\n")
        sys.exit(130)
