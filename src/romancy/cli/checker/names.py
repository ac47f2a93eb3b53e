"""Resolve the names in a file."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import romancy
from romancy.cli.checker.rules import is_ours, rule_of

Def: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Kind: TypeAlias = Literal["workflow", "activity", "plain"]


@dataclass(eq=False)
class Scope:
    """Names and their bindings: a dotted name (`httpx.Client()` for its result), a function here, or unknown."""

    parent: Scope | None = None
    names: dict[str, Binding] = field(default_factory=dict[str, "Binding"])
    values: dict[str, list[ast.expr]] = field(default_factory=dict[str, list[ast.expr]])
    outside: set[str] = field(default_factory=set[str])
    """Declared global or nonlocal."""

    def find(self, name: str) -> Binding:
        if name in self.names:
            return self.names[name]
        return self.parent.find(name) if self.parent else f"builtins.{name}"

    def resolve(self, node: ast.expr | None) -> Binding:
        if isinstance(node, ast.Name):
            return self.find(node.id)
        if isinstance(node, ast.Attribute) and isinstance(base := self.resolve(node.value), str):
            return f"{base}.{node.attr}"
        if isinstance(node, ast.Call) and isinstance(base := self.resolve(node.func), str):
            return f"{base}()"
        return None

    def value_of(self, name: str) -> ast.expr | None:
        """Return the expression assigned to a name, if there is exactly one."""
        if name not in self.names:
            return self.parent.value_of(name) if self.parent else None
        values = self.values.get(name, [])
        return values[0] if len(values) == 1 else None

    def bind(self, name: str, binding: Binding) -> None:
        if name in self.outside:
            return
        if self.parent is None:  # at the top, as in try/except ImportError, the first known binding counts
            self.names[name] = self.names.get(name) or binding
        else:
            self.names[name] = None if name in self.names else binding


@dataclass(eq=False)
class Function:
    node: Def
    scope: Scope
    kind: Kind = "plain"

    @property
    def contexts(self) -> set[str]:
        """The names of parameters that hold a context."""
        arguments = [*self.node.args.posonlyargs, *self.node.args.args]
        found = {
            a.arg for a in arguments if a.arg == "ctx" or is_ours(self.scope.resolve(a.annotation), "WorkflowContext")
        }
        return found | {arguments[0].arg} if arguments and self.kind != "plain" else found


Binding: TypeAlias = str | Function | None


class Binder(ast.NodeVisitor):
    """Fills one scope from its statements. Functions in it are read later, when the names around them are known."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.functions: list[Function] = []

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self.scope.bind(alias.asname or top, alias.name if alias.asname else top)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "." * bool(node.level) + (node.module or "")
        for alias in node.names:
            if alias.name == "*" and module == "romancy":
                for name in romancy.__all__:
                    self.scope.bind(name, f"romancy.{name}")
            else:
                self.scope.bind(alias.asname or alias.name, f"{module}.{alias.name}")

    def visit_FunctionDef(self, node: Def) -> None:
        function = Function(node, Scope(parent=self.scope))
        self.functions.append(function)
        self.scope.bind(node.name, function)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.bind(node.name, None)
        inner = Binder(Scope(parent=self.scope))
        for statement in node.body:
            inner.visit(statement)
        for method in inner.functions:
            method.scope.parent = self.scope  # a method does not see the names of its class
        self.functions += inner.functions

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._assign(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)
            self._assign(node.target, node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            self.visit(target)
            return
        binding = self.scope.resolve(value)
        # Inside a function, a problem is reported at the call itself; don't report its result again.
        reported = self.scope.parent and isinstance(value, ast.Call) and isinstance(binding, str) and rule_of(binding)
        self.scope.values.setdefault(target.id, []).append(value)
        self.scope.bind(target.id, None if reported else binding)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.scope.outside.update(node.names)

    visit_Nonlocal = visit_Global

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.scope.bind(node.id, None)

    def visit_arg(self, node: ast.arg) -> None:
        annotation = node.annotation
        app = is_ours(self.scope.resolve(annotation), "App", "Client")
        self.scope.bind(node.arg, "romancy.App()" if app else None)
        held = annotation.value if isinstance(annotation, ast.Subscript) else annotation
        if self.scope.resolve(held) in ("builtins.set", "builtins.frozenset"):
            self.scope.values[node.arg] = [ast.Call(held or ast.Name("set"), [ast.Name(node.arg)], [])]

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.scope.bind(node.name, None)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.scope.bind(node.name, None)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs


def kind_of(function: Function) -> Kind:
    for decorator in function.node.decorator_list:
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        binding = function.scope.parent.resolve(name) if function.scope.parent else None
        if is_ours(binding, "workflow"):
            return "workflow"
        if is_ours(binding, "activity") or (isinstance(name, ast.Attribute) and name.attr == "compensate"):
            return "activity"  # the undo of an activity is one, too, wherever that comes from
    return "plain"
