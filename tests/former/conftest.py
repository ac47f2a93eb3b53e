"""A database of a former release, in a file of its own."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

FORMER = Path(__file__).with_name("0005.sql")


@pytest.fixture
def database(tmp_path: Path) -> str:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(FORMER.read_text())
    return str(file)
