"""Versions of a workflow. The version is part of the stored name: `payment`, then `payment@2`.

Instances are claimed by stored name, so a worker without a version never touches its instances. People use the bare
name: it means the highest version to start, and all versions in lists.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

SIGN = "@"
_VERSIONED = re.compile(r"(?P<name>.+)@(?P<version>[1-9][0-9]*)", re.DOTALL)


def stored_name(name: str, version: int) -> str:
    """Return the name under which a version is stored. Version 1 has the bare name."""
    return name if version == 1 else f"{name}{SIGN}{version}"


def split_name(stored: str) -> tuple[str, int]:
    """Return the bare name and the version of a stored name."""
    found = _VERSIONED.fullmatch(stored) if SIGN in stored else None
    return (stored, 1) if found is None else (found["name"], int(found["version"]))


def bare_name(stored: str) -> str:
    return split_name(stored)[0]


def check_version(name: str, version: int) -> None:
    if SIGN in name:
        raise TypeError(f"the name {name!r} must not contain {SIGN!r}: it separates the version; use version=")
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version < 1_000_000:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the version of workflow {name!r} must be a whole number from 1 on, got {version!r}")


def highest_versions(triggers: Sequence[tuple[str, int | None]]) -> Sequence[tuple[str, int | None]]:
    """Keep the highest version of each workflow, of (stored name, timeout). Two are announced during a deployment."""
    if len(triggers) < 2:
        return triggers
    kept: dict[str, tuple[int, tuple[str, int | None]]] = {}
    for trigger in triggers:
        name, version = split_name(trigger[0])
        if name not in kept or version > kept[name][0]:
            kept[name] = version, trigger
    return [trigger for _, trigger in kept.values()]
