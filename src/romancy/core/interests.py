"""Which events a workflow may still take: its interest. Events are kept while an open instance may take them.

A workflow can declare it with `expects`. Otherwise it is read from the source of the workflow and of what that uses in
the same module, and every wait adds to it.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

ANY = "*"
"""The pattern for every type. At the end of a pattern, it stands for any text."""
_WAITS = {"wait_event", "events"}
_CONTINUES = "continue_as_new"


@dataclass(frozen=True, slots=True)
class Interest:
    """What instances of a workflow may take."""

    workflow: str
    types: frozenset[str] = frozenset()
    """Types, and patterns such as `payment.*`."""
    next: frozenset[str] = frozenset()
    """Workflows that instances may continue as."""
    is_declared: bool = False
    """With `expects`: there are no others."""
    is_open: bool = False
    """The code computes a type, or its source is not there: any type is possible."""


def matches(pattern: str, type: str) -> bool:
    """Return whether a type is meant by a pattern: itself, or anything that begins with what is before the `*`."""
    return type.startswith(pattern[:-1]) if pattern.endswith(ANY) else type == pattern


def check_expects(expects: str | Sequence[str] | None, what: str) -> tuple[str, ...] | None:
    """Return the patterns of `expects`, checked."""
    if expects is None:
        return None
    patterns = (expects,) if isinstance(expects, str) else tuple(expects)
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern or ANY in pattern[:-1]:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f'{what}: expects= takes event types, or the beginning of types as in "payment.*", not {pattern!r}'
            )
    return patterns


def check_expected(types: Collection[str], expects: Sequence[str], workflow: str) -> None:
    """Raise ValueError if a workflow waits for a type that it does not expect: such events may have been removed."""
    for type in types:
        if not any(matches(pattern, type) for pattern in expects):
            raise ValueError(
                f"workflow {workflow!r} waits for {type!r}, but expects only {', '.join(expects) or 'no events'}: "
                f"add {type!r} to @workflow(expects=[...])"
            )


def read_interest(workflow: str, fn: Callable[..., Any], expects: Sequence[str] | None) -> Interest:
    """Return the interest of a workflow: declared, or else what its source shows."""
    if expects is not None:
        return Interest(workflow, frozenset(expects), is_declared=True)
    parts = _parts_of(sys.modules.get(fn.__module__))
    begin = fn.__qualname__.partition(".")[0]
    if parts is None or begin not in parts:
        parts = {begin: part} if (part := _part_of(fn)) is not None else {}
    if not parts:
        return Interest(workflow, is_open=True)
    used = [parts[name] for name in _used(parts, begin)]
    reader = _Resolver(getattr(fn, "__globals__", {}))
    types = {reader.text(node) for part in used for node in part.types}
    following = {reader.workflow(node) for part in used for node in part.next}
    is_open = None in types or any(part.is_open for part in used)
    known, later = frozenset(t for t in types if t), frozenset(name for name in following if name)
    return Interest(workflow, known, later - {workflow}, is_open=is_open)


@dataclass(slots=True)
class _Part:
    """What one function or class of a module waits for, continues as, and refers to."""

    types: list[ast.expr] = field(default_factory=lambda: [])
    next: list[ast.expr] = field(default_factory=lambda: [])
    names: set[str] = field(default_factory=lambda: set())
    is_open: bool = False


def _read_part(tree: ast.AST) -> _Part:
    part = _Part()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            part.names.add(node.id)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _WAITS and len(node.args) > 1:
                part.types += node.args[1:]
            elif name in _WAITS and len(node.args) == 1 and isinstance(node.args[0], ast.Starred):
                part.is_open = True
            elif name == _CONTINUES and isinstance(node.func, ast.Attribute):
                part.next.append(node.func.value)
    return part


@functools.lru_cache(maxsize=256)
def _parts_of(module: ModuleType | None) -> Mapping[str, _Part] | None:
    """Return the functions and classes of a module by name; None if its source can't be read."""
    try:
        tree = None if module is None else ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    return None if tree is None else {node.name: _read_part(node) for node in _definitions(tree)}


def _definitions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node) if isinstance(node, ast.Module | ast.If | ast.Try | ast.With) else ():
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield child


def _part_of(fn: Callable[..., Any]) -> _Part | None:
    """Return the part that is a function alone: one that was made in a shell, for example."""
    try:
        return _read_part(ast.parse(textwrap.dedent(inspect.getsource(fn))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None


def _used(parts: Mapping[str, _Part], begin: str) -> set[str]:
    """Return the names of the parts that one of them uses, itself included."""
    found, ahead = {begin}, [begin]
    while ahead:
        more = parts[ahead.pop()].names & parts.keys() - found
        found |= more
        ahead += more
    return found


class _Resolver:
    """Finds what an expression means: a literal, or a constant of the module."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def text(self, node: ast.expr) -> str | None:
        found = self._value(node)
        return str.__str__(found) if isinstance(found, str) else None

    def workflow(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "options":
            node = node.func.value
        name = getattr(self._value(node), "name", None)
        return name if isinstance(name, str) else None

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            return getattr(owner, node.attr, None) if isinstance(owner, ModuleType | type) else None
        return None
