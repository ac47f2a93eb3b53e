"""What the engine's tests share: a clock to turn, a file to work on, the disk as a crash would leave it."""

import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from romancy.storage.postgres import PostgresStorage
from romancy.testing import Environment, environment
from tests import pg_schemas, pg_server


@pytest.fixture(params=["sqlite", "postgres"], autouse=True)
async def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Every test runs on each database; `@pytest.mark.sqlite` marks those that are about its files."""
    if request.param == "sqlite":
        yield "sqlite"
        return
    if request.node.get_closest_marker("sqlite") or "disk" in request.fixturenames:
        pytest.skip("about SQLite's files")
    async with pg_schemas.schemas() as another:
        schemas: dict[str, str] = {}

        def open_storage(database: str, **options: Any) -> PostgresStorage:
            name = another() if database == ":memory:" or database not in schemas else schemas[database]
            schemas[database] = name
            return PostgresStorage(pg_server.url(), **options | {"schema": name, "create": True})  # made like a file

        monkeypatch.setattr("romancy.runtime.open_storage", open_storage)
        monkeypatch.setattr(sys.modules["romancy.testing.environment"], "open_storage", open_storage)
        yield "postgres"


@pytest.fixture
async def env() -> AsyncIterator[Environment]:
    async with environment() as env:
        yield env


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "romancy.db")


@pytest.fixture
def disk(db: str, tmp_path: Path) -> Callable[[], str]:
    """A copy of the database as it is on disk right now, whatever is still in somebody's memory."""

    def copy() -> str:
        image = tmp_path / f"image{len(list(tmp_path.glob('image*.db')))}.db"
        shutil.copy(db, image)
        if Path(f"{db}-wal").exists():
            shutil.copy(f"{db}-wal", f"{image}-wal")
        return str(image)

    return copy


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For activities that hang on purpose: the environment counts them as waiting almost at once."""
    monkeypatch.setattr(sys.modules["romancy.testing.environment"], "_PATIENCE", 0.05)
