"""Crash at every commit point: before it reaches the database, and after, with the answer lost.

Whoever comes after must end every workflow exactly as the run that nobody disturbed: the same outputs, history, events
sent and consumed, and nothing left behind.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.faults import Fault, When
from tests.crash.scenarios import SCENARIOS, Scenario
from tests.crash.stage import stage

OWNING = ("register", "take_over", "claim")
ends = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)


async def play(scenario: Scenario, *faults: Fault) -> dict[str, Any]:
    async with stage(scenario.workflows, *faults) as it:
        await scenario.script(it)
        outcome = await it.outcome()
    if not scenario.ordered:
        outcome["history"] = sorted(outcome["history"], key=lambda entry: entry[:3])
    return outcome


@ends
async def test_the_undisturbed_run_ends_everything(scenario: Scenario) -> None:
    outcome = await play(scenario)
    assert {status for _, status, _, _ in outcome["instances"]} <= {10, 11, 12}
    assert not outcome["left behind"]


@pytest.mark.parametrize("when", ["before", "after"])
@ends
async def test_a_crash_at_any_commit_changes_nothing(scenario: Scenario, when: When) -> None:
    expected = await play(scenario)
    k = 0
    while True:
        k += 1
        fault = Fault(k, when)
        outcome = await play(scenario, fault)
        for part, value in expected.items():
            assert outcome[part] == value, f"{part} differs after a crash {when} commit {k}"
        if not fault.struck:
            break
    assert k > 3, "the scenario hardly commits anything"
