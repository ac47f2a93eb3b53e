"""`romancy init`: the project it writes has passing tests, clean code and a workflow that runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from romancy import __version__
from romancy.cli.project import FILES, project_name

ROOT = Path(__file__).parents[2]


def run(folder: Path, *words: str) -> str:
    """Run a program in the folder of a project, as its user would."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("ROMANCY_", "PYTEST_"))}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(romancy, folder: Path) -> Path:
    assert "wrote to My Shop:" in romancy("init", "My Shop").stdout
    return folder / "My Shop"


async def test_its_tests_pass(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(project))
    found = [test for name, test in vars(import_module("test_app")).items() if name.startswith("test_")]
    assert len(found) == 2
    for test in found:
        await test()


@pytest.mark.play
def test_its_tests_pass_with_pytest(project: Path) -> None:
    assert "2 passed" in run(project, "pytest", "-p", "no:cacheprovider")


def test_its_code_is_clean(project: Path, romancy) -> None:
    own = ("--isolated", "--no-cache", "--line-length=120")
    run(project, "ruff", "check", *own, "--select=E,F,I,B,UP,SIM,RUF,ASYNC,PT,C4,PIE,PERF,DTZ", ".")
    run(project, "ruff", "format", *own, "--check", ".")
    assert "no problems in 1 workflow" in romancy("check", str(project / "app.py")).stdout


@pytest.mark.play
def test_its_types_are_right(project: Path) -> None:
    (project / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    assert "0 errors, 0 warnings" in run(project, "pyright", "--pythonpath", sys.executable)


def test_its_workflow_runs(project: Path, romancy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    romancy("start", "order", "ORD-1", "--id", "ORD-1", "--module", "app")
    romancy("send", "payment.completed", '{"amount": 99.5}', "--subject", "ORD-1")
    assert romancy("run", "app:order", "ORD-1", "--id", "ORD-1").stdout == "99.5 paid, parcel of ORD-1 sent\n"
    assert (project / "romancy.db").exists()


def test_it_says_what_it_wrote_and_what_to_do_next(romancy, folder: Path) -> None:
    said = romancy("init", "a/shop").stdout
    assert all(f"  {name} " in said for name in FILES)
    assert sorted(file.name for file in (folder / "a" / "shop").iterdir()) == sorted(FILES)
    assert "cd a/shop" in said
    assert "  cd 'a b'\n" in romancy("init", "a b").stdout
    assert "  cd ./-x\n" in romancy("init", "--", "-x").stdout
    assert "cd " not in romancy("init").stdout  # the current folder


def test_its_project_file_needs_this_romancy(project: Path) -> None:
    read = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    assert (read["name"], read["dependencies"]) == ("my-shop", [f"romancy>={__version__}"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("My Shop", "my-shop"),
        ("x_1", "x-1"),
        ("Ähren", "ahren"),
        ("ünï", "uni"),
        ("Straße", "strasse"),
        ("北 1", "orders"),
    ],
)
def test_a_project_is_named_after_its_folder(name: str, expected: str) -> None:
    assert project_name(Path(name)) == expected


def test_a_project_does_not_take_the_name_of_what_it_needs(project: Path) -> None:
    """Or installing it would remove that, and Romancy with it."""
    ours, theirs = (tomllib.loads((folder / "pyproject.toml").read_text()) for folder in (ROOT, project))
    listed = [*ours["project"]["dependencies"], *theirs["project"]["dependencies"], *theirs["build-system"]["requires"]]
    listed += theirs["project"]["optional-dependencies"]["dev"]
    needs = ["Romancy", "__romancy.", "Pytest.-Asyncio", *(re.split("[^a-z0-9-]", need)[0] for need in listed)]
    assert {"romancy", "click", "pytest", "pytest-asyncio", "setuptools"} < set(needs)
    for name in needs:
        assert project_name(Path(name)) == "-".join(re.findall("[a-z0-9]+", name.lower())) + "-app"


def test_it_overwrites_nothing(refused, folder: Path) -> None:
    (folder / "README.md").write_text("mine")
    (folder / "app.py").symlink_to("nowhere.py")
    assert "already has app.py, README.md; nothing was written" in refused("init", code=1)
    assert (folder / "README.md").read_text() == "mine"
    assert not (folder / "test_app.py").exists()
    assert "'shop.py' is a file" in refused("init", "shop.py")
