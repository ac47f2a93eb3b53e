"""Crash at every commit point: before it reaches the database, and after, with the answer lost.

Whoever comes after must end every workflow exactly as the run that nobody disturbed: the same outputs, history, events
sent and consumed, and nothing left behind. ROMANCY_TEST_THOROUGH=1 plays every point on PostgreSQL too.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.crash.faults import Fault, When
from tests.crash.ground import Ground
from tests.crash.scenarios import SCENARIOS, Scenario
from tests.crash.stage import stage

pytestmark = [pytest.mark.usefixtures("ground"), pytest.mark.play]
THOROUGH = bool(os.environ.get("ROMANCY_TEST_THOROUGH"))
every = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)


async def play(scenario: Scenario, *faults: Fault) -> dict[str, Any]:
    async with stage(scenario.workflows, *faults) as it:
        await scenario.script(it)
        outcome = await it.outcome()
    return scenario.normal(outcome)


_undisturbed: dict[tuple[str, type[Ground]], tuple[dict[str, Any], int]] = {}


async def undisturbed(scenario: Scenario, ground: Ground) -> tuple[dict[str, Any], int]:
    """How it ends if nothing goes wrong, and with how many commits: played once on each database."""
    key = scenario.name, type(ground)
    if key not in _undisturbed:
        never = Fault(10**9, "before")
        _undisturbed[key] = await play(scenario, never), never.seen
    return _undisturbed[key]


@every
async def test_the_undisturbed_run_ends_everything(scenario: Scenario) -> None:
    outcome = await play(scenario)
    assert {status for _, status, _, _ in outcome["instances"]} <= {10, 11, 12}
    ends = {id: json.loads(output) if output else error["message"] for id, _, output, error in outcome["instances"]}
    assert ends == scenario.ends
    assert not outcome["left behind"]


@pytest.mark.parametrize("when", ["before", "after"])
@every
async def test_a_crash_at_any_commit_changes_nothing(scenario: Scenario, when: When, ground: Ground) -> None:
    expected, commits = await undisturbed(scenario, ground)
    assert commits > 2, "the scenario hardly commits anything"
    for k in chosen(ground, commits, first=1 if when == "before" else 2):
        fault = Fault(k, when)
        outcome = await play(scenario, fault)
        assert fault.struck or not scenario.steady, f"there is no commit {k}"
        for part, value in expected.items():
            assert outcome[part] == value, f"{part} differs after a crash {when} commit {k}"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("k", [1, 2])
async def test_a_crash_while_reopening_changes_nothing(when: When, k: int, ground: Ground) -> None:
    [scenario] = (s for s in SCENARIOS if s.name == "retries")
    expected, _ = await undisturbed(scenario, ground)
    fault = Fault(k, when, ("reopen",))
    outcome = await play(scenario, fault)
    assert fault.struck
    assert outcome == expected


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_while_admitting_changes_nothing(when: When, ground: Ground) -> None:
    """The first instance is admitted by itself, the others in the commits that end those before them."""
    [scenario] = (s for s in SCENARIOS if s.name == "one_at_a_time")
    expected, _ = await undisturbed(scenario, ground)
    fault = Fault(1, when, ("admit",))
    outcome = await play(scenario, fault)
    assert fault.struck
    assert outcome == expected


@pytest.mark.parametrize("when", ["before", "after"])
@every
async def test_a_crash_while_taking_over_changes_nothing(scenario: Scenario, when: When, ground: Ground) -> None:
    """The worker dies in the middle, and its successor while it registers, fences the dead or claims."""
    expected, commits = await undisturbed(scenario, ground)
    middle = commits // 2
    struck = 0
    for k in chosen(ground, 8, first=1 if when == "before" else 2):
        second = Fault(k + 1, when, ("register", "take_over", "claim"))  # the first of them was in its first life
        outcome = await play(scenario, Fault(middle, "after"), second)
        for part, value in expected.items():
            assert outcome[part] == value, f"{part} differs after a second crash {when} write {k} of taking over"
        struck += second.struck
        if not second.struck:
            break
    assert struck > 1, "nothing was taken over"


def chosen(ground: Ground, count: int, first: int) -> range:
    """Of so many points the ones to die at: all, or where a play takes long, every third or so (always the same)."""
    if ground.is_quick or THOROUGH:
        return range(1, count + 1)
    return range(min(first, count), count + 1, max(1, (count + 1) // 3))
