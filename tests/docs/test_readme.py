"""The front page: the two commands, and a quick start that fits on a screen and runs twice."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def quick_start() -> str:
    found = re.search(r"^## Quick start\n\n```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert found, "README.md has no quick start"
    return found[1]


def test_names_the_commands() -> None:
    for command in ("make demo", "make test", "pip install romancy"):
        assert command in README


def test_quick_start_is_short() -> None:
    assert len(quick_start().splitlines()) <= 30


def test_quick_start_runs_and_runs_again(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(quick_start(), encoding="utf-8")
    for _ in range(2):  # the second time the instance is there, and done
        done = subprocess.run(
            [sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "99.99 paid, parcel of ORD-1 sent\n", "")
