"""`make test-dependencies` pins every dependency and every extra to its lower bound."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from scripts import dependency_bounds

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SCRIPT = (ROOT / "scripts" / "test-dependencies").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("requirement", "pin"),
    [
        ("click>=8.2", "click==8.2"),
        ("django>=5.2,<6", "django==5.2"),
        ("sqlalchemy[asyncio]>=2.0", "sqlalchemy[asyncio]==2.0"),
        ("uvloop>=0.21; sys_platform != 'win32'", "uvloop==0.21; sys_platform != 'win32'"),
    ],
)
def test_the_lower_bound_becomes_a_pin(requirement: str, pin: str) -> None:
    assert dependency_bounds.pinned(requirement) == pin


@pytest.mark.parametrize("requirement", ["click", "click<9", "click==8.2", "click~=8.2"])
def test_a_dependency_needs_a_lower_bound(requirement: str) -> None:
    with pytest.raises(SystemExit, match="must begin with a lower bound"):
        dependency_bounds.pinned(requirement)


def test_no_dependency_and_no_extra_is_left_out() -> None:
    pins = dependency_bounds.requirements("lowest")
    needed = [*PROJECT["project"]["dependencies"]]
    needed += [one for several in PROJECT["project"]["optional-dependencies"].values() for one in several]
    assert {dependency_bounds.pinned(one) for one in needed} <= set(pins)
    tools = [one for one in pins if one not in {dependency_bounds.pinned(one) for one in needed}]
    assert sorted(dependency_bounds.taken_apart(one)["name"] for one in tools) == sorted(dependency_bounds.TOOLS)


def test_its_folders_and_files_exist() -> None:
    named = [word for word in SCRIPT.replace("(", " ").replace(")", " ").split() if word.startswith("tests/")]
    assert "tests/unit" in named
    assert [path for path in named if not (ROOT / path).exists()] == []
