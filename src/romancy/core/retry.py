"""How often and how soon a failed activity is retried."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Final, NamedTuple

from romancy.core.model import Duration, duration_us
from romancy.errors import TerminalError


@dataclass(frozen=True)
class RetryPolicy:
    """When to retry an activity. The default is 25 attempts, one second apart at first, doubling up to a minute.

    That takes 19 minutes: enough for an outage of ten minutes of the service it calls.

    >>> RetryPolicy(max_attempts=3, initial=timedelta(milliseconds=100))
    """

    max_attempts: int | None = 25
    initial: Duration = timedelta(seconds=1)
    backoff: float = 2.0
    maximum: Duration = timedelta(seconds=60)
    jitter: float = 0.1
    max_duration: Duration | None = None
    non_retryable: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, or None for no limit, not {self.max_attempts}")
        if not self.backoff >= 1:
            raise ValueError(f"backoff must be at least 1, not {self.backoff}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must be between 0 and 1, not {self.jitter}")
        duration_us(self.initial, "initial")
        duration_us(self.maximum, "maximum")
        if self.max_duration is not None:
            duration_us(self.max_duration, "max_duration")


class Policies(NamedTuple):
    """The policies of an app, for activities that have none of their own."""

    calls: RetryPolicy
    undos: RetryPolicy


def allows(policy: RetryPolicy, error: BaseException) -> bool:
    """Return whether this kind of error is retried."""
    return not isinstance(error, (TerminalError, *policy.non_retryable))


def next_due(policy: RetryPolicy, attempts: int, first_at: int, now: int) -> int | None:
    """Return when to retry after this many failed attempts, or None for no more attempts."""
    if policy.max_attempts is not None and attempts >= policy.max_attempts:
        return None
    growth = policy.backoff ** min(attempts - 1, 64)
    pause = min(duration_us(policy.initial) * growth, float(duration_us(policy.maximum)))
    due = now + int(pause * (1 + policy.jitter * random.random()))
    if policy.max_duration is not None and due > first_at + duration_us(policy.max_duration):
        return None
    return due


class Unset(Enum):
    """The type of `UNSET`, the default of parameters for which None would be ambiguous."""

    UNSET = auto()

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET


def check_policy(retry: RetryPolicy | Unset | None, what: str) -> RetryPolicy | None:
    """Return the given policy, or None if there is none. Reject `retry=3`, a common mistake, with a clear error."""
    if retry is None:
        raise TypeError(
            f"{what}: retry=None is ambiguous; "
            "use retry=NO_RETRY for a single attempt, or leave retry out to keep the current policy"
        )
    if isinstance(retry, Unset):
        return None
    if not isinstance(retry, RetryPolicy):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what}: retry must be a RetryPolicy, e.g. RetryPolicy(max_attempts=3), not {retry!r}")
    return retry


NO_RETRY = RetryPolicy(max_attempts=1)
"""For `@activity(retry=NO_RETRY)`: the first error is final."""
