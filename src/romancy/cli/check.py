"""`romancy check`: clocks, randomness and I/O in workflow code, found by reading it; nothing is imported or run.

A workflow is run again from its history, so its code must do the same each time. `find_problems` reads one file: it
binds names to what they stand for (`_Scope`), then reads every workflow and the plain functions of the file it reaches
(`_Reader`). Names it can't follow (attributes of objects, other files) are taken to be harmless: better to miss a
problem, which replay will show, than to cry wolf. `# romancy: allow` silences its line.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.machinery import PathFinder
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Literal, TypeAlias

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Problem:
    """Something that may go differently when the workflow is replayed. `message` ends with `suggestion`."""

    file: str
    line: int
    column: int
    code: str
    message: str
    suggestion: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column} {self.code} {self.message}"


def find_problems(source: str, filename: str) -> list[Problem]:
    """The problems in the workflows of one file, by line; SyntaxError if it can't be parsed."""
    return _Module(source, filename).problems()


# --- what is not for workflows ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rule:
    code: str
    does: str
    instead: str
    names: str
    """Dotted names; `x.*` is all of x, and what its calls return."""


_ACTIVITY = "move it into an activity"
_RULES = (
    _Rule(
        "clock",
        "reads the clock",
        "use ctx.now()",
        "time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns"
        " time.process_time time.process_time_ns time.gmtime time.localtime time.ctime time.asctime time.strftime"
        " datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today"
        " django.utils.timezone.now pendulum.now arrow.now arrow.utcnow",
    ),
    _Rule("sleep", "blocks the worker and is forgotten in a crash", "use await sleep(ctx, ...)", "time.sleep"),
    _Rule(
        "random",
        "is different on replay",
        "use ctx.random",
        "random.* numpy.random.* secrets.* os.urandom os.getrandom",
    ),
    _Rule("random", "is different on replay", "use ctx.uuid4()", "uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7"),
    _Rule(
        "io",
        "does I/O",
        _ACTIVITY,
        "builtins.open builtins.input io.open requests.* httpx.* aiohttp.* urllib.request.* urllib3.* http.client.*"
        " socket.* smtplib.* ftplib.* subprocess.* sqlite3.* aiosqlite.* asyncpg.* psycopg.* psycopg2.* pymysql.*"
        " redis.* boto3.* aiofiles.* shutil.* tempfile.* glob.* asyncio.open_connection asyncio.start_server"
        " asyncio.create_subprocess_exec asyncio.create_subprocess_shell os.system os.popen os.open os.listdir"
        " os.scandir os.walk os.stat os.mkdir os.makedirs os.remove os.unlink os.rename os.replace os.rmdir"
        " os.path.exists os.path.isfile os.path.isdir os.path.getsize os.path.getmtime pathlib.Path.open"
        " pathlib.Path.read_text pathlib.Path.read_bytes pathlib.Path.write_text pathlib.Path.write_bytes"
        " pathlib.Path.exists pathlib.Path.is_file pathlib.Path.is_dir pathlib.Path.stat pathlib.Path.iterdir"
        " pathlib.Path.glob pathlib.Path.rglob pathlib.Path.mkdir pathlib.Path.unlink pathlib.Path.rename"
        " pathlib.Path.touch",
    ),
    _Rule(
        "environment",
        "depends on the machine",
        "pass it as an argument or read it in an activity",
        "os.getenv os.environ os.environb os.getpid os.getcwd os.cpu_count os.uname platform.* getpass.* sys.argv"
        " pathlib.Path.cwd pathlib.Path.home",
    ),
    _Rule(
        "thread",
        "leaves the workflow's own loop",
        _ACTIVITY,
        "asyncio.to_thread asyncio.run asyncio.run_coroutine_threadsafe threading.* multiprocessing.*"
        " concurrent.futures.*",
    ),
)
_BY_NAME = {name: rule for rule in _RULES for name in rule.names.split()}
_HARMLESS_WITH = {
    "time.gmtime": 1,
    "time.localtime": 1,
    "time.ctime": 1,
    "time.asctime": 1,
    "time.strftime": 2,
    "random.Random": 1,
}
"""Calls that are harmless with this many arguments: a given time to format, a given seed."""

_HARMLESS = ("Error", "Exception", "Timeout", "Warning", "URL", "Request", "Response")
"""Classes of I/O libraries that only hold data end like this."""

_ENVIRONMENT = {"os.environ", "os.environb", "sys.argv"}
"""Refused where they are named, not where they are called."""

_LOOP_METHODS = {"run_in_executor", "run_until_complete", "call_soon_threadsafe"}
_APP_METHODS = {"start_workflow", "send_event", "cancel_workflow", "resume_workflow"}
_AWAITED = {"sleep", "sleep_until", "wait_event", "send_event", "start_workflow"}
_ORDERED = {f"builtins.{name}" for name in "list tuple enumerate iter next map filter zip reversed".split()}
_ORDER_FREE = {f"builtins.{name}" for name in "sorted set frozenset sum any all min max len".split()}
_NEVER_AWAITS = {f"builtins.{name}" for name in "print str int float bool len repr dict".split()}
_SET_METHODS = {"union", "intersection", "difference", "symmetric_difference", "copy"}


def _rule(dotted: str) -> _Rule | None:
    name = dotted.replace("()", "")
    if name in _BY_NAME:
        return _BY_NAME[name]
    parts = name.split(".")
    return next(
        (rule for n in range(1, len(parts)) if (rule := _BY_NAME.get(".".join([*parts[:n], "*"])))),
        None,
    )


def _ours(dotted: object, *names: str) -> bool:
    """Whether it is this name of romancy's; an unknown or re-exported one is believed."""
    if not isinstance(dotted, str):
        return False
    root, _, name = dotted.partition(".")
    return root in ("romancy", "builtins", "") and name.rpartition(".")[2] in names


# --- what names stand for ---------------------------------------------------------------------------------------------

_Def: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Kind: TypeAlias = Literal["workflow", "activity", "plain"]


@dataclass(eq=False)
class _Scope:
    """Names and what they stand for: a dotted name (`httpx.Client()` for its result), a function here, or unknown."""

    parent: _Scope | None = None
    names: dict[str, _Binding] = field(default_factory=dict[str, "_Binding"])
    values: dict[str, list[ast.expr]] = field(default_factory=dict[str, list[ast.expr]])
    outside: set[str] = field(default_factory=set[str])
    """Declared global or nonlocal."""

    def find(self, name: str) -> _Binding:
        if name in self.names:
            return self.names[name]
        return self.parent.find(name) if self.parent else f"builtins.{name}"

    def resolve(self, node: ast.expr | None) -> _Binding:
        if isinstance(node, ast.Name):
            return self.find(node.id)
        if isinstance(node, ast.Attribute) and isinstance(base := self.resolve(node.value), str):
            return f"{base}.{node.attr}"
        if isinstance(node, ast.Call) and isinstance(base := self.resolve(node.func), str):
            return f"{base}()"
        return None

    def value_of(self, name: str) -> ast.expr | None:
        """What was assigned to a name, if that is sure."""
        if name not in self.names:
            return self.parent.value_of(name) if self.parent else None
        values = self.values.get(name, [])
        return values[0] if len(values) == 1 else None

    def bind(self, name: str, binding: _Binding) -> None:
        if name in self.outside:
            return
        if self.parent is None:  # of several at the top, as in try/except ImportError, the first known one counts
            self.names[name] = self.names.get(name) or binding
        else:
            self.names[name] = None if name in self.names else binding


@dataclass(eq=False)
class _Function:
    node: _Def
    scope: _Scope
    kind: _Kind = "plain"

    @property
    def contexts(self) -> set[str]:
        """The parameters that hold a context."""
        arguments = [*self.node.args.posonlyargs, *self.node.args.args]
        found = {
            a.arg for a in arguments if a.arg == "ctx" or _ours(self.scope.resolve(a.annotation), "WorkflowContext")
        }
        return found | {arguments[0].arg} if arguments and self.kind != "plain" else found


_Binding: TypeAlias = str | _Function | None


class _Binder(ast.NodeVisitor):
    """Fills one scope from its statements; functions in it are left for later, when all around them is known."""

    def __init__(self, scope: _Scope) -> None:
        self.scope = scope
        self.functions: list[_Function] = []

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self.scope.bind(alias.asname or top, alias.name if alias.asname else top)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "." * bool(node.level) + (node.module or "")
        for alias in node.names:
            self.scope.bind(alias.asname or alias.name, f"{module}.{alias.name}")

    def visit_FunctionDef(self, node: _Def) -> None:
        function = _Function(node, _Scope(parent=self.scope))
        self.functions.append(function)
        self.scope.bind(node.name, function)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.bind(node.name, None)
        inner = _Binder(_Scope(parent=self.scope))
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
        # Inside a function the call itself is reported, if it is anything to report; its result is not, again.
        reported = self.scope.parent and isinstance(value, ast.Call) and isinstance(binding, str) and _rule(binding)
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
        app = _ours(self.scope.resolve(annotation), "App")
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


class _Module:
    """One file: its functions with their names bound, ready to be read."""

    def __init__(self, source: str, filename: str) -> None:
        tree = ast.parse(source, filename)
        self.filename = filename
        self.lines = re.split("\r\n?|\n", source)  # as the parser does; splitlines knows more
        self.allowed = set(_allowed_lines(source))
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self.functions = self._bind(tree)
        self.workflows = [function for function in self.functions if function.kind == "workflow"]

    def _bind(self, tree: ast.Module) -> list[_Function]:
        binder = _Binder(_Scope())
        binder.visit(tree)
        functions = binder.functions
        for function in functions:  # grows as functions in functions are found
            inner = _Binder(function.scope)
            inner.visit(function.node.args)
            for statement in function.node.body:
                inner.visit(statement)
            functions += inner.functions
        for function in functions:
            function.kind = _kind(function)
        return functions

    def problems(self) -> list[Problem]:
        found: dict[tuple[int, int, str], Problem] = {}
        seen: set[_Function] = set()
        for workflow in self.workflows:
            for problem in _Reader(self, workflow, workflow, (), seen).read():
                found.setdefault((problem.line, problem.column, problem.code), problem)
        return [found[key] for key in sorted(found)]

    def is_allowed(self, node: ast.stmt | ast.expr | ast.excepthandler) -> bool:
        last = (node.end_lineno or node.lineno) if isinstance(node, ast.expr) else node.lineno
        return not self.allowed.isdisjoint(range(node.lineno, last + 1))

    def column(self, node: ast.stmt | ast.expr | ast.excepthandler) -> int:
        line = self.lines[node.lineno - 1] if node.lineno <= len(self.lines) else ""
        return len(line.encode()[: node.col_offset].decode(errors="replace")) + 1


def _kind(function: _Function) -> _Kind:
    for decorator in function.node.decorator_list:
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        binding = function.scope.parent.resolve(name) if function.scope.parent else None
        if _ours(binding, "workflow"):
            return "workflow"
        if _ours(binding, "activity"):
            return "activity"
    return "plain"


def _allowed_lines(source: str) -> Iterator[int]:
    if "romancy:" in source:
        for token in tokenize.generate_tokens(StringIO(source).readline):
            if token.type == tokenize.COMMENT and re.match(r"#\s*romancy:\s*allow\b", token.string):
                yield token.start[0]


# --- reading workflow code --------------------------------------------------------------------------------------------


class _Reader(ast.NodeVisitor):
    """Reads one function that a workflow runs: the workflow itself, or a helper it reaches by `way`."""

    def __init__(
        self, module: _Module, workflow: _Function, function: _Function, way: tuple[str, ...], seen: set[_Function]
    ) -> None:
        self.module = module
        self.workflow = workflow
        self.function = function
        self.scope = function.scope
        self.way = way
        self.seen = seen
        self.found: list[Problem] = []
        self.settled: set[ast.AST] = set()
        """Judged already; what is called on their results is not judged again."""

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
        if isinstance(target, _Function) and target.kind == "plain" and target not in self.seen:
            if not self.module.is_allowed(node):
                way = (*self.way, target.node.name)
                self.found += _Reader(self.module, self.workflow, target, way, self.seen).read()
        elif isinstance(target, str) and target in _ENVIRONMENT:
            self._refuse(node, target, call="")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        target = self.scope.resolve(node)
        if isinstance(target, str) and target in _ENVIRONMENT:
            self._refuse(node, target, call="")
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
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

    def _refuse(self, node: ast.expr, target: str, call: str = "()") -> None:
        if rule := _rule(target):
            name = target.removeprefix("builtins.")
            self.report(node, rule.code, f"{name}{call} {rule.does}", rule.instead)

    def _read_call(self, node: ast.Call, target: str) -> None:
        if len(node.args) + len(node.keywords) >= _HARMLESS_WITH.get(target, sys.maxsize):
            self.settled.add(node)
        elif target not in _ENVIRONMENT and not target.endswith(_HARMLESS):
            self._refuse(node, target)
        if target == "asyncio.as_completed" and node.args and self._has_bare_coroutines(node.args[0]):
            self.report(
                node,
                "order",
                "asyncio.as_completed() over bare coroutines comes in another order on replay",
                "give it tasks: asyncio.create_task(...)",
            )

    def _read_method(self, node: ast.Call, func: ast.Attribute, target: _Binding) -> None:
        name, held = func.attr, self.scope.resolve(func.value)
        if name in _LOOP_METHODS:
            self.report(node, "thread", f"{name}() leaves the workflow's own loop", _ACTIVITY)
        elif isinstance(held, _Function) and held.kind == "activity" and name == "fn":
            plain = held.node.name
            self.report(node, "context", f"{plain}.fn() runs unrecorded", f"use await {plain}(ctx, ...)")
        elif self._is_app(func.value, held, name):
            instead = f"use await {name}(ctx, ...)" if name in ("start_workflow", "send_event") else _ACTIVITY
            self.report(node, "app", f"{ast.unparse(func)}() is refused", instead)

    def _is_app(self, node: ast.expr, held: _Binding, method: str) -> bool:
        if isinstance(held, str) and _ours(held.removesuffix("()"), "App"):
            return held.endswith("()")
        last = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        return last == "app" and method in _APP_METHODS

    # activities and other primitives

    def _read_durable_call(self, node: ast.Call) -> None:
        durable = self._durable(node.func)
        name = durable.node.name if durable else self._primitive(node.func)
        if name and self._is_lost(node):
            self.report(node, "await", f"{name}() is never awaited, so it never runs", f"write await {name}(ctx, ...)")
        elif durable and not self._has_context(node, durable):
            self.report(node, "context", f"{name}() is called without the context", f"pass ctx first: {name}(ctx, ...)")

    def _durable(self, func: ast.expr) -> _Function | None:
        """The activity or workflow that a call runs, also by way of `.options(...)`."""
        if isinstance(func, ast.Call) and isinstance(func.func, ast.Attribute) and func.func.attr == "options":
            return self._durable(func.func.value)
        target = self.scope.resolve(func)
        return target if isinstance(target, _Function) and target.kind != "plain" else None

    def _primitive(self, func: ast.expr) -> str:
        target = self.scope.resolve(func)
        known = isinstance(target, str) and target.startswith("romancy.") and _ours(target, *_AWAITED)
        return target.rpartition(".")[2] if known and isinstance(target, str) else ""

    def _is_lost(self, node: ast.expr) -> bool:
        """Whether a coroutine surely goes nowhere: dropped, used like its result, or kept and never awaited."""
        parent = self.module.parents[node]
        if isinstance(parent, ast.IfExp) and node is not parent.test:
            return self._is_lost(parent)
        if isinstance(parent, (ast.Assign, ast.AnnAssign)) and isinstance(node, ast.Call):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            uses = [n for n in ast.walk(self.function.node) if isinstance(n, ast.Name) and n.id in names]
            loads = [use for use in uses if isinstance(use.ctx, ast.Load)]
            return len(names) == len(targets) and all(self._is_lost(use) for use in loads)
        if isinstance(parent, ast.Call) and node is not parent.func:
            return self.scope.resolve(parent.func) in _NEVER_AWAITS
        wasted = (ast.Expr, ast.Attribute, ast.Subscript, ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.If)
        return isinstance(parent, (*wasted, ast.While, ast.FormattedValue, ast.IfExp, ast.Assert))

    def _has_context(self, node: ast.Call, durable: _Function) -> bool:
        if not node.args:
            first = next((a.arg for a in [*durable.node.args.posonlyargs, *durable.node.args.args]), "ctx")
            return any(keyword.arg in (None, first) for keyword in node.keywords)
        given = node.args[0]
        if isinstance(given, ast.Name):
            contexts = self._contexts()
            assigned = self.scope.value_of(given.id)
            alias = assigned is not None and not isinstance(assigned, ast.Constant)
            return not contexts or given.id in contexts or alias
        return isinstance(given, (ast.Starred, ast.Call, ast.Attribute, ast.Await, ast.Subscript))

    def _contexts(self) -> set[str]:
        """The names of contexts here: of this function and those it is written in."""
        found: set[str] = set()
        scope: _Scope | None = self.scope
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
        if isinstance(target, _Function):
            return target.kind != "plain" or isinstance(target.node, ast.AsyncFunctionDef)
        return bool(self._durable(node.func) or self._primitive(node.func))

    # order

    def _is_set(self, node: ast.expr | None, follow: bool = True) -> bool:
        """Whether it is surely a set with elements in no fixed order: neither of numbers nor of tasks."""
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
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SET_METHODS:
            return self._is_set(node.func.value, follow)
        return bool(node.args) and self.scope.resolve(node.func) in ("builtins.set", "builtins.frozenset")

    def _refuse_sets(self, user: ast.expr | None, iterables: Iterable[ast.expr]) -> None:
        parent = self.module.parents.get(user) if user else None
        if isinstance(parent, ast.Call) and self.scope.resolve(parent.func) in _ORDER_FREE:
            return
        for node in iterables:
            if self._is_set(node):
                self.report(node, "order", "a set comes in another order on replay", "iterate over sorted(...)")

    def _read_order(self, node: ast.Call, target: _Binding) -> None:
        joins = isinstance(node.func, ast.Attribute) and node.func.attr == "join"
        if target in _ORDERED or joins:
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
            what = f"writing the global {name} is lost in a crash and repeated on replay"
            self.report(node, "global", what, "keep it in a local name and return it, or store it in an activity")

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        if any(_awaits(statement) for statement in node.body):
            for handler in node.handlers:
                if self._swallows(handler):
                    caught = "except BaseException" if handler.type else "a bare except"
                    instead = "write except Exception, or end with a bare raise"
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

    def visit_FunctionDef(self, node: _Def) -> None:
        for part in [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(part)  # its body is read when something refers to it

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Its methods can't be followed."""


def _chain(node: ast.expr) -> Iterator[ast.expr]:
    """`a`, `a.b`, `a.b()` and so on, from a dotted expression."""
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


# --- the command ------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(modules: tuple[str, ...], as_json: bool) -> None:
    """Find clocks, randomness and I/O in workflow code.

    MODULE is a dotted name, a .py file or a folder. The code is read, not run. A comment `# romancy: allow` silences
    its line. Ends with 1 if there are problems, with 2 if something can't be read.
    """
    try:
        files = dict.fromkeys(file.resolve() for module in modules for file in _files(module))
        read = [_read(file) for file in files]
    except _Unreadable as error:
        click.echo(f"romancy check: {error}", err=True)
        sys.exit(2)
    problems = [problem for module in read for problem in module.problems()]
    workflows = sum(len(module.workflows) for module in read)
    if as_json:
        click.echo(json.dumps({"workflows": workflows, "problems": [asdict(problem) for problem in problems]}))
    elif not problems:
        click.echo(f"no problems in {workflows} workflow{'' if workflows == 1 else 's'}")
    elif sys.stdout.isatty():
        show_table(problems, Console())
    else:
        for problem in problems:
            click.echo(str(problem))
    sys.exit(1 if problems else 0)


def show_table(problems: list[Problem], console: Console) -> None:
    """For a terminal: where, what kind, what and what instead."""
    table = Table("where", "kind", "problem", box=None, pad_edge=False)
    for problem in problems:
        where = Text(f"{problem.file}:{problem.line}:{problem.column}", style="cyan")
        table.add_row(where, Text(problem.code, style="yellow"), Text(problem.message))
    console.print(table)


class _Unreadable(Exception):
    """A module that can't be found or parsed."""


def _read(file: Path) -> _Module:
    name = str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)
    try:
        with tokenize.open(file) as stream:
            return _Module(stream.read(), name)
    except SyntaxError as error:
        raise _Unreadable(f"{name}:{error.lineno or 1}: {error.msg}") from None
    except (OSError, ValueError, RecursionError, tokenize.TokenError) as error:
        raise _Unreadable(f"{name}:1: {error}") from None


def _files(module: str) -> list[Path]:
    path = Path(module)
    if path.is_dir():
        return _sources(path)
    if path.is_file():
        return [path]
    name = module.partition(":")[0]  # as in `romancy serve shop:app`
    if module.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
        raise _Unreadable(f"can't find {module}; give a dotted module name, a .py file or a folder")
    return _find(name)


def _sources(folder: Path) -> list[Path]:
    """The Python files below a folder, without hidden ones and environments."""
    found: list[Path] = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name in ("__pycache__", "node_modules"):
            continue
        if entry.is_dir() and not (entry / "pyvenv.cfg").exists():
            found += _sources(entry)
        elif entry.suffix == ".py" and entry.is_file():
            found.append(entry)
    return found


def _find(module: str) -> list[Path]:
    """A module's files by its dotted name. Steps down by path, as find_spec("a.b") would import a."""
    top, *below = module.split(".")
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = find_spec(top)
        for name in below:
            top = f"{top}.{name}"
            spec = PathFinder.find_spec(top, spec.submodule_search_locations or []) if spec else None
    except (ImportError, ValueError):
        spec = None
    finally:
        sys.path.remove(str(Path.cwd()))
    if spec and spec.submodule_search_locations:
        return [file for folder in spec.submodule_search_locations for file in _sources(Path(folder))]
    if not spec or not spec.origin or not spec.origin.endswith(".py"):
        raise _Unreadable(f"can't find the source of module {module}; is it spelled right, and are you in its folder?")
    return [Path(spec.origin)]
