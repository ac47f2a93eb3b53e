"""What the engine's tests share: a clock to turn, a file to work on, the disk as a crash would leave it."""

import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from romancy.testing import Environment, environment


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
