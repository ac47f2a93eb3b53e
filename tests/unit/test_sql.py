"""SQL is written once and whole: what both databases run is shared, and no statement is put together in Python."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import romancy.storage.sql
from romancy.storage.postgres.statements import BLOCKS as POSTGRES_BLOCKS
from romancy.storage.sql import blocks
from romancy.storage.sqlite.statements import _BLOCKS as SQLITE_BLOCKS

FOLDER = Path(romancy.storage.sql.__file__).parent
STORAGE = FOLDER.parent
COMMON = blocks("common.sql") | blocks("inbox.sql") | blocks("retention.sql")
SQLITE = blocks("sqlite.sql") | blocks("sqlite_inbox.sql") | blocks("sqlite_retention.sql")
POSTGRES = (
    blocks("postgres.sql")
    | blocks("postgres_leases.sql")
    | blocks("postgres_inbox.sql")
    | blocks("postgres_retention.sql")
)
MAY_PUT_TOGETHER = {
    "postgres/statements.py": "the group commit, of the pieces that a batch needs",
    "postgres/endings.py": "several statements in one message, which has no parameters",
    "postgres/migrations.py": "names of schemas",
    "postgres/vault.py": "the same statement for several tables, once for a schema",
    "sqlite/connection.py": "a setting",
    "sqlite/migrations.py": "settings",
    "tools/copy/__init__.py": "names of schemas and tables",
    "tools/copy/source.py": "names of tables",
    "tools/copy/tables.py": "names of tables and columns",
    "tools/file_state.py": "settings of a file that is not opened as a database of ours",
    "tools/server_state.py": "names of schemas, and what a server says about itself",
}
"""Files that do, and what: there are no parameters for names."""
MAY_HOLD = MAY_PUT_TOGETHER | {
    "guests.py": "asks which file a connection is open on",
    "postgres/connection.py": "asks which server this is",
    "postgres/listener.py": "locks of a session",
    "postgres/numbers.py": "reads whole tables, once for a schema that comes from another server",
    "sqlite/threads.py": "asks whether others wrote to the file",
    "tools/migration.py": "reads files of any version",
}
"""Files with whole statements: about servers, sessions and schemas rather than what is stored."""
VERBS = r"(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|VACUUM|ANALYZE|CREATE|LOCK|SET|PRAGMA) "
PIECES = r"\(*(FROM|WHERE|AND|OR|ORDER BY|GROUP BY|LIMIT|VALUES|JOIN|CASE|EXISTS|NOT EXISTS)\b.*[\w)]"


def plain(text: str) -> str:
    """Without what is only style: white space, types, the schema, and how parameters are called."""
    text = re.sub(r"::\w+(\[\])?|\bromancy\.", "", text)
    return re.sub(r"\s+", " ", re.sub(r"(?<!:):\w+", "?", text)).strip()


def comments(file: str) -> dict[str, str]:
    """What is said about each block: the comment above it."""
    found: dict[str, str] = {}
    said: list[str] = []
    for line in (FOLDER / file).read_text().splitlines():
        head = re.match(r"-- (name|part): (\w+)", line)
        if head is not None:
            found[head[2] if head[1] == "name" else f"{{{head[2]}}}"] = "\n".join(said)
        said = [*said, line] if line.startswith("--") and head is None else []
    return found


def test_what_both_run_is_written_once() -> None:
    both = {name for name in SQLITE.keys() & POSTGRES.keys() if plain(SQLITE[name]) == plain(POSTGRES[name])}
    assert not both, "move to common.sql"
    texts = {plain(text): name for name, text in SQLITE.items()}
    assert not [(name, texts[plain(t)]) for name, t in POSTGRES.items() if plain(t) in texts], "the same by two names"


def test_nothing_is_both_common_and_of_a_dialect() -> None:
    assert not COMMON.keys() & (SQLITE.keys() | POSTGRES.keys())


def test_what_differs_says_why() -> None:
    said = [comments("sqlite.sql"), comments("postgres.sql") | comments("postgres_leases.sql")]
    said = [
        of | comments(f"{name}_inbox.sql") | comments(f"{name}_retention.sql")
        for of, name in zip(said, ("sqlite", "postgres"), strict=True)
    ]
    both = SQLITE.keys() & POSTGRES.keys()
    assert not [name for name in sorted(both) for of in said if not re.search(r"^-- Differs: \w", of[name], re.M)]
    alone = [name for of in said for name, text in of.items() if "Differs:" in text and name not in both]
    assert not alone, "differs from nothing"


@pytest.mark.parametrize("all_blocks", [SQLITE_BLOCKS, POSTGRES_BLOCKS], ids=["sqlite", "postgres"])
def test_every_block_is_used(all_blocks: dict[str, str]) -> None:
    words = {word for file in STORAGE.rglob("*.py") for word in re.findall(r"\w+", file.read_text())}
    within = "\n".join(all_blocks.values())
    named = {name for name in all_blocks if not name.startswith("{")}
    by_index = re.compile("_of_(status|parent|attribute)$")
    assert {name for name in named if by_index.sub("", name) not in words} == set()
    made = (
        "{write_",
        "{result_",
        "{sent_by_",
        "{newborn_",
        "{startable_",
        "{starts_",
        "{no_starts_",
        "{queueable_",
        "{queued_",
    )  # of the group commit
    assert {name for name in all_blocks.keys() - named if name not in within and not name.startswith(made)} == set()


def _texts(file: Path) -> list[tuple[int, bool, str]]:
    """(line, whether it has gaps, text) of every string."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    gaps = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    inside = {id(value) for node in gaps for value in node.values}
    found = [(node.lineno, True, ast.unparse(node)[2:-1]) for node in gaps]
    whole = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in inside]
    return found + [(node.lineno, False, node.value) for node in whole if isinstance(node.value, str)]


@pytest.mark.parametrize("file", sorted(STORAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(STORAGE)))
def test_statements_are_whole_and_in_sql_files(file: Path) -> None:
    name = str(file.relative_to(STORAGE))
    for line, has_gaps, text in _texts(file):
        place = f"{name}:{line}: {text[:60]}"
        assert not re.match(PIECES, text.strip()), f"a piece of a statement: {place}"
        if re.match(VERBS, text.strip()):
            assert name in MAY_HOLD, f"a statement outside of the files: {place}"
            assert not has_gaps or name in MAY_PUT_TOGETHER, f"put together: {place}"
    cut = re.findall(r".*(?:SQL\[[^\]]+\]|\.sql)\s*(?:\.\w|\+|%).*", file.read_text())
    assert not cut, f"{name}: cut or glued"
