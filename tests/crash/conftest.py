"""Crashes make the log noisy: thousands of warnings that say what the tests do on purpose."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests import pg_server
from tests.crash import stage
from tests.crash.ground import Ground, SQLiteGround, postgres_ground


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger = logging.getLogger("romancy")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.fixture(scope="session")
def schema() -> Iterator[str]:
    with asyncio.Runner() as runner:
        making = pg_server.schema()
        yield runner.run(making.__aenter__())
        runner.run(making.__aexit__(None, None, None))


@pytest.fixture(params=["sqlite", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """The URL and the schema; on SQLite, the schema is empty."""
    if request.param == "sqlite":
        yield str(tmp_path / "romancy.db"), ""
        return
    async with pg_server.schema() as schema:
        yield pg_server.url(), schema


@pytest.fixture(params=["sqlite", "postgres"])
async def ground(request: pytest.FixtureRequest, schema: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ground]:
    """Plays and environments of this test take place on each database."""

    def use(ground: Ground) -> Ground:
        monkeypatch.setattr(stage, "ground", ground)
        monkeypatch.setattr(sys.modules["romancy.testing.environment"], "open_storage", ground.open_storage)
        return ground

    if request.param == "sqlite":
        yield use(SQLiteGround())
        return
    async with postgres_ground(schema) as ground:
        yield use(ground)
