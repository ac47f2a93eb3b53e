"""Workers with values outside the database are killed at any moment. No value is without its file."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests import pg_schemas, pg_server
from tests.crash.outside_worker import STEPS, app, page


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    if request.param == "sqlite":
        yield str(tmp_path / "romancy.db"), ""
        return
    async with pg_schemas.schemas() as another:
        yield pg_server.url(), another()


def spawn(*args: str) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).parents[2])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.outside_worker", *args], cwd=root, env={**os.environ, "PYTHONPATH": root}
    )


@pytest.mark.play
async def test_no_value_is_without_its_file(database: tuple[str, str], tmp_path: Path) -> None:
    dice, folder = random.Random(5), str(tmp_path / "blobs")
    workers = [spawn(*database, folder) for _ in range(2)]
    try:
        async with app(*database, folder, works=False) as reader:
            ids = [f"book-{n}" for n in range(20)]
            for id in ids:
                await reader.start_workflow("book", instance_id=id)
                await asyncio.sleep(dice.uniform(0, 0.2))
                victim = dice.randrange(2)
                if dice.random() < 0.5:
                    workers[victim].kill()
                    workers[victim].wait()
                    workers[victim] = spawn(*database, folder)
            for id in ids:
                expected = sha256("".join(page(id, n) for n in range(STEPS)).encode()).hexdigest()
                assert await reader.handle(id).result(60) == expected
                entries = await reader.get_history(id)
                results = [entry.result for entry in entries if entry.kind == "activity_completed"]
                assert results == [page(id, n) for n in range(STEPS)]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
