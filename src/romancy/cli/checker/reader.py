"""Find problems in workflow code."""

from __future__ import annotations

import ast
import sys
from collections.abc import Coroutine, Iterable, Iterator

from romancy.cli.checker.names import Binding, Def, Function, Scope
from romancy.cli.checker.rules import (
    ACTIVITY,
    APP_METHODS,
    AWAITED,
    COROUTINES,
    ENVIRONMENT,
    HARMLESS,
    HARMLESS_WITH,
    LOOP_METHODS,
    NEVER_AWAITS,
    ORDER_FREE,
    ORDERED,
    PLAIN,
    SET_METHODS,
    is_ours,
    rule_of,
)
from romancy.cli.checker.source import Module, Problem

_FUNCTION_OF_STEP = 3
"""Its place in `step(ctx, name, fn)`, counted from `step`."""


def find_problems(source: str, filename: str) -> list[Problem]:
    """Return the problems in the workflows of one file, by line. Raise SyntaxError if it can't be parsed."""
    return problems_of(Module(source, filename))


def problems_of(module: Module) -> list[Problem]:
    """Return the problems in the workflows of a module, by line."""
    found: dict[tuple[int, int, str], Problem] = {}
    seen: set[Function] = set()
    for workflow in module.workflows:
        for problem in Reader(module, workflow, workflow, (), seen).read():
            found.setdefault((problem.line, problem.column, problem.code), problem)
    return [found[key] for key in sorted(found)]


class Reader(ast.NodeVisitor):
    """Reads one function that a workflow runs: the workflow itself, or a helper it reaches by `way`."""

    def __init__(
        self, module: Module, workflow: Function, function: Function, way: tuple[str, ...], seen: set[Function]
    ) -> None:
        self.module = module
        self.workflow = workflow
        self.function = function
        self.scope = function.scope
        self.way = way
        self.seen = seen
        self.found: list[Problem] = []
        self.settled: set[ast.AST] = set()
        """Nodes already judged; calls on their results are not judged again."""

    def read(self) -> list[Problem]:
        self.seen.add(self.function)
        for statement in self.function.node.body:
            self.visit(statement)
        return self.found

    def report(self, node: ast.stmt | ast.expr | ast.excepthandler, code: str, what: str, instead: str) -> None:
        self.settled.add(node)
        if self.module.is_allowed(node):
            return
        name = self.workflow.node.name
        where = f" through {' -> '.join(f'{step}()' for step in self.way)}" if self.way else ""
        message = f"{what} in workflow {name!r}{where}; {instead}"
        self.found.append(Problem(self.module.filename, node.lineno, self.module.column(node), code, message, instead))

    # names and calls

    def visit_Name(self, node: ast.Name) -> None:
        target = self.scope.find(node.id)
        if isinstance(target, Function) and target.kind == "plain" and target not in self.seen:
            if not self.module.is_allowed(node):
                way = (*self.way, target.node.name)
                self.found += Reader(self.module, self.workflow, target, way, self.seen).read()
        elif isinstance(target, str) and target in ENVIRONMENT:
            self._refuse(node, target, call="")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        target = self.scope.resolve(node)
        if isinstance(target, str) and target in ENVIRONMENT:
            self._refuse(node, target, call="")
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if is_ours(self.scope.resolve(node.func), "step"):
            self._visit_step(node)
        else:
            self.generic_visit(node)
        if any(part in self.settled for part in _chain(node.func)):
            self.settled.add(node)
            return
        target = self.scope.resolve(node.func)
        if isinstance(target, str):
            self._read_call(node, target)
        if isinstance(node.func, ast.Attribute):
            self._read_method(node, node.func, target)
        self._read_durable_call(node)
        self._read_order(node, target)

    def _visit_step(self, node: ast.Call) -> None:
        """Visit everything but the function of a step, which runs as an activity."""
        for n, part in enumerate([node.func, *node.args, *node.keywords]):
            if n != _FUNCTION_OF_STEP:
                self.visit(part)
            elif isinstance(part, ast.Lambda):
                self.visit(part.args)  # its defaults are computed by the workflow
            elif isinstance(part, ast.Call) and self.scope.resolve(part.func) == "functools.partial":
                for bound in [*part.args[1:], *part.keywords]:
                    self.visit(bound)
            elif not isinstance(part, (ast.Name, ast.Attribute)):
                self.visit(part)

    def _refuse(self, node: ast.expr, target: str, call: str = "()") -> None:
        if rule := rule_of(target):
            name = target.removeprefix("builtins.")
            self.report(node, rule.code, f"{name}{call} {rule.does}", rule.instead)

    def _read_call(self, node: ast.Call, target: str) -> None:
        if len(node.args) + len(node.keywords) >= HARMLESS_WITH.get(target, sys.maxsize):
            self.settled.add(node)
        elif target not in ENVIRONMENT and not target.endswith(HARMLESS):
            self._refuse(node, target)
        if target == "asyncio.as_completed" and node.args and self._has_bare_coroutines(node.args[0]):
            self.report(
                node,
                "order",
                "asyncio.as_completed() over bare coroutines has a different order on replay",
                "give it tasks: asyncio.create_task(...)",
            )

    def _read_method(self, node: ast.Call, func: ast.Attribute, target: Binding) -> None:
        name, held = func.attr, self.scope.resolve(func.value)
        if name in LOOP_METHODS:
            self.report(node, "thread", f"{name}() leaves the workflow's event loop", ACTIVITY)
        elif isinstance(held, Function) and held.kind == "activity" and name == "fn":
            plain = held.node.name
            self.report(node, "context", f"{plain}.fn() is not recorded", f"use await {plain}(ctx, ...)")
        elif self._is_app(func.value, held, name):
            instead = f"use await {name}(ctx, ...)" if name in ("start_workflow", "send_event") else ACTIVITY
            self.report(node, "app", f"{ast.unparse(func)}() is not allowed", instead)

    def _is_app(self, node: ast.expr, held: Binding, method: str) -> bool:
        if isinstance(held, str) and is_ours(held.removesuffix("()"), "App", "Client"):
            return held.endswith("()")
        last = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        return last == "app" and method in APP_METHODS

    # activities and other primitives

    def _read_durable_call(self, node: ast.Call) -> None:
        durable = self._durable(node.func)
        name = durable.node.name if durable else self._primitive(node.func)
        if name and name not in PLAIN and self._is_lost(node):
            self.report(node, "await", f"{name}() is never awaited, so it never runs", f"use await {name}(ctx, ...)")
        elif not name and self._is_other_coroutine(node.func) and self._is_lost(node):
            called = ast.unparse(node.func)
            self.report(node, "await", f"{called}() is never awaited, so it never runs", f"use await {called}(...)")
        elif name and not self._has_context(node, durable):
            self.report(node, "context", f"{name}() is called without the context", f"pass ctx first: {name}(ctx, ...)")

    def _durable(self, func: ast.expr) -> Function | None:
        """Return the activity or workflow that a call runs, also through `.options(...)`."""
        if isinstance(func, ast.Call) and isinstance(func.func, ast.Attribute) and func.func.attr == "options":
            return self._durable(func.func.value)
        target = self.scope.resolve(func)
        return target if isinstance(target, Function) and target.kind != "plain" else None

    def _primitive(self, func: ast.expr) -> str:
        target = self.scope.resolve(func)
        ours = isinstance(target, str) and target.startswith("romancy.") and "()" not in target
        known = ours and is_ours(target, *AWAITED, *PLAIN)
        return target.rpartition(".")[2] if known and isinstance(target, str) else ""

    def _is_other_coroutine(self, func: ast.expr) -> bool:
        """Whether a call makes a coroutine without a context: one of asyncio, or the wait for an answer."""
        if self.scope.resolve(func) in COROUTINES:
            return True
        if not isinstance(func, ast.Attribute) or func.attr not in ("answer", "decision"):
            return False
        asked = self.scope.value_of(func.value.id) if isinstance(func.value, ast.Name) else func.value
        call = asked.value if isinstance(asked, ast.Await) else None
        return isinstance(call, ast.Call) and self._primitive(call.func) == "ask"

    def _is_lost(self, node: ast.expr) -> bool:
        """Whether a coroutine is certainly never awaited: dropped, used like its result, or only stored."""
        parent = self.module.parents[node]
        if isinstance(parent, ast.IfExp) and node is not parent.test:
            return self._is_lost(parent)
        if isinstance(parent, (ast.Assign, ast.AnnAssign)) and isinstance(node, ast.Call):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            uses = [n for n in ast.walk(self.function.node) if isinstance(n, ast.Name) and n.id in names]
            loads = [use for use in uses if isinstance(use.ctx, ast.Load)]
            kept_once = len(uses) == len(loads) + len(names)
            read = kept_once and any(self._is_read(use) for use in loads) and not any(map(self._is_awaited, loads))
            return len(names) == len(targets) and (read or all(self._is_lost(use) for use in loads))
        if isinstance(parent, ast.Call) and node is not parent.func:
            runs = self._durable(parent.func) or self._primitive(parent.func)
            return bool(runs) or self.scope.resolve(parent.func) in NEVER_AWAITS
        if isinstance(parent, ast.Return):
            return self.function.kind == "workflow"  # the caller of a helper can await its result
        wasted = (ast.Expr, ast.Attribute, ast.Subscript, ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.If)
        return isinstance(parent, (*wasted, ast.While, ast.FormattedValue, ast.IfExp, ast.Assert))

    def _is_read(self, use: ast.expr) -> bool:
        """Whether an attribute is used that coroutines do not have, such as `.data`."""
        parent = self.module.parents[use]
        return isinstance(parent, ast.Attribute) and not hasattr(Coroutine, parent.attr)

    def _is_awaited(self, use: ast.expr) -> bool:
        return isinstance(self.module.parents[use], ast.Await)

    def _has_context(self, node: ast.Call, durable: Function | None) -> bool:
        if not node.args:
            parameters = [*durable.node.args.posonlyargs, *durable.node.args.args] if durable else []
            first = next((a.arg for a in parameters), "ctx")
            return any(keyword.arg in (None, first) for keyword in node.keywords)
        given = node.args[0]
        if isinstance(given, ast.Name):
            contexts = self._contexts()
            assigned = self.scope.value_of(given.id)
            alias = assigned is not None and not isinstance(assigned, ast.Constant)
            return not contexts or given.id in contexts or alias
        return isinstance(given, (ast.Starred, ast.Call, ast.Attribute, ast.Await, ast.Subscript))

    def _contexts(self) -> set[str]:
        """Return the names of contexts in this function and the functions around it."""
        found: set[str] = set()
        scope: Scope | None = self.scope
        while scope:
            found = found.union(*(f.contexts for f in self.module.functions if f.scope is scope))
            scope = scope.parent
        return found

    def _has_bare_coroutines(self, node: ast.expr | None) -> bool:
        if isinstance(node, ast.Name):
            node = self.scope.value_of(node.id)
        elements: list[ast.expr] = []
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            elements = node.elts
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            elements = [node.elt]
        return any(isinstance(element, ast.Call) and self._makes_coroutine(element) for element in elements)

    def _makes_coroutine(self, node: ast.Call) -> bool:
        target = self.scope.resolve(node.func)
        if isinstance(target, Function):
            return target.kind != "plain" or isinstance(target.node, ast.AsyncFunctionDef)
        return bool(self._durable(node.func) or self._primitive(node.func))

    # order

    def _is_set(self, node: ast.expr | None, follow: bool = True) -> bool:
        """Whether a node is certainly a set without a fixed order: neither of numbers nor of tasks."""
        if isinstance(node, ast.Name):
            return follow and self._is_set(self.scope.value_of(node.id), follow=False)
        if isinstance(node, ast.Set):
            return not all(_is_number(element) or _is_task(element) for element in node.elts)
        if isinstance(node, ast.SetComp):
            return not _is_task(node.elt)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)):
            return self._is_set(node.left, follow) or self._is_set(node.right, follow)
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr in SET_METHODS:
            return self._is_set(node.func.value, follow)
        return bool(node.args) and self.scope.resolve(node.func) in ("builtins.set", "builtins.frozenset")

    def _refuse_sets(self, user: ast.expr | None, iterables: Iterable[ast.expr]) -> None:
        parent = self.module.parents.get(user) if user else None
        if isinstance(parent, ast.Call) and self.scope.resolve(parent.func) in ORDER_FREE:
            return
        for node in iterables:
            if self._is_set(node):
                self.report(node, "order", "a set has a different order on replay", "iterate over sorted(...)")

    def _read_order(self, node: ast.Call, target: Binding) -> None:
        joins = isinstance(node.func, ast.Attribute) and node.func.attr == "join"
        if target in ORDERED or joins:
            self._refuse_sets(node, node.args)

    def visit_Starred(self, node: ast.Starred) -> None:
        self._refuse_sets(node, [node.value])
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._refuse_sets(None, [node.iter])
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> None:
        self._refuse_sets(node, [part.iter for part in node.generators])
        self.generic_visit(node)

    visit_GeneratorExp = visit_ListComp
    visit_DictComp = visit_ListComp

    # statements

    def visit_Global(self, node: ast.Global) -> None:
        names = [n for n in ast.walk(self.function.node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)]
        for name in sorted({n.id for n in names}.intersection(node.names)):
            what = f"a write to global {name} is lost in a crash and repeated on replay"
            self.report(node, "global", what, "use a local variable and return it, or store it in an activity")

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        if any(_awaits(statement) for statement in node.body):
            for handler in node.handlers:
                if self._swallows(handler):
                    caught = "except BaseException" if handler.type else "a bare except"
                    instead = "use except Exception, or end with a bare raise"
                    self.report(handler, "except", f"{caught} around an await swallows cancellation", instead)
        self.generic_visit(node)

    visit_TryStar = visit_Try

    def _swallows(self, handler: ast.ExceptHandler) -> bool:
        types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if handler.type and not any(self.scope.resolve(t) == "builtins.BaseException" for t in types):
            return False
        raises = [node for statement in handler.body for node in ast.walk(statement) if isinstance(node, ast.Raise)]
        return not any(r.exc is None or (isinstance(r.exc, ast.Name) and r.exc.id == handler.name) for r in raises)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_FunctionDef(self, node: Def) -> None:
        for part in [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(part)  # its body is read when something uses it

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Skip classes: calls of methods can't be resolved."""


def _chain(node: ast.expr) -> Iterator[ast.expr]:
    """Yield a dotted expression and its prefixes: `a.b()`, `a.b`, `a`."""
    while True:
        yield node
        if isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Attribute):
            node = node.value
        else:
            return


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _is_task(node: ast.expr) -> bool:
    func = node.func if isinstance(node, ast.Call) else None
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return name in ("create_task", "ensure_future")


def _awaits(node: ast.AST) -> bool:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
        return False
    return isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith)) or any(map(_awaits, ast.iter_child_nodes(node)))
