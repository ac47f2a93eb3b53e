"""Attempts of activities as they are stored, and the evidence about those that were running when their worker died."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Suspicion:
    """The evidence about something that was running when its worker died. Times are estimates, in microseconds."""

    since: int
    tried: int = 0
    """How long it has run since."""
    tried_alone: int = 0
    """How long it has run while no other suspect was running."""
    alone: int = 0
    """Worker deaths during that time."""
    run: int = 0
    """The part of `tried` that belongs to the current run."""
    is_alone: bool = False
    """Whether it is running while no other suspect is."""


@dataclass(slots=True)
class Attempt:
    """The durable state of an activity that failed, reported progress, or outlived a worker.

    An empty `op` means the code of the workflow, which outlived a worker.
    """

    op: str
    n: int
    """How many attempts have failed."""
    first_at: int
    next_due: int | None = None
    error: bytes | None = None
    progress: bytes | None = None
    crashes: int = 0
    started: bool = False
    suspicion: Suspicion | None = None
    culprit: str = ""
    """The name under which similar suspects are pooled."""


@dataclass(slots=True)
class Trial:
    """A suspect that ran alone and ended normally; kept for the tally of its name."""

    culprit: str
    at: int
    since: int
    tried_alone: int
    alone: int
