"""Background duties."""

from __future__ import annotations

import asyncio

import pytest

from romancy.engine.background import Duty
from romancy.engine.outage import Outage


async def test_one_whose_work_swallows_a_cancellation_stops_too() -> None:
    """A driver may do so, when the database stops answering just then."""
    working = asyncio.Event()

    async def work() -> float:
        working.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return 3600.0
        return 0.0

    duty = Duty("work", work, Outage())
    duty.start()
    await working.wait()
    async with asyncio.timeout(10):
        await duty.stop()


@pytest.mark.parametrize("when", ["interpreter shutdown", "shutdown"])
async def test_one_that_outlives_the_program_ends_silently(when: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> float:
        raise RuntimeError(f"cannot schedule new futures after {when}")

    duty = Duty("work", work, Outage())
    duty.start()
    assert duty._task is not None
    async with asyncio.timeout(10):
        await duty._task
    assert not caplog.records
