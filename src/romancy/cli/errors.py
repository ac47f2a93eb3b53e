"""Errors as people read them on a command line: one line that says what to do, and an exit code."""

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
    WorkflowBlocked,
    WorkflowFailed,
)
from romancy.storage.errors import NotThere


class Refused(click.ClickException):
    """What was asked for can't be: a missing file, an unknown module, text that is not JSON."""

    exit_code = 2


class Failed(click.ClickException):
    """It was tried, and did not work."""

    exit_code = 1


def as_line(error: Exception) -> tuple[str, int]:
    """What to print and the exit code: 2 for what was typed wrong, 1 for what went wrong."""
    if isinstance(error, click.Abort):
        return "interrupted", 130
    text, code = _explain(error)
    return printable(" ".join(text.split())), code


def _explain(error: Exception) -> tuple[str, int]:
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "romancy"
        return f"{error.format_message().removesuffix('.')}; see {command} --help", error.exit_code
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, InstanceNotFound):
        return f"no instance has the id {error.instance_id!r}; `romancy list` shows those there are", 1
    if isinstance(error, InstanceExists):
        return f"{str(error).removesuffix('; use another instance_id')}; use another --id", 1
    if isinstance(error, WorkflowFailed):
        hint = f"; `romancy show {error.instance_id}` has the traceback" if is_worth_showing(error.traceback) else ""
        return f"{error}{hint}", 1
    if isinstance(error, WorkflowBlocked):
        id = error.instance_id
        return f"instance {id!r} is blocked: {error.reason}; `romancy why {id}` says what to do", 1
    if isinstance(error, AccessDenied) and error.status == 401:
        return f"{str(error).partition(';')[0]}; set ROMANCY_TOKEN, or name the file that holds it with --token-file", 1
    if isinstance(error, RomancyError):
        return str(error), 2 if isinstance(error, (InvalidInput, InvalidEvent, NotThere)) else 1
    if isinstance(error, OSError):
        return str(error), 1
    shown = f"{type(error).__name__}: {error}"
    return f"something unexpected went wrong: {shown} (ROMANCY_DEBUG=1 shows the traceback)", 1
