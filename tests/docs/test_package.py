"""What `make package` would find out late: metadata, the contents of packages, and the checks themselves."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import romancy

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def script() -> Any:
    spec = importlib.util.spec_from_file_location("package_checks", ROOT / "scripts" / "package_checks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


checks = script()


def test_classifiers_name_every_python() -> None:
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert pythons == ["3.11", "3.12", "3.13", "3.14", "3.15"]
    assert PROJECT["requires-python"] == f">={pythons[0]}"


def test_versions_agree() -> None:
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "romancy" / "Chart.yaml").read_text(encoding="utf-8"))
    assert {romancy.__version__, chart["version"], chart["appVersion"]} == {PROJECT["version"]}


def test_the_sdist_has_every_folder_that_is_part_of_the_project() -> None:
    included = set(PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    folders = {"src", "tests", "examples", "bench", "docs", "scripts", "deploy", ".github"}
    assert {f"/{name}" for name in folders if (ROOT / name).is_dir()} <= included


def test_wrong_contents_are_noticed() -> None:
    tracked = {"pyproject.toml", "src/romancy/a.py", "tests/test_a.py", ".ci/run"}
    good_sdist, good_wheel = tracked - {".ci/run"} | {"PKG-INFO"}, {"romancy/a.py"}
    assert checks.compare(tracked, good_sdist, good_wheel) == []
    cache = "tests/__pycache__/test_a.pyc"
    assert checks.compare(tracked, good_sdist | {cache}, good_wheel) == [
        f"{cache} is in the sdist, but not tracked by git"
    ]
    assert checks.compare(tracked, good_sdist - {"tests/test_a.py"}, good_wheel) == [
        "tests/test_a.py is not in the sdist"
    ]
    assert checks.compare(tracked, good_sdist, {"tests/test_a.py"}) == [
        "romancy/a.py is not in the wheel",
        "tests/test_a.py is in the wheel, but not in src",
    ]


@pytest.mark.parametrize(
    ("module", "missing", "needed"),
    [
        ("romancy.contrib.sqlalchemy", "sqlalchemy.ext", "romancy[sqlalchemy]"),
        ("romancy.contrib.sqlalchemy", "ruff", None),
        ("romancy.app", "sqlalchemy", None),
    ],
)
def test_only_some_modules_may_need_more(module: str, missing: str, needed: str | None) -> None:
    cause = ModuleNotFoundError(name=missing)
    assert checks.needed_by(module, cause) == needed
    for told in (ImportError("install it"), ModuleNotFoundError("install it")):
        told.__cause__ = cause
        assert checks.needed_by(module, told) == needed
    assert checks.needed_by(module, ImportError("cannot import name")) is None


def test_what_may_be_needed_is_an_extra() -> None:
    extras = {f"romancy[{name}]" for name in PROJECT["optional-dependencies"]}
    assert set(checks.NEEDS_MORE.values()) <= extras | {"pytest"}
