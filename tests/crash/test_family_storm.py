"""A short storm on each database. `make storm` plays longer ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import pg_server

ROOT = Path(__file__).parents[2]


def play(database: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.crash.family_storm", "--database", database, *arguments]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    if database == "postgres":
        env["ROMANCY_TEST_POSTGRES"] = pg_server.url()
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=110, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.mark.play
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_sagas_families_retries_and_forks_in_a_storm(database: str) -> None:
    found = play(database, "--minutes", "0.2", "--every", "0.7", "--lease", "1", "--calm", "60", "--seed", "11")
    assert not found["faults"], json.dumps(found, indent=2)
    lines = found["lines"]
    assert found["kills"] > 2, json.dumps(found)
    assert found["pauses"] > 2, json.dumps(found)
    assert min(lines[what] for what in ("did", "undid", "took", "retried", "forked", "cancelled")) > 0, lines
