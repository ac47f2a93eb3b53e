"""A worker that is killed in a model request, in one of two parallel tools, and in a tool that was approved."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from romancy import App, Database
from tests.crash.processes import spawn

pytestmark = pytest.mark.play  # four processes import pydantic-ai


async def test_only_what_was_cut_off_is_repeated(place: tuple[str, str], tmp_path: Path) -> None:
    url, schema = place
    worker = spawn("tests.crash.agent_worker", url, schema, str(tmp_path))
    deaths: list[int] = []
    try:
        async with App(Database(url, schema=schema or None), worker=False) as app, asyncio.timeout(100):
            await app.start_workflow("support", "refund please", instance_id="s")
            answered = False
            while (await app.get_instance("s")).status != "completed":
                if worker.poll() is not None:
                    deaths.append(worker.wait())
                    worker = spawn("tests.crash.agent_worker", url, schema, str(tmp_path))
                if not answered and (await app.list_questions()).items:
                    await app.answer_question("s", "ann", {"approved": True})
                    answered = True
                await asyncio.sleep(0.05)
            assert (await app.get_instance("s")).output == "done: refunded 5.0 of A"
            assert not (await app.list_questions()).items
    finally:
        worker.kill()
        worker.wait()
    assert deaths == [-signal.SIGKILL] * 3
    calls = Counter((tmp_path / "calls").read_text().splitlines())
    once, twice = {"model 0": 1, "get_order A": 1, "model 3": 1}, {"get_order B": 2, "model 2": 2, "refund": 2}
    assert calls == once | twice
