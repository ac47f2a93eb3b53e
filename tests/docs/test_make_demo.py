"""`make demo` sets up what the demo needs and nothing else. The tree, uv and Python here are stand-ins."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROMANCY = r"""mkdir -p "$folder/bin" && printf '#!/bin/sh\necho "%s runs $*"\n' "$folder" > "$folder/bin/romancy"
chmod +x "$folder/bin/romancy"
"""
UV = f"""echo "uv $UV_PROJECT_ENVIRONMENT $*" >> "$LOG"
folder=$UV_PROJECT_ENVIRONMENT
{ROMANCY}"""
PYTHON = f"""echo "python $*" >> "$LOG"
case "$*" in
"-m venv --clear "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
"-m pip --version") exit 1 ;;
"-m pip install "*) folder=$(dirname "$(dirname "$0")")
{ROMANCY};;
esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with a Makefile, beside a folder with all programs there are."""
    tree, programs = tmp_path / "tree", tmp_path / "programs"
    tree.mkdir()
    programs.mkdir()
    for name in ("Makefile", "pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, tree)
    for name in ("make", "sh", "cat", "rm", "mkdir", "cp", "chmod", "dirname", "echo", "printf"):
        (programs / name).symlink_to(shutil.which(name) or "")
    script(programs / "python3", PYTHON)
    return tree


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


def demo(tree: Path, *words: str) -> tuple[str, list[str]]:
    """Return what `make demo` prints, and the programs it called to set something up."""
    log = tree.parent / "log"
    log.write_text("")
    env = {"PATH": str(tree.parent / "programs"), "LOG": str(log)}
    done = subprocess.run(["make", "-C", str(tree), "demo", *words], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    said = "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith("make"))
    called = [line for line in log.read_text().splitlines() if not line.startswith("python -c")]
    return said, called


def with_uv(tree: Path) -> None:
    script(tree.parent / "programs" / "uv", UV)


def test_with_uv_no_development_tools_are_installed(tree: Path) -> None:
    with_uv(tree)
    said, called = demo(tree, "ARGS=--once")
    assert said == "Setting up .venv-demo ...\n.venv-demo runs demo --once\n"
    [call] = called
    assert call.startswith("uv .venv-demo sync --locked --no-dev ")
    assert not (tree / ".venv").exists()


def test_with_pip_no_development_tools_are_installed(tree: Path) -> None:
    said, called = demo(tree)
    assert said == "Setting up .venv-demo ...\n.venv-demo runs demo\n"
    assert called[-1].endswith(" -c .venv-demo/constraints.txt --no-compile -e .")
    assert not [call for call in called if "--group" in call]
    assert not (tree / ".venv").exists()


def test_pip_does_it_when_uv_fails(tree: Path) -> None:
    script(tree.parent / "programs" / "uv", "exit 1\n")
    said, called = demo(tree)
    assert ".venv-demo runs demo\n" in said
    assert called[-1].endswith("-e .")


def test_the_second_time_nothing_is_installed(tree: Path) -> None:
    with_uv(tree)
    demo(tree)
    assert demo(tree) == (".venv-demo runs demo\n", [])


def test_after_a_change_of_the_dependencies_it_is_updated(tree: Path) -> None:
    with_uv(tree)
    demo(tree)
    later = time.time() + 5
    os.utime(tree / "pyproject.toml", (later, later))
    assert len(demo(tree)[1]) == 1


def test_in_a_tree_that_was_moved_it_is_made_again(tree: Path) -> None:
    with_uv(tree)
    demo(tree)
    (tree / ".venv-demo" / "old").touch()
    moved = tree.rename(tree.with_name("moved"))
    said, called = demo(moved)
    assert said == "Setting up .venv-demo ...\n.venv-demo runs demo\n"
    assert len(called) == 1
    assert not (moved / ".venv-demo" / "old").exists()


@pytest.mark.parametrize("made_in", ["here", "elsewhere"])
def test_a_complete_environment_is_used_if_it_belongs_to_this_tree(tree: Path, made_in: str) -> None:
    with_uv(tree)
    (tree / ".venv" / "bin").mkdir(parents=True)
    script(tree / ".venv" / "bin" / "romancy", 'echo "the other runs $*"\n')
    (tree / ".venv" / ".ready").write_text(f"{tree if made_in == 'here' else '/elsewhere'}\n")
    said, called = demo(tree)
    if made_in == "here":
        assert (said, called) == ("the other runs demo\n", [])
    else:
        assert said.endswith(".venv-demo runs demo\n")
        assert (tree / ".venv" / ".ready").exists(), "the demo is not what it was made for"
