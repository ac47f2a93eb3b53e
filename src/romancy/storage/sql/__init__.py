"""SQL is data: named blocks in .sql files, `-- name: insert_event` before each."""

from __future__ import annotations

from importlib import resources


def blocks(file: str) -> dict[str, str]:
    """The named blocks of one file."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in (resources.files(__package__ or __name__) / file).read_text("utf-8").splitlines():
        if line.startswith("-- name:"):
            name = line.removeprefix("-- name:").strip()
            found[name] = []
        elif name and line.strip() and not line.lstrip().startswith("--"):
            found[name].append(line.strip())
    return {name: " ".join(lines).rstrip(";") for name, lines in found.items()}


def migrations(dialect: str) -> list[tuple[int, int, str]]:
    """(version, minimum reader, script) of every migration of a dialect, in order."""
    steps: list[tuple[int, int, str]] = []
    for file in (resources.files(__package__ or __name__) / "migrations").iterdir():
        if file.name.endswith(f".{dialect}.sql"):
            script = file.read_text("utf-8")
            reader = next(line for line in script.splitlines() if line.startswith("-- min_reader:"))
            steps.append((int(file.name.split("_")[0]), int(reader.split(":")[1]), script))
    return sorted(steps)
