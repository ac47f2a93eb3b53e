"""A short storm on each database. `make storm` plays longer ones."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from romancy import WorkflowFailed
from tests import pg_server
from tests.crash.family_storm import Storm, judge
from tests.crash.storm_cast import WORKFLOWS, Observer, trip

ROOT = Path(__file__).parents[2]


def play(database: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.crash.family_storm", "--database", database, *arguments]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    if database == "postgres":
        env["ROMANCY_TEST_POSTGRES"] = pg_server.url()
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=110, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


async def test_the_judge_knows_a_step_that_a_retried_fork_repeats(tmp_path: Path) -> None:
    """A fork does not undo what it was given, so it can be retried, and then does that itself under another key."""
    storm = Storm(str(tmp_path / "storm.db"), None, 1, 0.1, folder=str(tmp_path))
    child = {"name": "child", "steps": [["repairable", "child"]]}
    plan = {"name": "plan", "steps": [["called", [child], None, "lenient"], ["book", 0, "well"], ["nap", 1], ["raise"]]}
    async with storm.app(workflows=list(WORKFLOWS.values()), state=Observer(storm.folder)) as app:
        original = await app.start_workflow(trip, plan)
        booked: list[int] = []
        while not booked:
            await asyncio.sleep(0.01)
            booked = [e.n for e in await app.get_history(original.instance_id) if e.kind == "activity_completed"]
        fork = await app.fork_workflow(original.instance_id, at=booked[0])
        Observer(storm.folder).note("forked", instance=fork.instance_id, taken=None)
        for failed in (original, fork):
            with pytest.raises(WorkflowFailed):
                await failed.result(timeout=20)
        await app.retry_workflow(fork.instance_id, steps="failed")
        with pytest.raises(WorkflowFailed):
            await fork.result(timeout=20)
    judged, faults = await judge(storm)
    assert any("~" in key for key in judged.cases[fork.instance_id].undone)
    assert not faults


@pytest.mark.play
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_sagas_families_retries_and_forks_in_a_storm(database: str) -> None:
    found = play(database, "--minutes", "0.2", "--every", "0.7", "--lease", "1", "--calm", "60", "--seed", "11")
    assert not found["faults"], json.dumps(found, indent=2)
    lines = found["lines"]
    assert found["kills"] > 2, json.dumps(found)
    assert found["pauses"] > 2, json.dumps(found)
    assert min(lines[what] for what in ("did", "undid", "took", "retried", "forked", "cancelled")) > 0, lines
