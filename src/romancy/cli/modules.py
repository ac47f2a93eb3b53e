"""Find and import the user's modules, and get their workflows and apps."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import click

import romancy
from romancy.api.workflow import Workflow
from romancy.app import App
from romancy.cli.errors import Failed, Refused
from romancy.core.versions import bare_name, split_name, stored_name

_OURS = str(Path(romancy.__file__).parent) + os.sep
"""Prefix of Romancy's own files. Errors name the user's line that called them instead."""

module_option = click.option(
    "--module",
    "-m",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Module that defines the workflow: a dotted name or a .py file (repeatable).",
)


def load(name: str) -> ModuleType:
    """Import a module by its dotted name or file. Dotted names start at the current folder."""
    folder, module = Path.cwd(), name
    if name.endswith(".py"):
        folder, module = Path(name).resolve().parent, Path(name).stem
        if not Path(name).is_file():
            raise Refused(f"no such file: {name!r}")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    if not _exists(module):
        raise Refused(f"can't find module {name!r}; check the name and the current folder")
    try:
        return importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Failed(f"can't import module {name!r}: {_describe(error)}") from error


def _exists(module: str) -> bool:
    top = module.partition(".")[0]
    if module in sys.modules:
        return True
    if not all(part.isidentifier() for part in module.split(".")) or find_spec(top) is None:
        return False
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError as error:  # a parent package is missing, or (True) a module that it imports
        return not (error.name and f"{module}.".startswith(f"{error.name}."))
    except BaseException:  # a parent package can't be imported: importing it again shows why
        return True


def _describe(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({error.filename}:{error.lineno})"
    frames = [f for f in traceback.extract_tb(error.__traceback__)[1:] if not f.filename.startswith("<frozen")]
    theirs = [frame for frame in frames if not frame.filename.startswith(_OURS)] or frames
    where = f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
    return f"{type(error).__name__}: {error}{where}"


def workflows_of(module: ModuleType) -> dict[str, Workflow[..., Any]]:
    """Return the workflows in a module, by the names they are stored under."""
    return {found.name: found for found in vars(module).values() if isinstance(found, Workflow)}


def load_workflow(target: str) -> tuple[ModuleType, Workflow[..., Any]]:
    """Load `MODULE:WORKFLOW`: the name of the function, or the name it is stored under."""
    name, colon, wanted = target.rpartition(":")
    module = load(name if colon else target)
    there = workflows_of(module)
    attribute: object = getattr(module, wanted, None) if colon else None
    found = cast("Workflow[..., Any]", attribute) if isinstance(attribute, Workflow) else _latest(there, wanted)
    if colon and found is not None:
        return module, found
    known = ", ".join(f"{module.__name__}:{name}" for name in sorted(there)) or "none"
    what = f"{name!r} has no workflow {wanted!r}" if colon else f"choose a workflow of {target!r}"
    raise Refused(f"{what}; available: {known}")


def _latest(there: Mapping[str, Workflow[..., Any]], name: str) -> Workflow[..., Any] | None:
    """Return the highest version of a workflow, or the version that the name includes."""
    versions = {split_name(key)[1]: found for key, found in there.items() if bare_name(key) == name}
    return versions[max(versions)] if versions else there.get(stored_name(*split_name(name)))


def find_latest(modules: Sequence[str], name: str) -> Workflow[..., Any]:
    """Find the workflow that a start by name means."""
    found = _latest(code_of(modules)[0], name)
    return find_workflow(modules, name) if found is None else found


def code_of(modules: Sequence[str]) -> tuple[dict[str, Workflow[..., Any]], App | None]:
    """Return the workflows that a worker for these modules runs, and the app that one of them names (`shop:app`).

    The workflows are by stored name.
    """
    found: dict[str, Workflow[..., Any]] = {}
    named: App | None = None
    for target in modules:
        name, colon, wanted = target.rpartition(":")
        if not colon or target.endswith(".py"):
            name, wanted = target, ""
        module = load(name)
        app = app_of(module, wanted or None)
        found |= {**workflows_of(module), **(app.workflows if app is not None else {})}
        named = app if wanted else named
    return found, named


def find_workflow(modules: Sequence[str], name: str) -> Workflow[..., Any]:
    """Find the workflow stored under a name in these modules."""
    return pick(code_of(modules)[0], name, modules)


def pick(there: Mapping[str, Workflow[..., Any]], name: str, modules: Sequence[str]) -> Workflow[..., Any]:
    """Return the workflow stored under a name."""
    if name not in there:
        known = ", ".join(sorted(there)) or "none"
        raise Refused(f"no workflow in {', '.join(modules)} is named {name!r}; available: {known}")
    return there[name]


def app_of(module: ModuleType, name: str | None = None) -> App | None:
    """Return the app of this name in a module, or its only app."""
    if name is not None:
        found = getattr(module, name, None)
        if not isinstance(found, App):
            kind = f": it is a {type(found).__name__}, which `uvicorn {module.__name__}:{name}` serves"
            known = ", ".join(f"{module.__name__}:{app}" for app in sorted(_apps(module))) or "none"
            has_none = f"{module.__name__!r} has no App named {name!r}{kind if callable(found) else ''}"
            raise Refused(f"{has_none}; available: {known}")
        return found
    apps = {id(found): found for found in _apps(module).values()}
    return next(iter(apps.values())) if len(apps) == 1 else None


def _apps(module: ModuleType) -> dict[str, App]:
    return {name: found for name, found in vars(module).items() if isinstance(found, App)}


def codec_in_environment() -> Any:
    """Return the codec that ROMANCY_CODEC names (`shop:codec`); None if it names none."""
    target = os.environ.get("ROMANCY_CODEC")
    if not target:
        return None
    name, colon, wanted = target.rpartition(":")
    found: Any = getattr(load(name), wanted, None) if colon else None
    if not all(hasattr(found, member) for member in ("name", "encode", "decode")):
        kind = "an App; name the codec itself" if isinstance(found, App) else "not a codec; write MODULE:OBJECT"
        raise Refused(f"ROMANCY_CODEC={target!r} is {kind}, as in shop:codec")
    return found


def redaction_in_environment() -> Any:
    """Return what ROMANCY_REDACT says: names of fields (`password,card.number`), or a function (`shop:redact`)."""
    target = os.environ.get("ROMANCY_REDACT")
    if not target:
        return None
    name, colon, wanted = target.rpartition(":")
    if not colon:
        return [field.strip() for field in target.split(",") if field.strip()]
    found: Any = getattr(load(name), wanted, None)
    if not callable(found):
        raise Refused(f"ROMANCY_REDACT={target!r} does not name a function; write MODULE:FUNCTION, or names of fields")
    return found


def register(app: App, *found: ModuleType | Workflow[..., Any]) -> None:
    """Register workflows with an app. Report invalid ones as one line, because the user must fix them."""
    try:
        app.register(*found)
    except (TypeError, ValueError) as error:
        raise Failed(str(error)) from error
