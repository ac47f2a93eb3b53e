"""The public API, name by name, is what `public_api.txt` says: nothing changes by accident.

After a change on purpose: `python -m tests.unit.test_signatures` writes the file anew.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from difflib import unified_diff
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_overloads

KEPT = Path(__file__).with_name("public_api.txt")
MODULES = ("romancy", "romancy.sync", "romancy.testing")
MADE_BY_US = (
    "Activity ActivityContext Environment RemoteHandle TestHandle Workflow WorkflowContext WorkflowHandle".split()
)
"""Nobody else calls their constructors."""
CONSTRUCTOR = {"__init__"}
SPOKEN = CONSTRUCTOR | {"__call__", "__enter__", "__exit__", "__aenter__", "__aexit__"}


class Text:
    """An annotation as it is written."""

    def __init__(self, annotation: Any) -> None:
        self._text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)

    def __repr__(self) -> str:
        return self._text


def signature(fn: Callable[..., Any]) -> str:
    found = inspect.signature(fn)
    empty = inspect.Parameter.empty
    parameters = [
        p if p.annotation is empty else p.replace(annotation=Text(p.annotation)) for p in found.parameters.values()
    ]
    returned = empty if found.return_annotation is empty else Text(found.return_annotation)
    return str(found.replace(parameters=parameters, return_annotation=returned))


def functions(name: str, fn: Any) -> Iterator[str]:
    prefix = "async def" if inspect.iscoroutinefunction(fn) else "def"
    for each in get_overloads(fn) or [fn]:
        yield f"{prefix} {name}{signature(each)}"


def lines_of_class(kind: type) -> Iterator[str]:
    yield f"class ({', '.join(base.__name__ for base in kind.__bases__)})"
    ours = [base for base in reversed(kind.__mro__) if base.__module__.startswith("romancy")]
    seen: dict[str, list[str]] = {}
    for base in ours:
        for name in attributes(base):
            seen[name] = [f"    {name}"]
        for name, member in vars(base).items():
            if name.startswith("_") and name not in SPOKEN - (CONSTRUCTOR if kind.__name__ in MADE_BY_US else set()):
                continue
            seen[name] = [f"    {line}" for line in lines_of_member(name, member)]
    for name in sorted(seen):
        yield from seen[name]


def lines_of_member(name: str, member: Any) -> Iterator[str]:
    if isinstance(member, classmethod | staticmethod):
        yield from (f"{type(member).__name__} {line}" for line in functions(name, member.__func__))
    elif isinstance(member, property | cached_property):
        of = member.fget if isinstance(member, property) else member.func
        yield f"property {name}: {Text(inspect.signature(of).return_annotation)}"  # type: ignore[arg-type]
    elif inspect.isfunction(member):
        yield from functions(name, member)
    else:
        yield name


def attributes(kind: type) -> Iterator[str]:
    """What instances are given: `self.x = ...` and annotations in the body of the class."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError):
        return
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    names = [node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"]
    names += [node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)]  # type: ignore[attr-defined]
    yield from (name for name in names if not name.startswith("_"))


def lines() -> Iterator[str]:
    for module in map(import_module, MODULES):
        yield f"# --- {module.__name__} ---"
        for name in sorted(module.__all__):
            found = getattr(module, name)
            if isinstance(found, ModuleType) or name.startswith("_"):
                continue
            if inspect.isclass(found) and found.__module__.startswith("romancy"):
                first, *rest = lines_of_class(found)
                yield first.replace("class ", f"class {name}", 1)
                yield from rest
            elif inspect.isfunction(found):
                yield from functions(name, found)
            else:
                yield name


def test_the_public_api_is_the_one_that_is_kept() -> None:
    kept, found = KEPT.read_text(encoding="utf-8").splitlines(), list(lines())
    changes = "\n".join(unified_diff(kept, found, "kept", "found", lineterm="", n=1))
    assert not changes, f"{changes}\nOn purpose? Then run: python -m tests.unit.test_signatures"


if __name__ == "__main__":
    KEPT.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
