"""The stages of an attempt of an activity."""

from __future__ import annotations

from enum import Enum


class Stage(Enum):
    """The stage of an attempt."""

    WAITING = "waiting"
    """It waits for its due time, or for a slot."""
    STARTING = "starting"
    """It has a slot, but its code has not started to run."""
    RUNNING = "running"
    EXPIRED = "expired"
    """It timed out and was cancelled, but has not ended yet."""
    WITHDRAWN = "withdrawn"
    """Its result is no longer needed. It may still run, but nothing it does is recorded."""
    ENDED = "ended"


WAITING, STARTING, RUNNING, EXPIRED, WITHDRAWN, ENDED = Stage  # as in resident.py, because it is faster
