"""The log format of the command line."""

from __future__ import annotations

import logging

from romancy.cli.lifeline import Lifeline
from romancy.core.visible import visible


class LogFormatter(logging.Formatter):
    """Formats a record as one line, with its instance if it has one: `[order order-1] attempt 1 failed`.

    Further lines of a message are indented, so that every record starts with a time. `worker` is the number of this
    process if several write to one log: `romancy[2]: ...`.
    """

    def __init__(self, worker: int | None = None) -> None:
        mark = "" if worker is None else f"[{worker}]"
        super().__init__(f"%(asctime)s %(levelname)s %(name)s{mark}: %(about)s%(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        known = [getattr(record, name, None) for name in ("workflow", "instance_id")]
        about = " ".join(str(part) for part in known if part)
        record.about = f"[{about}] " if about else ""
        return "\n    ".join(map(visible, super().formatMessage(record).split("\n")))


def log_to_stderr(level: int, lifeline: Lifeline | None = None) -> None:
    """Log to stderr, unless the user's code has already set up logging."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter(None if lifeline is None else lifeline.number))
    logging.basicConfig(level=level, handlers=[handler])
