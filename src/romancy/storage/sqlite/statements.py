"""The statements of SQLite by name, with numbered parameters."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from typing import Any

from romancy.storage.sql import dialect, make, prefixed

_TYPE = re.compile(r"::\w+(?:\[\])?")
"""The type of a parameter, which SQLite does not need."""
_BLOCKS = {name: prefixed(_TYPE.sub("", text)) for name, text in dialect("sqlite").items()}
STATEMENTS = {name: make(text, _BLOCKS, "?") for name, text in _BLOCKS.items() if not name.startswith("{")}
SQL = {name: statement.sql for name, statement in STATEMENTS.items()}
"""Values are passed in the order in which a statement first names them."""
LEAVE = _BLOCKS["leave"]
"""The statement that callers run, with its parameters as `:name`."""


def run(c: sqlite3.Connection, name: str, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement with values by name; lists are sent as JSON."""
    statement = STATEMENTS[name]
    values = [json.dumps(v) if isinstance(v, list) else v for v in statement.values(given)]
    return c.execute(statement.sql, values).fetchall()
