"""The tutorial, done as its pages say, one after the other in one folder: real files, servers, events, kill -9."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import asyncpg
import pytest

from tests import pg_server
from tests.docs import walk
from tests.docs.walk import Walk
from tests.helpers import free_port

PAGES = sorted((Path(__file__).parents[2] / "docs" / "tutorial").glob("*.md"))
QUICK = ("1-order",)


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shop")


@pytest.fixture(scope="module")
def reader(folder: Path) -> Walk:
    return walk.reader(folder, free_port())


@pytest.fixture
def postgres(reader: Walk) -> Iterator[None]:
    schema = f"test_{os.urandom(6).hex()}"
    reader.postgres = pg_server.url()
    reader.environment["ROMANCY_SCHEMA"] = schema
    yield
    for name in ("ROMANCY_DATABASE", "ROMANCY_SCHEMA"):
        reader.environment.pop(name, None)

    async def drop() -> None:
        connection = await asyncpg.connect(pg_server.url())
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        await connection.close()

    asyncio.run(drop())


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page.stem in QUICK else pytest.mark.play, id=page.stem) for page in PAGES]
)
def test_a_step(page: Path, reader: Walk, request: pytest.FixtureRequest) -> None:
    if page.stem == "8-postgres":
        request.getfixturevalue("postgres")
    for earlier in PAGES[: PAGES.index(page)]:
        reader.save_files(text(earlier))
    reader.read(text(page))


def test_every_page_leads_to_the_next() -> None:
    for page, following in pairwise(PAGES):
        assert f"]({following.name}).\n" in text(page).splitlines(keepends=True)[-1]
