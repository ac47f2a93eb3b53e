"""What is said of an outage."""

from __future__ import annotations

import asyncio
import logging

import pytest

from romancy.engine import outage
from romancy.engine.outage import Outage

LOST = "the database can't be written (gone); work pauses until it can"
BACK = "the database is back; work continues"
GONE = OSError("gone")


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.WARNING, "romancy")
    monkeypatch.setattr(outage, "CALM", 0.05)


async def test_a_database_that_comes_and_goes_is_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Outage()
    for _ in range(3):
        trouble.noticed("commit", GONE)
        trouble.over("commit")
        await asyncio.sleep(0)
    assert caplog.messages == [LOST]
    await asyncio.sleep(0.1)
    assert caplog.messages == [LOST, BACK]


async def test_it_is_not_over_while_one_still_suffers(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Outage()
    trouble.noticed("commit", GONE)
    trouble.noticed("renewal", GONE)
    trouble.over("commit")
    await asyncio.sleep(0.1)
    assert caplog.messages == [LOST]


async def test_the_next_one_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Outage()
    for _ in range(2):
        trouble.noticed("commit", GONE)
        trouble.over("commit")
        await asyncio.sleep(0.1)
    assert caplog.messages == [LOST, BACK] * 2


async def test_who_gives_up_suffers_no_longer(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise the outage never ends, and no later one is reported."""
    trouble = Outage()
    trouble.noticed("load a", GONE)
    trouble.left("load a")
    await asyncio.sleep(0.1)
    assert caplog.messages == [LOST, BACK]


async def test_who_is_stopped_with_the_app_knows_nothing_of_the_database(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Outage()
    trouble.noticed("load a", GONE)
    trouble.close()
    trouble.left("load a")
    await asyncio.sleep(0.1)
    assert caplog.messages == [LOST]


@pytest.mark.parametrize("first", ["over", "close"])
async def test_who_stops_says_it_at_once(caplog: pytest.LogCaptureFixture, first: str) -> None:
    trouble = Outage()
    trouble.noticed("commit", GONE)
    for step in sorted(["over", "close"], key=first.__ne__):
        trouble.over("commit") if step == "over" else trouble.close()
    await asyncio.sleep(0)
    assert caplog.messages == [LOST, BACK]
