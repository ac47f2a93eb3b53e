"""A small play of kills.py: real kills, and each kind of pill. `make kills` plays longer ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import pg_server

pytestmark = pytest.mark.play

ROOT = Path(__file__).parents[2]


def play(database: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.crash.kills", "--database", database, *arguments]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    if database == "postgres":
        env["ROMANCY_TEST_POSTGRES"] = pg_server.url()
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=110, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_no_innocent_is_blocked_and_the_pill_is(database: str) -> None:
    found = play(database, "--kills", "12", "--every", "0.4", "--pills", "1", "--pills-every", "0.5", "--seed", "5")
    assert found["innocents_blocked"] == 0, json.dumps(found)
    assert found["pills_blocked"] == 1, json.dumps(found)
    assert found["innocents"] > 30
