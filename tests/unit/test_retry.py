"""Retry policies: pure arithmetic."""

from datetime import timedelta
from typing import Any

import pytest

from romancy import NO_RETRY, ActivityContext, RetryPolicy, TerminalError, activity
from romancy.core.retry import allows, next_due

SECOND = 1_000_000


@activity
async def charge(ctx: ActivityContext) -> None: ...


def pauses(policy: RetryPolicy, count: int) -> list[float | None]:
    """Seconds until the next attempt after 1, 2, 3 ... failed ones, each failing at once."""
    dues = [next_due(policy, n, 0, 0) for n in range(1, count + 1)]
    return [None if due is None else due / SECOND for due in dues]


def test_the_default_outlasts_an_outage_of_ten_minutes_by_far() -> None:
    """25 attempts: a service that is down for ten minutes must not fail everything that needs it."""
    policy = RetryPolicy(jitter=0)
    made = pauses(policy, 26)
    assert made == [1, 2, 4, 8, 16, 32, *[60] * 18, None, None]
    assert sum(pause for pause in made if pause is not None) == 1143, "19 minutes"
    assert RetryPolicy() == RetryPolicy(25, timedelta(seconds=1), 2.0, timedelta(seconds=60), 0.1, None, ())


def test_pauses_grow_up_to_the_maximum() -> None:
    policy = RetryPolicy(max_attempts=None, initial=timedelta(seconds=10), backoff=3, maximum=60, jitter=0)
    assert pauses(policy, 5) == [10, 30, 60, 60, 60]
    assert next_due(policy, 100_000, 0, 0) == 60 * SECOND, "no overflow, however long it goes on"


def test_jitter_only_ever_adds() -> None:
    policy = RetryPolicy(jitter=0.5)
    found = {next_due(policy, 1, 0, 0) for _ in range(200)}
    assert all(due is not None and SECOND <= due <= 1.5 * SECOND for due in found)
    assert len(found) > 100


def test_no_attempt_begins_after_the_whole_duration() -> None:
    policy = RetryPolicy(max_attempts=None, backoff=1, initial=10, max_duration=25, jitter=0)
    first = 1_000 * SECOND
    assert next_due(policy, 1, first, first) == first + 10 * SECOND
    assert next_due(policy, 2, first, first + 10 * SECOND) == first + 20 * SECOND
    assert next_due(policy, 3, first, first + 20 * SECOND) is None


def test_no_retry_is_one_attempt() -> None:
    assert pauses(NO_RETRY, 1) == [None]


def test_some_errors_are_never_worth_it() -> None:
    policy = RetryPolicy(non_retryable=(LookupError,))
    assert allows(policy, ValueError())
    assert not allows(policy, KeyError()), "a subclass of what is listed"
    assert not allows(policy, TerminalError("stop"))
    assert not allows(RetryPolicy(), TerminalError("stop"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": -1},
        {"backoff": 0.5},
        {"backoff": float("nan")},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"initial": -1},
        {"initial": float("nan")},
        {"maximum": -1},
        {"maximum": True},
        {"max_duration": timedelta(seconds=-1)},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        RetryPolicy(**wrong)


def test_none_is_refused_where_it_could_mean_two_things() -> None:
    """`retry=None` looks like "no retry", and used to be taken for "the default"."""
    with pytest.raises(TypeError, match=r"activity 'charge': retry=None is ambiguous.*NO_RETRY.*leave retry out"):
        charge.options(retry=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"activity 'pay': retry=None is ambiguous"):

        @activity(retry=None)  # type: ignore[call-overload]
        async def pay(ctx: ActivityContext) -> None: ...

    with pytest.raises(TypeError, match="retry must be a RetryPolicy"):
        charge.options(retry=3)  # type: ignore[arg-type]


def test_what_is_left_out_of_options_stays() -> None:
    once = charge.options(retry=NO_RETRY)
    assert once._retry is NO_RETRY
    assert once.options(timeout=5)._retry is NO_RETRY
    assert charge.options(timeout=5)._retry is None


def test_a_policy_is_a_value() -> None:
    assert RetryPolicy() == RetryPolicy()
    assert hash(RetryPolicy()) == hash(RetryPolicy())
    with pytest.raises(AttributeError):
        RetryPolicy().max_attempts = 3  # type: ignore[misc]
