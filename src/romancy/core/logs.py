"""The logger. Untrusted text, such as the message of an error, can't imitate a log line.

This works with all handlers and formatters: strings that are arguments of a message are written on one line, and a
traceback, which ends with the message of its error, is indented.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any, cast

from romancy.core.visible import printable, visible


class Lines(str):
    """Several trusted lines, logged as they are."""

    __slots__ = ()


class _OneLine:
    """Untrusted text on one line. Its `repr` is that of the text."""

    __slots__ = ("_given",)

    def __init__(self, given: object) -> None:
        self._given = given

    def __str__(self) -> str:
        return printable(str(self._given))

    def __repr__(self) -> str:
        return repr(self._given)


class _Unforged(logging.Filter):
    """Cleans every record before the handlers see it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_checked, record.args))
        elif isinstance(record.args, Mapping):
            record.args = {name: _checked(value) for name, value in record.args.items()}
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            record.exc_text = indented("".join(traceback.format_exception(*record.exc_info)))
        return True


def _checked(given: Any) -> Any:
    if isinstance(given, Lines) or not isinstance(given, str | BaseException):
        return given
    return given if str(given).isprintable() else _OneLine(cast(object, given))


def fields(instance_id: str, workflow: str, headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return what every log record about an instance has as `extra`."""
    return {"instance_id": instance_id, "workflow": workflow, **_trace(headers)}


def _trace(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return the trace that an instance belongs to, for its log records; nothing if it has none."""
    parts = headers.get("traceparent", "").split("-") if headers else []
    return {"trace_id": parts[1]} if len(parts) >= 4 else {}


def indented(text: str) -> str:
    """Indent lines, so that none looks like the start of a record."""
    return "\n".join(f"  {visible(line)}" for line in text.rstrip("\n").split("\n"))


logger = logging.getLogger("romancy")
logger.addFilter(_Unforged())
