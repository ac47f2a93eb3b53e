"""Error messages and exit codes: each error is one line that says what to do."""

from __future__ import annotations

import click

from romancy.cli.words import is_worth_showing
from romancy.core.visible import printable
from romancy.errors import (
    AccessDenied,
    InstanceExists,
    InstanceNotFound,
    InvalidEvent,
    InvalidInput,
    RomancyError,
    ScheduleNotFound,
    WorkflowBlocked,
    WorkflowFailed,
)
from romancy.storage.errors import NotThere


class Refused(click.ClickException):
    """The command was called incorrectly: a missing file, an unknown module, invalid JSON."""

    exit_code = 2


class Failed(click.ClickException):
    """The command was correct but did not succeed."""

    exit_code = 1


def as_line(error: Exception) -> tuple[str, int]:
    """Return the line to print and the exit code: 2 for incorrect usage, 1 for other errors."""
    if isinstance(error, click.Abort):
        return "interrupted", 130
    text, code = _explain(error)
    return printable(" ".join(text.split())), code


def _explain(error: Exception) -> tuple[str, int]:
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "romancy"
        text = error.format_message().removesuffix(".")
        return f"{text[:1].lower()}{text[1:]}; see `{command} --help`", error.exit_code
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, InstanceNotFound):
        return f"no instance with id {error.instance_id!r}; `romancy list` shows all instances", 1
    if isinstance(error, ScheduleNotFound):
        return f"no schedule named {error.name!r}; `romancy schedules` shows all schedules", 1
    if isinstance(error, InstanceExists) and error.advice:
        return f"{error.problem}; use another --id", 1
    if isinstance(error, WorkflowFailed):
        hint = f"; `romancy show {error.instance_id}` shows the traceback" if is_worth_showing(error.traceback) else ""
        return f"{error}{hint}", 1
    if isinstance(error, WorkflowBlocked):
        id = error.instance_id
        return f"instance {id!r} is blocked: {error.reason}; `romancy why {id}` shows what to do", 1
    if isinstance(error, AccessDenied) and error.status == 401:
        return f"{error.problem}; set ROMANCY_TOKEN, or give a token file with --token-file", 1
    if isinstance(error, RomancyError):
        return str(error), 2 if isinstance(error, (InvalidInput, InvalidEvent, NotThere)) else 1
    if isinstance(error, OSError):
        return str(error), 1
    shown = f"{type(error).__name__}: {error}"
    return f"unexpected error: {shown} (set ROMANCY_DEBUG=1 to see the traceback)", 1
