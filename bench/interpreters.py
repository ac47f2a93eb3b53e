"""The Python interpreters that systems are measured on: the one that runs the benchmark, and others that are named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ENVIRONMENTS = Path(__file__).parents[1] / ".bench"
_ASK = """
import json, platform, sqlite3, sys
jit = getattr(sys, "_jit", None)
print(json.dumps([platform.python_version(), sqlite3.sqlite_version, bool(jit and jit.is_enabled())]))
"""


class NoInterpreter(Exception):
    """A named interpreter does not run."""


@dataclass(frozen=True)
class Interpreter:
    """A Python, and the folder of the environments that are made with it."""

    path: str

    @cached_property
    def _facts(self) -> tuple[str, str, bool]:
        done = subprocess.run([self.path, "-c", _ASK], capture_output=True, text=True, check=False)
        version, sqlite, jit = json.loads(done.stdout)
        return version, sqlite, jit

    @property
    def version(self) -> str:
        """All of it, as in 3.15.0; a JIT that is switched on (PYTHON_JIT=1) is part of it."""
        return self._facts[0] + (" with JIT" if self._facts[2] else "")

    @property
    def label(self) -> str:
        """What its results are called, as in 3.15 or 3.15-jit."""
        return ".".join(self._facts[0].split(".")[:2]) + ("-jit" if self._facts[2] else "")

    @property
    def sqlite(self) -> str:
        return self._facts[1]

    @property
    def is_own(self) -> bool:
        """Whether it runs the benchmark itself, with Romancy installed beside it."""
        return self.path == sys.executable

    @property
    def environments(self) -> Path:
        return ENVIRONMENTS / ".".join(self._facts[0].split(".")[:2])


def own() -> Interpreter:
    return Interpreter(sys.executable)


def named(path: str) -> Interpreter:
    """Return an interpreter by its path or its name on PATH, after checking that it runs."""
    found = shutil.which(path)
    if found is None:
        raise NoInterpreter(f"{path} is not a program")
    interpreter = Interpreter(str(Path(found).absolute()))
    try:
        interpreter.version  # noqa: B018 - it is asked here, so that it fails here
    except (OSError, ValueError) as error:
        raise NoInterpreter(f"{path} does not run as Python") from error
    return interpreter
