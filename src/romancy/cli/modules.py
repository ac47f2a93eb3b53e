"""The user's modules: found, imported, and asked for their workflows and apps."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import click

import romancy
from romancy.api.workflow import Workflow
from romancy.app import App
from romancy.cli.errors import Failed, Refused

_OURS = str(Path(romancy.__file__).parent) + os.sep
"""What begins so is Romancy's own: the line to look at is the user's that called it."""

module_option = click.option(
    "--module",
    "-m",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Where the workflow is: a dotted name or a .py file.",
)


def load(name: str) -> ModuleType:
    """Import a module by its dotted name or file, as if from the current folder."""
    folder, module = Path.cwd(), name
    if name.endswith(".py"):
        folder, module = Path(name).resolve().parent, Path(name).stem
        if not Path(name).is_file():
            raise Refused(f"there is no file {name!r}")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    if not _is_there(module):
        raise Refused(f"can't find module {name!r}; is it spelled right, and are you in its folder?")
    try:
        return importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Failed(f"module {name!r} can't be imported: {_said(error)}") from error


def _is_there(module: str) -> bool:
    top = module.partition(".")[0]
    if module in sys.modules:
        return True
    if not all(part.isidentifier() for part in module.split(".")) or find_spec(top) is None:
        return False
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError as error:  # a package on the way is missing; what the package itself misses is its fault
        return not (error.name and f"{module}.".startswith(f"{error.name}."))
    except BaseException:  # a package on the way can't be imported: importing it again tells why
        return True


def _said(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({error.filename}:{error.lineno})"
    frames = [f for f in traceback.extract_tb(error.__traceback__)[1:] if not f.filename.startswith("<frozen")]
    theirs = [frame for frame in frames if not frame.filename.startswith(_OURS)] or frames
    where = f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
    return f"{type(error).__name__}: {error}{where}"


def workflows_of(module: ModuleType) -> dict[str, Workflow[..., Any]]:
    """The workflows in a module, by the names they are stored under."""
    return {found.name: found for found in vars(module).values() if isinstance(found, Workflow)}


def load_workflow(target: str) -> tuple[ModuleType, Workflow[..., Any]]:
    """`MODULE:WORKFLOW`, the function's name or the one it is stored under."""
    name, colon, wanted = target.rpartition(":")
    module = load(name if colon else target)
    there = workflows_of(module)
    attribute: object = getattr(module, wanted, None) if colon else None
    found = cast("Workflow[..., Any]", attribute) if isinstance(attribute, Workflow) else there.get(wanted)
    if colon and found is not None:
        return module, found
    known = ", ".join(f"{module.__name__}:{name}" for name in sorted(there)) or "none"
    what = f"{name!r} has no workflow {wanted!r}" if colon else f"say which workflow of {target!r}"
    raise Refused(f"{what}; there are: {known}")


def find_workflow(modules: Sequence[str], name: str) -> Workflow[..., Any]:
    """The workflow stored under a name, in one of these modules."""
    there = {key: found for module in modules for key, found in workflows_of(load(module)).items()}
    if name not in there:
        known = ", ".join(sorted(there)) or "none"
        raise Refused(f"no workflow in {', '.join(modules)} is named {name!r}; there are: {known}")
    return there[name]


def app_of(module: ModuleType, name: str | None = None) -> App | None:
    """The app a module defines: the one of this name, or the only one."""
    if name is not None:
        found = getattr(module, name, None)
        if not isinstance(found, App):
            raise Refused(f"{module.__name__!r} has no App named {name!r}")
        return found
    apps = {id(found): found for found in vars(module).values() if isinstance(found, App)}
    return next(iter(apps.values())) if len(apps) == 1 else None


def register(app: App, *found: ModuleType | Workflow[..., Any]) -> None:
    """Make workflows known to an app; what can't be is the user's to mend."""
    try:
        app.register(*found)
    except (TypeError, ValueError) as error:
        raise Failed(str(error)) from error
