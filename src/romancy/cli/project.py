"""`romancy init`: write a new project that runs."""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from importlib.resources import files
from pathlib import Path
from string import Template

import click

from romancy import __version__
from romancy.cli.errors import Failed
from romancy.cli.screen import Screen
from romancy.cli.words import clean

FILES = {
    "app.py": "a workflow that waits for an event",
    "test_app.py": "its tests",
    "pyproject.toml": "the dependencies",
    "Dockerfile": "an image that serves it",
    ".gitignore": "what git leaves out",
    "README.md": "what to run",
}
"""The files of a project, and what each is."""
_TEMPLATES = files("romancy.cli").joinpath("templates", "init")
_NAME = "orders"
"""The name of a project whose folder's name can't be one."""
_NEEDED = frozenset(
    "romancy pytest pytest-asyncio setuptools click cronsim h11 httpx2 jinja2 prometheus-client pydantic rich tzdata "
    "typing-extensions uvicorn".split()
)
"""What a project needs, and what Romancy needs: a project of such a name would replace it when it is installed."""


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
def init(folder: Path) -> None:
    """Write a new project that runs: a workflow, its tests, a Dockerfile.

    FOLDER is created if it does not exist; the default is the current one. No file is ever overwritten.
    """
    there = [name for name in FILES if os.path.lexists(folder / name)]
    if there:
        raise Failed(f"{_shown(folder)} already has {', '.join(there)}; nothing was written, choose another folder")
    texts = {name: _text(name, project_name(folder)) for name in FILES}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with open(folder / name, "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    screen = Screen()
    screen.say(f"wrote to {_shown(folder)}:")
    for name, what in FILES.items():
        screen.say(f"  {name:15} {what}")
    screen.heading("Next:")
    if folder.resolve() != Path.cwd():
        path = str(folder)
        screen.say(f"  cd {clean(shlex.quote(f'./{path}' if path.startswith('-') else path))}")
    for command in ("pip install -e '.[dev]'", "pytest", "romancy serve app"):
        screen.say(f"  {command}")
    screen.say()
    screen.say("While it serves, in another terminal:")
    screen.say("  romancy start order ORD-1 --id ORD-1")
    screen.say("""  romancy send payment.completed '{"amount": 99.5}' --subject ORD-1""")


def project_name(folder: Path) -> str:
    """Return the name of a project in this folder: lower case letters, digits and dashes."""
    parts = unicodedata.normalize("NFKD", folder.resolve().name.casefold())  # letters apart from their accents
    if any(c.isalnum() and not c.isascii() for c in parts):
        return _NAME
    plain = "".join(c for c in parts if not unicodedata.combining(c))
    name = re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or _NAME
    return f"{name}-app" if name in _NEEDED else name


def _text(name: str, project: str) -> str:
    text = _TEMPLATES.joinpath(f"{name.removeprefix('.')}.txt").read_text(encoding="utf-8")
    return Template(text).substitute(name=project, version=__version__)


def _shown(folder: Path) -> str:
    return clean(str(folder)) if folder != Path() else "this folder"
