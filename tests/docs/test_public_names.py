"""Every public name has a docstring, and is used in an example that the tests run."""

from __future__ import annotations

import ast
import importlib
import inspect
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.docs.test_docs import ALL
from tests.docs.test_site import MODULES, public_names

ROOT = Path(__file__).parents[2]
NAMES = sorted(name for module in MODULES for name in public_names(module))


def value_of(name: str) -> Any:
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


@cache
def attribute_docstrings() -> dict[str, str]:
    """The strings right below assignments in modules, by the name that is assigned."""
    found: dict[str, str] = {}
    for file in (ROOT / "src" / "romancy").rglob("*.py"):
        lines = ast.parse(file.read_text(encoding="utf-8")).body
        for line, below in pairwise(lines):
            if isinstance(line, ast.Assign | ast.AnnAssign) and isinstance(below, ast.Expr):
                target = line.target if isinstance(line, ast.AnnAssign) else line.targets[0]
                if isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
                    found[ast.unparse(target)] = below.value.value
    return found


@cache
def names_in_examples() -> frozenset[str]:
    """Every name and attribute in the code that the tests of the documentation run."""
    blocks = [block.code for block in ALL if not block.is_fragment]
    files = [file.read_text(encoding="utf-8") for file in (ROOT / "examples").rglob("*.py")]
    found: set[str] = set()
    for node in (node for code in (*blocks, *files) for node in ast.walk(ast.parse(code))):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return frozenset(found)


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_docstring(name: str) -> None:
    value, last = value_of(name), name.rpartition(".")[2]
    if inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, ModuleType):
        text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
        assert text, f"{name} has no docstring"
        assert not text.startswith(f"{last}("), f"{name} has only the docstring that dataclasses write"
    else:
        assert last in attribute_docstrings(), f"{name} has no string below its assignment"


@pytest.mark.parametrize("name", NAMES)
def test_an_example_that_runs_uses_it(name: str) -> None:
    assert name.rpartition(".")[2] in names_in_examples(), f"no example in docs/ or examples/ uses {name}"


@pytest.mark.parametrize("file", sorted((ROOT / "src").rglob("*.py")), ids=lambda file: file.stem)
def test_examples_in_docstrings_compile(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        code = [line.strip()[4:] if line.strip().startswith((">>>", "...")) else "" for line in _docs(node)]
        compile("\n".join(code), str(file), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def _docs(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return (ast.get_docstring(node) or "").splitlines()
