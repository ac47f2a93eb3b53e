"""SQL statements as named blocks in .sql files, each with a heading like `-- name: insert_event`.

`common.sql` holds the statements that both databases run; the files of a dialect hold the others. If both dialects have
a block, `-- Differs:` says why. `-- part: wait` begins a part of other statements, which refer to it as `{wait}`.

All files use one notation: `:name` is a parameter, `::bigint` its type (removed for SQLite), "romancy." the schema, for
SQLite the prefix "romancy_" of tables and indexes: the file may hold tables of the user's own.
Each statement is translated once, before it is first used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Protocol

_FILES = {
    "sqlite": (
        "common.sql",
        "desk.sql",
        "inbox.sql",
        "retention.sql",
        "sinks.sql",
        "sqlite.sql",
        "sqlite_desk.sql",
        "sqlite_emissions.sql",
        "sqlite_inbox.sql",
        "sqlite_retention.sql",
        "sqlite_sinks.sql",
    ),
    "postgres": (
        "common.sql",
        "desk.sql",
        "inbox.sql",
        "retention.sql",
        "sinks.sql",
        "postgres.sql",
        "postgres_desk.sql",
        "postgres_emissions.sql",
        "postgres_leases.sql",
        "postgres_inbox.sql",
        "postgres_retention.sql",
        "postgres_sinks.sql",
    ),
}
_HEAD = re.compile(r"-- (name|part): (\w+)")
_PART = re.compile(r"\{\w+\}")
_SCHEMA = re.compile(r"\bromancy\.")
_PARAMETER = re.compile(r"(?<!:):(\w+)")


class Run(Protocol):
    """Runs a statement by its name."""

    async def __call__(self, name: str, /, **given: Any) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with numbered parameters ($1 or ?1, ...), and their names."""

    sql: str
    names: tuple[str, ...]

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        return [given[name] for name in self.names]


def blocks(file: str) -> dict[str, str]:
    """Return the named blocks of one file; names of parts are in braces, as where they are used."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (resources.files(__package__ or __name__) / file).read_text("utf-8").splitlines():
        head = _HEAD.match(line)
        if head is not None:
            lines = found[head[2] if head[1] == "name" else f"{{{head[2]}}}"] = []
        elif not line.lstrip().startswith("--"):
            lines.append(line.strip())
    return {name: " ".join(lines).strip() for name, lines in found.items()}


def dialect(name: str) -> dict[str, str]:
    """Return all blocks of a dialect, including the shared ones."""
    return {name: text for file in _FILES[name] for name, text in blocks(file).items()}


def make(text: str, parts: Mapping[str, str], sign: str) -> Statement:
    """Insert the parts, and number the parameters: $1, $2 or ?1, ?2."""
    text = expanded(text, parts)
    names = list(dict.fromkeys(_PARAMETER.findall(text)))
    return Statement(_PARAMETER.sub(lambda name: f"{sign}{names.index(name[1]) + 1}", text), tuple(names))


def expanded(text: str, parts: Mapping[str, str]) -> str:
    """Insert the parts."""
    while _PART.search(text):
        text = _PART.sub(lambda part: parts[part[0]], text)
    return text


def prefixed(text: str) -> str:
    """Return SQL for SQLite: what is in the schema "romancy" elsewhere has a prefix there."""
    return _SCHEMA.sub("romancy_", text)


def migrations(dialect: str) -> list[tuple[int, int, str]]:
    """Return (version, minimum reader, script) of every migration of a dialect, in order."""
    steps: list[tuple[int, int, str]] = []
    for file in (resources.files(__package__ or __name__) / "migrations").iterdir():
        if file.name.endswith(f".{dialect}.sql"):
            script = file.read_text("utf-8")
            reader = next(line for line in script.splitlines() if line.startswith("-- min_reader:"))
            steps.append((int(file.name.split("_")[0]), int(reader.split(":")[1]), script))
    return sorted(steps)
