"""Workers that are killed while they pass events on: each arrives at least once, and in order for each subject."""

from __future__ import annotations

import asyncio
import json
import os
import random

import pytest

from romancy import App, Database, Event, HTTPSink
from tests.crash.processes import spawn
from tests.sinks.receiver import Request, receiving, reply, until

pytestmark = pytest.mark.play

THOROUGH = bool(os.environ.get("ROMANCY_TEST_THOROUGH"))
EVENTS, SUBJECTS, KILLS = (6000, 40, 30) if THOROUGH else (1500, 20, 6)


class Flaky:
    """Accepts most deliveries, and fails one in thirty, as a receiver that is being deployed does."""

    def __init__(self, luck: random.Random) -> None:
        self._luck = luck
        self.accepted: dict[str, dict[int, None]] = {}
        """The numbers of each subject, in the order in which they first arrived."""
        self.again = 0

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if self._luck.random() < 1 / 30:
            await reply(503)(request, writer)
            return
        event = json.loads(request.body)
        numbers = self.accepted.setdefault(event["subject"], {})
        self.again += event["data"] in numbers
        numbers[event["data"]] = None
        await reply(200)(request, writer)

    @property
    def count(self) -> int:
        return sum(map(len, self.accepted.values()))


async def test_every_event_arrives_in_order(place: tuple[str, str]) -> None:
    luck = random.Random(17)
    flaky = Flaky(luck)
    url, schema = place
    async with receiving() as receiver:
        receiver.answer = flaky.answer
        sink = HTTPSink("crm", receiver.url, types=["order.*"])
        workers = [spawn("tests.crash.sink_worker", url, schema, receiver.url) for _ in range(2)]
        try:
            async with App(Database(url, schema=schema or None), worker=False, sinks=[sink]) as app:
                for first in range(0, EVENTS, 50):
                    batch = [
                        Event("order.paid", "shop", n, subject=f"s{n % SUBJECTS}", id=str(n))
                        for n in range(first, min(first + 50, EVENTS))
                    ]
                    await app.send_events(batch)
                for _ in range(KILLS):
                    await asyncio.sleep(luck.uniform(0.4, 1.5))
                    victim = luck.randrange(2)
                    workers[victim].kill()
                    workers[victim].wait()
                    workers[victim] = spawn("tests.crash.sink_worker", url, schema, receiver.url)
                await until(lambda: flaky.count == EVENTS, 120)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    assert flaky.count == EVENTS
    assert [subject for subject, numbers in flaky.accepted.items() if list(numbers) != sorted(numbers)] == []
    assert flaky.again < EVENTS / 2
