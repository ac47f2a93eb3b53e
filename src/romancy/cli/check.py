"""`romancy check`: find the files to check, and show the problems."""

from __future__ import annotations

import json
import sys
import tokenize
from dataclasses import asdict
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from romancy import __version__
from romancy.cli.checker import Module, Problem, find_problems, problems_of
from romancy.cli.checker.sarif import sarif_log
from romancy.cli.words import clean

__all__ = ["Problem", "check", "find_problems", "show_table"]


@click.command()
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, like --format json.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif"]),
    help="Print text (the default), JSON, or SARIF 2.1.0 for code scanners and editors.",
)
def check(modules: tuple[str, ...], as_json: bool, form: str | None) -> None:
    """Check workflow code for clocks, randomness and I/O.

    MODULE is a dotted name, a .py file or a folder. The code is read, not run. It also finds a missing `await` or
    `ctx`. The comment `# romancy: allow` suppresses problems on its line.

    Exits with 1 if there are problems, and with 2 if a file can't be found or parsed.
    """
    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json contradicts --format {form}")
    try:
        files = dict.fromkeys(file.resolve() for module in modules for file in _files(module))
        read = [_read(file) for file in files]
    except _Unreadable as error:
        click.echo(clean(f"romancy check: {error}"), err=True)
        sys.exit(2)
    problems = [problem for module in read for problem in problems_of(module)]
    workflows = sum(len(module.workflows) for module in read)
    if form == "sarif":
        click.echo(json.dumps(sarif_log(problems, __version__), indent=2))
    elif as_json or form == "json":
        click.echo(json.dumps({"workflows": workflows, "problems": [asdict(problem) for problem in problems]}))
    else:
        _show(problems, workflows)
    sys.exit(1 if problems else 0)


def _show(problems: list[Problem], workflows: int) -> None:
    if not problems:
        click.echo(f"no problems in {workflows} workflow{'' if workflows == 1 else 's'}")
    elif sys.stdout.isatty():
        show_table(problems, Console())
    else:
        for problem in problems:
            click.echo(clean(str(problem)))


def show_table(problems: list[Problem], console: Console) -> None:
    """Show problems on a terminal: location, kind and message."""
    table = Table("location", "kind", "problem", box=None, pad_edge=False)
    for problem in problems:
        where = Text(clean(f"{problem.file}:{problem.line}:{problem.column}"), style="cyan")
        table.add_row(where, Text(problem.code, style="yellow"), Text(problem.message))
    console.print(table)


class _Unreadable(Exception):
    """A module that can't be found or parsed."""


def _read(file: Path) -> Module:
    name = str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)
    try:
        with tokenize.open(file) as stream:
            return Module(stream.read(), name)
    except SyntaxError as error:
        raise _Unreadable(f"{name}:{error.lineno or 1}: {error.msg}") from None
    except (OSError, ValueError, RecursionError, tokenize.TokenError) as error:
        raise _Unreadable(f"{name}:1: {error}") from None


def _files(module: str) -> list[Path]:
    path = Path(module)
    if path.is_dir():
        return _sources(path)
    if path.is_file() and path.suffix == ".py":
        return [path]
    if path.is_file():
        raise _Unreadable(f"{module!r} is not a .py file; give a dotted module name, a .py file or a folder")
    name = module.partition(":")[0]  # as in `romancy serve shop:app`
    if module.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
        raise _Unreadable(f"can't find {module!r}; give a dotted module name, a .py file or a folder")
    return _find(name)


def _sources(folder: Path, seen: set[Path] | None = None) -> list[Path]:
    """Return the Python files below a folder, without hidden ones and virtual environments.

    `seen`: the folders so far. A link can lead back to one of them.
    """
    seen = set[Path]() if seen is None else seen
    found, real = list[Path](), folder.resolve()
    if real in seen:
        return found
    seen.add(real)
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name in ("__pycache__", "node_modules"):
            continue
        if entry.is_dir() and not (entry / "pyvenv.cfg").exists():
            found += _sources(entry, seen)
        elif entry.suffix == ".py" and entry.is_file():
            found.append(entry)
    return found


def _find(module: str) -> list[Path]:
    """Return the files of a module by its dotted name. Walks by path, because find_spec("a.b") would import a."""
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
        raise _Unreadable(f"can't find the source of module {module!r}; check the name and the current folder")
    return [Path(spec.origin)]
