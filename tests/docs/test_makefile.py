"""`make test` says what it does to the machine, and can be told not to. The machine here is a PATH without browsers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Programs that are on it: no browser, and an apt-get that only says that it was called."""
    for name in ("make", "sh", "cat", "touch"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    script(tmp_path / "apt-get", f'echo "$@" >> {tmp_path}/installed\n')
    return tmp_path


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


def look_for_a_browser(machine: Path, *words: str, user: int = 0, **env: str) -> tuple[int, str, bool]:
    """The exit code, what was said, and whether something was to be installed."""
    script(machine / "id", f"echo {user}\n")
    command = ["make", "-C", str(ROOT), ".browser", *words]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(machine), **env})
    lines = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("make")]
    return done.returncode, "\n".join(lines), (machine / "installed").exists()


def test_installing_a_browser_is_said(machine: Path) -> None:
    code, said, has_installed = look_for_a_browser(machine)
    assert (code, has_installed) == (0, True)
    assert "installing it on this machine, as root, with apt-get (not wanted: make test BROWSER=no)" in said
    assert said.endswith("No chromium: the browser tests are skipped (apt-get install chromium)."), (
        "the apt-get is no good"
    )


def test_it_can_be_told_not_to(machine: Path) -> None:
    said = "BROWSER=no: the browser tests are skipped, and nothing is installed."
    assert look_for_a_browser(machine, "BROWSER=no") == (0, said, False)


def test_who_may_not_install_is_told_once_what_is_skipped(machine: Path) -> None:
    said = "No chromium: the browser tests are skipped (apt-get install chromium)."
    assert look_for_a_browser(machine, user=1000) == (0, said, False)


@pytest.mark.parametrize("words", [(), ("BROWSER=no",)])
def test_in_ci_a_missing_browser_is_a_failure(machine: Path, words: tuple[str, ...]) -> None:
    code, said, _ = look_for_a_browser(machine, *words, user=1000, CI="true")
    assert code != 0
    assert "CI" in said


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome"])
def test_nothing_is_said_or_done_where_there_is_one(machine: Path, name: str) -> None:
    script(machine / name, "")
    assert look_for_a_browser(machine) == (0, "", False)
