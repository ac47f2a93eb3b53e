"""The shape of the house: small files with plain names, complete maps, no circles, a protocol that is documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import romancy
from romancy.storage.catalog import Catalog
from romancy.storage.protocol import Storage
from romancy.storage.sessions import Sessions

SOURCE = Path(romancy.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
LINES = 500
FUNCTION_LINES = 70
MAPPED = (
    "api cli client core core/operations engine explain http storage storage/postgres storage/sqlite viewer".split()
)
GERUNDS = {"waiting", "sending", "testing", "balancing", "offspring"}
"""Nouns of the trade that end in -ing."""


def name_of(file: Path) -> str:
    parts = ("romancy", *file.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_files_and_functions_are_small(file: Path) -> None:
    text = file.read_text()
    assert len(text.splitlines()) <= LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            assert node.end_lineno - node.lineno < FUNCTION_LINES, f"{node.name} is long"


def test_modules_are_nouns() -> None:
    names = {part for file in FILES for part in name_of(file).split(".")}
    assert {name for name in names if name.endswith("ing")} <= GERUNDS


@pytest.mark.parametrize("package", MAPPED)
def test_every_map_lists_every_file(package: str) -> None:
    doc = importlib.import_module("romancy." + package.replace("/", ".")).__doc__ or ""
    listed = set(re.findall(r"^ *(\w+(?:\.py|/))(?=\s)", doc, re.MULTILINE))
    listed |= set(re.findall(r"; (\w+/) ", doc))
    folder = SOURCE / package
    there = {file.name for file in folder.glob("*.py") if file.name not in ("__init__.py", "__main__.py")}
    there |= {f"{sub.name}/" for sub in folder.iterdir() if sub.is_dir() and sub.name != "__pycache__"}
    assert listed == there


@pytest.mark.parametrize("protocol", [Storage, Catalog, Sessions])
def test_every_method_of_a_storage_protocol_states_its_promise(protocol: type) -> None:
    methods = [name for name, value in vars(protocol).items() if not name.startswith("_") and inspect.isfunction(value)]
    assert methods
    assert [name for name in methods if not inspect.getdoc(getattr(protocol, name))] == []


def _imports(name: str, file: Path, modules: set[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                full if full in modules else node.module for a in node.names if (full := f"{node.module}.{a.name}")
            }
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return (found & modules) - {name}


def test_no_circle_of_files() -> None:
    """Lazy imports and those for type checkers count. What is left when files that import nothing are taken away."""
    files = {name_of(file): file for file in FILES}
    graph = {name: _imports(name, file, set(files)) for name, file in files.items()}
    while True:
        free = {name for name, imports in graph.items() if not imports & graph.keys()}
        free |= graph.keys() - {imported for imports in graph.values() for imported in imports}
        if not free:
            break
        graph = {name: imports for name, imports in graph.items() if name not in free}
    assert not graph


def test_every_module_says_what_it_is_for() -> None:
    for module in pkgutil.walk_packages(romancy.__path__, "romancy."):
        if not module.name.endswith("__main__"):
            assert importlib.import_module(module.name).__doc__, module.name
