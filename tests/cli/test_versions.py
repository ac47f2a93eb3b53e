"""Versions of a workflow on the command line: a bare name means the highest one, and lists show it."""

from __future__ import annotations

from pathlib import Path

import pytest

STORE = """
from romancy import WorkflowContext, wait_event, workflow

@workflow(name="payment")
async def old(ctx: WorkflowContext, order: str) -> int:
    await wait_event(ctx, "go")
    return 1

@workflow(name="payment", version=2)
async def payment(ctx: WorkflowContext, order: str) -> int:
    return 2
"""


@pytest.fixture
def store(folder: Path) -> None:
    (folder / "store.py").write_text(STORE)


@pytest.mark.usefixtures("store")
def test_versions_are_started_and_shown(romancy) -> None:
    for name, id in (("payment", "two"), ("payment@1", "one"), ("payment@2", "too")):
        romancy("start", name, "ORD-1", "-m", "store", "--id", id)
    listed = {line.split()[0]: line.split()[1] for line in romancy("list").stdout.splitlines()[1:]}
    assert listed == {"one": "payment", "two": "payment@2", "too": "payment@2"}
    assert len(romancy("list", "--workflow", "payment").stdout.splitlines()) == 4
    assert len(romancy("list", "--workflow", "payment@1").stdout.splitlines()) == 2
    for command in ("show", "why"):
        assert "payment@2" in romancy(command, "two").stdout
        assert "payment@" not in romancy(command, "one").stdout
    assert romancy("replay", "two", "-m", "store").stdout.startswith("ok")
    assert romancy("run", "store:payment", "ORD-1").stdout.strip() == "2"
