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
from types import FunctionType, ModuleType
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
    """Return the interest of a workflow: declared, or what its source shows. That also shows what it continues as."""
    found = _read_source(workflow, fn)
    return found if expects is None else Interest(workflow, frozenset(expects), found.next, is_declared=True)


def _read_source(workflow: str, fn: Callable[..., Any]) -> Interest:
    parts = _parts_of(sys.modules.get(fn.__module__))
    begin = fn.__qualname__.partition(".")[0]
    if parts is None or begin not in parts:
        parts = {begin: part} if (part := _part_of(fn)) is not None else {}
    if not parts:
        return Interest(workflow, is_open=True)
    reader = _Reader(getattr(fn, "__globals__", {}), fn.__name__)
    for name in _used(parts, begin):
        reader.read(parts[name])
    return Interest(workflow, frozenset(reader.types), frozenset(reader.next - {workflow}), is_open=reader.is_open)


@dataclass(slots=True)
class _Part:
    """What one function, class or variable of a module calls and refers to."""

    calls: list[tuple[ast.Name | ast.Attribute, list[ast.expr]]] = field(default_factory=lambda: [])
    """Calls that may be waits."""
    next: list[ast.expr] = field(default_factory=lambda: [])
    """What it continues as."""
    mentions: list[ast.Name | ast.Attribute] = field(default_factory=lambda: [])
    """What it refers to without calling it."""
    names: set[str] = field(default_factory=lambda: set())
    bound: set[str] = field(default_factory=lambda: set())
    """Its own variables: a variable of the module with the same name is not meant."""


def _read_part(tree: ast.AST) -> _Part:
    part, called = _Part(), set[ast.expr]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called.add(node.func)
            if isinstance(node.func, ast.Attribute) and node.func.attr == _CONTINUES:
                part.next.append(node.func.value)
            elif node.args and isinstance(node.func, ast.Name | ast.Attribute):
                part.calls.append((node.func, node.args))
        elif isinstance(node, ast.arg):
            part.bound.add(node.arg)
        elif isinstance(node, ast.Name):
            part.names.add(node.id)
            if not isinstance(node.ctx, ast.Load):
                part.bound.add(node.id)
            elif node not in called:  # a call comes before its parts
                part.mentions.append(node)
        elif isinstance(node, ast.Attribute) and node.attr in _WAITS and node not in called:
            part.mentions.append(node)
    return part


@functools.lru_cache(maxsize=256)
def _parts_of(module: ModuleType | None) -> Mapping[str, _Part] | None:
    """Return the functions and classes of a module by name; None if its source can't be read."""
    try:
        tree = None if module is None else ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    return None if tree is None else {name: _read_part(node) for name, node in _definitions(tree)}


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Yield functions and classes, and the values of variables: a table of functions, for example."""
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node) if isinstance(node, ast.Module | ast.If | ast.Try | ast.With) else ():
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield child.name, child
            elif isinstance(child, ast.Assign | ast.AnnAssign) and child.value is not None:
                for target in child.targets if isinstance(child, ast.Assign) else [child.target]:
                    if isinstance(target, ast.Name):
                        yield target.id, child.value


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


class _Reader:
    """Collects what parts of a module wait for. An expression is a literal, or a constant of the module."""

    def __init__(self, names: Mapping[str, Any], own: str) -> None:
        self._names, self._own = names, own
        self.types: set[str] = set()
        self.next: set[str] = set()
        self.is_open = False

    def read(self, part: _Part) -> None:
        for called, args in part.calls:
            if self._is_wait(called, part):
                self._wait(args, part)
        for node in part.next:
            self._continue(node, part)
        # A wait that is passed on or renamed is called elsewhere, nobody knows with what.
        self.is_open |= any(self._is_wait_function(self._value(node, part)) for node in part.mentions)

    def _wait(self, args: Sequence[ast.expr], part: _Part) -> None:
        self.is_open |= isinstance(args[0], ast.Starred)
        for node in args[1:]:
            found = self._value(node, part)
            if isinstance(found, str) and found:
                self.types.add(str.__str__(found))
            else:
                self.is_open = True

    def _continue(self, node: ast.expr, part: _Part) -> None:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "options":
            node = node.func.value
        name = getattr(self._value(node, part), "name", None)
        if isinstance(name, str):
            self.next.add(name)
        elif not (isinstance(node, ast.Name) and node.id == self._own):
            self.is_open = True

    def _is_wait(self, called: ast.Name | ast.Attribute, part: _Part) -> bool:
        name = called.attr if isinstance(called, ast.Attribute) else called.id
        return name in _WAITS or self._is_wait_function(self._value(called, part))

    def _is_wait_function(self, value: Any) -> bool:
        if not isinstance(value, FunctionType):  # other objects may do anything when they are asked for an attribute
            return False
        return value.__name__ in _WAITS and value.__module__.startswith("romancy.")

    def _value(self, node: ast.expr, part: _Part) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return None if node.id in part.bound else self._names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value, part)
            return getattr(owner, node.attr, None) if isinstance(owner, ModuleType | type) else None
        return None
