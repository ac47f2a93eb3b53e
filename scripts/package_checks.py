"""What `scripts/package` checks by itself: the contents of the packages, and that every module can be imported.

python scripts/package_checks.py contents SDIST WHEEL    # in a checkout
python scripts/package_checks.py imports                 # where the wheel is installed, and nothing else
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from importlib.metadata import distributions, version

NEEDS_MORE = {
    "asyncpg": "romancy[postgres]",
    "mcp": "romancy[mcp]",
    "opentelemetry": "romancy[otel]",
    "pydantic_ai": "romancy[pydantic-ai]",
    "pytest": "pytest",
    "sqlalchemy": "romancy[sqlalchemy]",
}
"""Packages that a module may need beyond Romancy's own dependencies: what it imports, and what to install."""
EXPECTED = (
    "romancy.contrib.",
    "romancy.storage.postgres",
    "romancy.storage.tools.copy",
    "romancy.storage.tools.server_state",
    "romancy.testing.plugin",
)
"""Modules that may need more. All others must not."""
NOT_SHIPPED = (".ci/", ".editorconfig")
"""Tracked, but of no use in an sdist."""
ADDED = {"PKG-INFO"}


def check_contents(sdist: str, wheel: str) -> list[str]:
    """Compare the packages with the files that git tracks: nothing is missing, nothing else got in."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
    tracked = {name for name in listed if name}
    with tarfile.open(sdist) as archive:
        in_sdist = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name for name in archive.namelist() if ".dist-info/" not in name}
    print(f"sdist: {len(in_sdist)} files; wheel: {len(in_wheel)} files")
    return compare(tracked, in_sdist, in_wheel)


def compare(tracked: set[str], in_sdist: set[str], in_wheel: set[str]) -> list[str]:
    shipped = {name for name in tracked if not name.startswith(NOT_SHIPPED)}
    modules = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    return [
        *_complaints("is not in the sdist", shipped - in_sdist),
        *_complaints("is in the sdist, but not tracked by git", in_sdist - tracked - ADDED),
        *_complaints("is not in the wheel", modules - in_wheel),
        *_complaints("is in the wheel, but not in src", in_wheel - modules),
    ]


def check_imports() -> list[str]:
    """Import every module of the installed package."""
    import romancy

    installed = {distribution.name.lower() for distribution in distributions()}
    problems = _complaints("is installed: the environment is not a fresh one", installed & {"pytest", "ruff", "mypy"})
    if romancy.__version__ != version("romancy"):
        problems.append(f"romancy.__version__ is {romancy.__version__}, but version {version('romancy')} is installed")
    imported, left_out = 0, set[str]()
    for module in pkgutil.walk_packages(romancy.__path__, "romancy.", onerror=lambda name: None):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            needed = needed_by(module.name, error)
            if needed is None:
                problems.append(f"{module.name} can't be imported: {error}")
            else:
                left_out.add(f"{module.name} needs {needed}")
        else:
            imported += 1
    print(f"{imported} modules can be imported;", ", ".join(sorted(left_out)) or "none needs more")
    return problems


def needed_by(module: str, error: BaseException | None) -> str | None:
    """Return what to install for a module that may need it, or None if it must be importable."""
    while error is not None and not (isinstance(error, ModuleNotFoundError) and error.name):
        error = error.__cause__  # modules raise an error of their own, which says what to install
    missing = error.name.partition(".")[0] if error and error.name else ""
    return NEEDS_MORE.get(missing) if module.startswith(EXPECTED) else None


def _complaints(problem: str, names: Iterable[str]) -> list[str]:
    return [f"{name} {problem}" for name in sorted(names)]


def main(arguments: list[str]) -> int:
    match arguments:
        case ["contents", sdist, wheel]:
            problems = check_contents(sdist, wheel)
        case ["imports"]:
            problems = check_imports()
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
