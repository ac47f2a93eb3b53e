"""A source file, and the problems in it."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO

from romancy.cli.checker.names import Binder, Function, Scope, kind_of


@dataclass(frozen=True)
class Problem:
    """Code that can behave differently on replay. `message` ends with `suggestion`."""

    file: str
    line: int
    column: int
    code: str
    message: str
    suggestion: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column} {self.code} {self.message}"


class Module:
    """A parsed file: its functions with their names bound."""

    def __init__(self, source: str, filename: str) -> None:
        tree = ast.parse(source, filename)
        self.filename = filename
        self.lines = re.split("\r\n?|\n", source)  # like the parser; splitlines splits at more characters
        self.allowed = set(_allowed_lines(source))
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self.functions = self._bind(tree)
        self.workflows = [function for function in self.functions if function.kind == "workflow"]

    def _bind(self, tree: ast.Module) -> list[Function]:
        binder = Binder(Scope())
        binder.visit(tree)
        functions = binder.functions
        for function in functions:  # grows as nested functions are found
            inner = Binder(function.scope)
            inner.visit(function.node.args)
            for statement in function.node.body:
                inner.visit(statement)
            functions += inner.functions
        for function in functions:
            function.kind = kind_of(function)
        return functions

    def is_allowed(self, node: ast.stmt | ast.expr | ast.excepthandler) -> bool:
        last = (node.end_lineno or node.lineno) if isinstance(node, ast.expr) else node.lineno
        return not self.allowed.isdisjoint(range(node.lineno, last + 1))

    def column(self, node: ast.stmt | ast.expr | ast.excepthandler) -> int:
        line = self.lines[node.lineno - 1] if node.lineno <= len(self.lines) else ""
        return len(line.encode()[: node.col_offset].decode(errors="replace")) + 1


def _allowed_lines(source: str) -> Iterator[int]:
    if "romancy:" in source:
        for token in tokenize.generate_tokens(StringIO(source).readline):
            if token.type == tokenize.COMMENT and re.match(r"#\s*romancy:\s*allow\b", token.string):
                yield token.start[0]
