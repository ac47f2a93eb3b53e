"""Continuing as new: a run ends, and the instance goes on with a new one and an empty history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True, slots=True)
class NextRun:
    """What an instance continues with."""

    workflow: str
    input: bytes
    input_kind: int
    deadline: int | None = None
    """None: the deadline of the instance stands."""


class ContinueAsNew(BaseException):
    """Leaves the workflow function. Not an `Exception`: `except Exception` in user code must not catch it."""

    def __init__(self, next_run: NextRun) -> None:
        super().__init__(f"continues as new with workflow {next_run.workflow!r}")
        self.next_run = next_run


def continuation(error: BaseException | None) -> NextRun | None:
    """Return what an error that left the workflow function continues with. A task group wraps it in a group."""
    if isinstance(error, ContinueAsNew):
        return error.next_run
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return next((found for inner in group.exceptions if (found := continuation(inner)) is not None), None)
    return None
