"""Real processes, really killed: whatever the moment, every workflow ends once and no event is lost or taken twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from romancy import App
from romancy.core.history import Kind
from tests.crash.processes import Cluster, cluster
from tests.helpers import eventually

THOROUGH = bool(os.environ.get("ROMANCY_TEST_THOROUGH"))
WORKFLOWS = 200 if THOROUGH else 100
KILLS = 5
EXPECTED = [
    (Kind.ACTIVITY_COMPLETED, "step:1"),
    (Kind.EVENT_RECEIVED, "paid:1"),
    (Kind.ACTIVITY_COMPLETED, "thread_step:1"),
    (Kind.TIMER_FIRED, "sleep:1"),
    (Kind.EVENT_SENT, "send done:1"),
    (Kind.ACTIVITY_COMPLETED, "step:2"),
]


@pytest.fixture
def workers(tmp_path: Path):
    with cluster(tmp_path) as it:
        yield it


async def feed(database: str, seed: int) -> None:
    """A client: starts everything by name, sends everybody's event, some early, some late, some twice."""
    luck = random.Random(seed)
    async with App(database, worker=False) as app:
        await app.start_workflow("collector", WORKFLOWS, instance_id="collector")
        orders = list(range(WORKFLOWS))
        luck.shuffle(orders)
        for k, n in enumerate(orders, 1):
            await app.start_workflow("order", n, instance_id=f"order-{n}")
            some = luck.choice(orders[:k])
            await app.send_event("paid", "client", {"n": some}, id=f"paid-{some}")
        for n in orders:
            await app.send_event("paid", "client", {"n": n}, id=f"paid-{n}")


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.play) for seed in (2, 3))])
async def test_killed_again_and_again(workers: Cluster, seed: int) -> None:
    """Whoever comes after takes over at once: nobody would live to see the end of the lease."""
    luck, lease = random.Random(seed), 3600.0
    process = workers.spawn(lease)
    await asyncio.to_thread(workers.ready, process)
    feeding = asyncio.create_task(feed(workers.database, seed))
    for _ in range(KILLS):
        goal = len(workers.lines("step")) + luck.randrange(WORKFLOWS // 10, WORKFLOWS * 6 // 10)
        await asyncio.to_thread(eventually, lambda goal=goal: len(workers.lines("step")) >= goal, 60, f"step {goal}")
        workers.kill(process)
        before = len(workers.lines("step"))
        process = workers.spawn(lease)
        await asyncio.to_thread(eventually, lambda n=before: len(workers.lines("step")) > n, 60, "a takeover")
    await feeding
    await asyncio.to_thread(workers.until_finished, WORKFLOWS + 1, 60)
    assert workers.stop(process) == 0
    check(workers)


def check(workers: Cluster) -> None:
    for n in range(WORKFLOWS):
        id = f"order-{n}"
        [(status, output)] = workers.read("SELECT status, output FROM romancy_instances WHERE id = ?", id)
        assert (status, json.loads(output)) == (10, [10 * n, n + 1, 10 * (n + 1)])
        history = workers.read("SELECT kind, op FROM romancy_history WHERE instance = ? ORDER BY n", id)
        assert history == EXPECTED, f"the history of {id}"
    [(collected,)] = workers.read("SELECT output FROM romancy_instances WHERE id = 'collector'")
    assert sorted(json.loads(collected)) == list(range(WORKFLOWS))
    taken = "romancy_events e JOIN romancy_consumed c ON c.event = e.seq"
    took = workers.read(f"SELECT e.type, e.id, count(*) FROM {taken} GROUP BY e.seq")
    assert {count for _, _, count in took} == {1}
    assert Counter(type for type, _, _ in took) == {"paid": WORKFLOWS, "done": WORKFLOWS}
    assert workers.read("SELECT count(*) FROM romancy_events") == [(2 * WORKFLOWS,)]
    ran = Counter((line["instance"], line["op"]) for line in workers.lines("step"))
    assert len(ran) == 3 * WORKFLOWS, "an activity never ran"
    for table in ("waits", "wait_keys", "deliveries", "requests", "attempts"):
        assert workers.read(f"SELECT count(*) FROM romancy_{table}") == [(0,)], f"something is left in {table}"


@pytest.mark.play
async def test_only_the_activity_that_kills_its_worker_is_blocked(workers: Cluster) -> None:
    """150 innocent ones and a killer among them; a supervisor starts the worker again whenever it died."""
    innocent, lives = 150, 0
    async with App(workers.database, worker=False) as app:
        for n in range(innocent // 2):
            await app.start_workflow("stroll", instance_id=f"before-{n}")
        await app.start_workflow("killer", instance_id="killer")
        for n in range(innocent // 2):
            await app.start_workflow("stroll", instance_id=f"after-{n}")
    process = None

    def done() -> bool:
        nonlocal process, lives
        if process is None or process.poll() is not None:
            lives += 1
            assert lives < 12, "it kills its worker again and again"
            process = workers.spawn()
        return workers.read("SELECT count(*) FROM romancy_instances WHERE status < 9") == [(0,)]

    await asyncio.to_thread(eventually, done, 90, "everybody ended or blocked", every=0.05)
    assert workers.read("SELECT id FROM romancy_instances WHERE status = 9") == [("killer",)]
    assert workers.read("SELECT count(*) FROM romancy_instances WHERE status = 10") == [(innocent,)]
    assert lives > 3, "so few deaths prove nothing"
    assert process is not None
    assert workers.stop(process) == 0
