"""Two workers and a client on one file: nothing runs twice, events cross over at once, the stale are fenced."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import quantiles

import pytest

from romancy import App
from tests.crash.processes import Cluster, cluster, now
from tests.helpers import eventually

pytestmark = pytest.mark.play


@pytest.fixture
def workers(tmp_path: Path):
    with cluster(tmp_path) as it:
        yield it


async def test_under_load_each_instance_runs_in_one_place(workers: Cluster) -> None:
    both = [workers.spawn(), workers.spawn()]
    await asyncio.to_thread(workers.ready, *both)
    orders, rounds, listeners = 600, 40, 10
    async with App(workers.database, worker=False) as client:
        await client.start_workflow("collector", orders, instance_id="collector")
        for n in range(listeners):
            await client.start_workflow("listener", rounds, instance_id=f"listener-{n}")

        async def load() -> None:
            for n in range(orders):
                await client.start_workflow("order", n, instance_id=f"order-{n}")
                await client.send_event("paid", "client", {"n": n}, id=f"paid-{n}")
                await asyncio.sleep(0.003)

        async def ping(n: int) -> None:
            for k in range(rounds):
                await client.send_event(
                    "ping", "client", {"sent_at": now()}, subject=f"listener-{n}", id=f"ping-{n}-{k}"
                )
                await asyncio.sleep(0.05)

        await asyncio.gather(load(), *(ping(n) for n in range(listeners)))
        assert await client.handle("collector").result(timeout=30) is not None
    await asyncio.to_thread(workers.until_finished, orders + listeners + 1, 30)
    assert [workers.stop(process) for process in both] == [0, 0]

    steps = workers.lines("step")
    ran = Counter((line["instance"], line["op"]) for line in steps)
    assert set(ran.values()) == {1}, "an activity ran twice, and nobody had died"
    assert len(ran) == 3 * orders
    assert len({line["pid"] for line in steps}) == 2, "only one of the two workers worked"
    check_no_overlap(workers)
    pings = workers.lines("heard")
    assert len({line["event"] for line in pings}) == len(pings) == rounds * listeners
    late = sorted(line["late"] * 1000 for line in pings)
    p50, p99 = quantiles(late, n=100)[49], quantiles(late, n=100)[98]
    # Without a wake-up they would wait for a sweep, every second. How fast they are the benchmark says.
    assert p50 < 400, f"events of another process: p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {late[-1]:.1f} ms"
    assert late[-1] < 3000, f"events of another process: p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {late[-1]:.1f} ms"


def check_no_overlap(workers: Cluster) -> None:
    """No two processes were busy with one instance at the same time."""
    spans: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for line in workers.lines("step"):
        spans[line["instance"]].append((line["begin"], line["at"], line["pid"]))
    for instance, times in spans.items():
        times.sort()
        for (_, end, one), (begin, _, other) in pairwise(times):
            assert one == other or end <= begin, f"{instance} ran in {one} and {other} at the same time"


async def test_events_of_an_idle_client_arrive_at_once(workers: Cluster) -> None:
    process = workers.spawn()
    await asyncio.to_thread(workers.ready, process)
    async with App(workers.database, worker=False) as client:
        await client.start_workflow("listener", 30, instance_id="listener")
        await asyncio.to_thread(eventually, lambda: workers.read("SELECT 1 FROM romancy_waits"), 5, "the wait")
        for k in range(30):
            await client.send_event("ping", "client", {"sent_at": now()}, subject="listener", id=f"ping-{k}")
            await asyncio.to_thread(eventually, lambda k=k: len(workers.lines("heard")) > k, 5, f"ping {k}")
        assert await client.handle("listener").result(timeout=5) == 30
    late = sorted(line["late"] * 1000 for line in workers.lines("heard"))
    assert late[len(late) // 2] < 300, f"late by (ms): {[round(n, 1) for n in late]}"
    assert late[-1] < 3000, f"late by (ms): {[round(n, 1) for n in late]}"


async def test_a_paused_worker_that_comes_back_is_fenced(workers: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    stale = workers.spawn(lease=1)
    await asyncio.to_thread(workers.ready, stale)
    async with App(workers.database, worker=False) as client:
        for n in range(5):
            await client.start_workflow("gatekeeper", str(gate), instance_id=f"g{n}")
        await asyncio.to_thread(eventually, lambda: len(workers.lines("gated")) == 5, 5, "five at the gate")
        [(old,)] = workers.read("SELECT id FROM romancy_workers")
        workers.pause(stale)
        heir = workers.spawn(lease=1)
        await asyncio.to_thread(eventually, lambda: len(workers.lines("gated")) == 10, 10, "the takeover")
        gate.touch()
        await asyncio.to_thread(workers.until_finished, 5, 10)
        ended = everything(workers)

        stale.send_signal(signal.SIGCONT)  # its five activities end now, and it wants to record them
        await asyncio.to_thread(
            eventually, lambda: workers.pids("through").count(stale.pid) == 5, 10, "the late results"
        )
        await asyncio.to_thread(
            eventually, lambda: len(workers.read("SELECT id FROM romancy_workers")) == 2, 10, "a new start"
        )
        assert (old,) not in workers.read("SELECT id FROM romancy_workers"), "it goes on under its old name"
        assert everything(workers) == ended, "the stale worker wrote"
        for n in range(5):
            assert await client.handle(f"g{n}").result(timeout=5) == heir.pid

        workers.kill(heir)  # the one that came back works like any other
        await client.start_workflow("gatekeeper", str(gate), instance_id="after")
        assert await client.handle("after").result(timeout=10) == stale.pid
    assert workers.stop(stale) == 0


def everything(workers: Cluster) -> list[tuple[object, ...]]:
    """All there is of the instances: a single late write would show."""
    return workers.read("SELECT * FROM romancy_instances ORDER BY id") + workers.read(
        "SELECT * FROM romancy_history ORDER BY 1, 2"
    )


async def test_a_stopped_worker_hands_over_at_once(workers: Cluster, tmp_path: Path) -> None:
    first, gate = workers.spawn(lease=10), tmp_path / "gate"
    await asyncio.to_thread(workers.ready, first)
    async with App(workers.database, worker=False) as client:
        await client.start_workflow("gatekeeper", str(gate), instance_id="g")
        await client.start_workflow("listener", 1, instance_id="l")
        await asyncio.to_thread(eventually, lambda: len(workers.lines("gated")) == 1, 5, "one at the gate")
        second = workers.spawn(lease=10)
        await asyncio.to_thread(workers.ready, second)
        assert await asyncio.to_thread(workers.stop, first) == 0
        gone = now()
        gate.touch()
        await client.send_event("ping", "client", {"sent_at": now()}, subject="l")
        assert await client.handle("g").result(timeout=5) == second.pid
        assert await client.handle("l").result(timeout=5) == 1
        assert now() - gone < 3, "the lease of 10 s was waited for"


async def test_a_client_sees_the_end_and_the_errors_of_what_it_started_by_name(workers: Cluster) -> None:
    process = workers.spawn()
    await asyncio.to_thread(workers.ready, process)
    async with App(workers.database, worker=False) as client:
        handle = await client.start_workflow("order", 7, instance_id="order-7")
        assert handle.created
        assert not (await client.start_workflow("order", 7, instance_id="order-7")).created
        assert (await client.send_event("paid", "client", {"n": 7}, id="p")).duplicate is False
        assert await handle.result(timeout=5) == [70, 8, 80]
        wrong = await client.start_workflow("order", "one", "two", instance_id="wrong")
        with pytest.raises(Exception, match="order"):
            await wrong.result(timeout=5)
        took: list[float] = []
        for n in range(3):  # the machine may pause once
            waiting = await client.start_workflow("listener", 1, instance_id=f"waiting{n}")
            waits = f"SELECT 1 FROM romancy_waits WHERE instance = 'waiting{n}'"
            await asyncio.to_thread(eventually, lambda waits=waits: workers.read(waits), 5, "the wait")
            begun = now()
            await waiting.cancel("never mind")
            await asyncio.to_thread(workers.until_finished, 3 + n, 5)
            took.append(now() - begun)
            assert await waiting.status() == "cancelled"
        assert min(took) < 0.9, "the cancel waited for a sweep"
    assert workers.read("PRAGMA integrity_check") == [("ok",)]
