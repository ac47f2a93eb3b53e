"""Edda: one worker in one process, with every option of `EddaApp` its documentation offers for speed turned up.

- `pool_size=20, max_overflow=40` (PostgreSQL): what it suggests for production.
- `notify_fallback_interval=1` (PostgreSQL; default 30): the least its whole seconds allow. LISTEN/NOTIFY is on by
  default, but it notifies before it unlocks the instance, so the worker that wakes finds nothing to do.
- `max_workflows_per_batch=1000`: so many are resumed in a round, the next round is a second later ("auto" stays at 10).
- `leader_heartbeat_interval=1, leader_lease_duration=3` (15, 45) and in `recovery` `lock_timeout_seconds=10` (300): a
  new process soon takes on a dead one's duties. It looks for stale locks each 60 to 78 s: the limit must be 180.
- uvloop, from the start. Edda sets no pragma for SQLite: the file is made a WAL one beforehand, up to four times
  faster, with `synchronous` at FULL and `?timeout=30` against "database is locked".

No option: how often SQLite is polled (1.0 to 1.3 s while there is work, else ever longer, to 33 s; we wake one before
we measure: it is at its fastest) and how often timers are looked at (10 s; then one by one). The first start is made
alone: concurrent first starts fail. Events are sent by `publish(app.storage, ...)`, its way for code outside workflows;
`start` returns when the workflow has finished or waits; its hooks tell of the ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import logging
import random
import socket
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial, wraps

import uvicorn
import uvloop
from edda import EddaApp, WorkflowContext, activity, publish, sleep_until, wait_event, workflow
from edda.hooks import HooksBase

from bench.systems import common
from bench.systems.common import Figures, Task, clock, rss_kb, spread_ms

REQUIREMENTS = ("edda-framework[postgresql]==0.16.2", "sqlalchemy==2.1.8", "uvicorn==0.54.0", "httptools==0.9.0")
CONCURRENCY = (1, 4, 16)
OPTIONS = {"pool_size": 20, "max_overflow": 40, "notify_fallback_interval": 1, "max_workflows_per_batch": 1000}
OPTIONS |= {"leader_heartbeat_interval": 1, "leader_lease_duration": 3}
sent: dict[str, float] = {}  # by the event's type
arrived: dict[str, float] = {}  # when the code after the wait ran
woke: list[tuple[float, float]] = []  # the moment a sleeper asked for, and when its code ran
pause = 0.2


@activity
async def noop(ctx: WorkflowContext, x: int) -> int:
    return x


@activity
async def slow(ctx: WorkflowContext) -> None:
    print("slow", flush=True)
    await asyncio.sleep(pause)


@workflow(event_handler=True)
async def work(ctx: WorkflowContext, n: int, event: str = "") -> None:
    for i in range(n):
        await noop(ctx, i)
    if event:
        await wait_event(ctx, event)
        arrived[event] = clock()


@workflow
async def sleeper(ctx: WorkflowContext, due: float) -> None:
    await sleep_until(ctx, datetime.fromtimestamp(due, UTC))
    woke.append((due, time.time()))


@workflow(lock_timeout_seconds=10)
async def two_steps(ctx: WorkflowContext, x: int) -> None:
    await noop(ctx, x)
    await slow(ctx)


class Tally(HooksBase):
    """Which workflows have ended, and how: the last word on an instance counts."""

    def __init__(self) -> None:
        self.ended: dict[str, bool] = {}
        self.activities = self.raised = 0
        self.last = clock()
        self._changed = asyncio.Event()

    async def on_activity_complete(self, *_: object, **__: object) -> None:
        self.activities += 1
        self.last = clock()

    async def on_workflow_complete(self, instance_id: str, *_: object) -> None:
        self.last = clock()
        self._end(instance_id, True)

    async def on_workflow_failed(self, instance_id: str, *_: object) -> None:
        self._end(instance_id, False)

    def _end(self, instance_id: str, completed: bool) -> None:
        self.ended[instance_id] = completed
        self._changed.set()

    async def until(self, count: int, seconds: float) -> None:
        """Wait until so many have ended, or the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self.ended) < count:
                    self._changed.clear()
                    await self._changed.wait()

    def figures(self, size: int, begin: float) -> Figures:
        """Rates up to the last that finished; and those that did not: they failed, or nothing more is known of them."""
        finished, took = sum(self.ended.values()), self.last - begin
        missing = size - finished
        failed = min(missing, max(self.raised, len(self.ended) - finished))
        rates = {"per_s": finished / took if finished else None, "wall_s": took if finished else None}
        rates["activities_per_s"] = self.activities / took if self.activities else None
        return rates | {"failed": failed, "unfinished": missing - failed}


def pick(figures: Figures, **names: str) -> Figures:
    """Some of the figures, by other names; with those of what went wrong, if anything did."""
    wrong = {name: figures[name] for name in ("failed", "unfinished") if figures[name]}
    return {name: figures[old] for name, old in names.items()} | wrong


def app_on(task: Task, hooks: HooksBase) -> EddaApp:
    if task.is_sqlite:
        with contextlib.closing(sqlite3.connect(task.path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        url = f"{task.database}?timeout=30"
    else:
        url = task.database.replace("postgresql://", "postgresql+asyncpg://", 1)
    return EddaApp("bench", url, hooks=hooks, **OPTIONS)


def workload(measure: Callable[[Task], Awaitable[Figures]]) -> None:
    """On a loop that is just left at the end: when the limit is reached, Edda may still be at work."""
    common.workload(wraps(measure)(lambda task: uvloop.new_event_loop().run_until_complete(measure(task))))


async def running(task: Task) -> tuple[EddaApp, Tally]:
    tally = Tally()
    app = app_on(task, tally)
    await app.initialize()
    await together([partial(work.start, n=5), partial(work.start, n=0, event="never")], 1, tally, task.left)
    tally.ended.clear()
    tally.activities = tally.raised = 0
    return app, tally


async def together(jobs: Iterable[Callable[[], Awaitable[object]]], at_once: int, tally: Tally, seconds: float) -> None:
    """Do all the jobs, so many at once, until the time is up."""
    rest = iter(jobs)

    async def some() -> None:
        for job in rest:
            try:
                await job()
            except Exception as error:
                tally.raised += 1
                print(f"{type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)

    await asyncio.wait([asyncio.create_task(some()) for _ in range(at_once)], timeout=seconds)
    list(rest)  # no more are begun


async def start_waiters(task: Task, events: list[str], tally: Tally, n: int = 0) -> None:
    jobs = (partial(work.start, n=n, event=event) for event in events)
    await together(jobs, min(len(events), task.concurrency or 4), tally, task.left)


async def send(app: EddaApp, event: str) -> None:
    sent[event] = clock()
    await publish(app.storage, event, {})


async def work_all(task: Task, workflows: int, n: int, at_once: int) -> Figures:
    _, tally = await running(task)
    begin = clock()
    await together([partial(work.start, n=n)] * workflows, at_once, tally, task.left)
    return tally.figures(workflows, begin)


async def wake_all(task: Task, waiting: list[str], events: list[str], n: int = 0) -> Figures:
    app, tally = await running(task)
    await start_waiters(task, waiting, tally, n)
    count = len(tally.ended) + 1
    instance = await work.start(n=0, event="rouse")  # this one sets the poller to its fastest
    await send(app, "rouse")
    await tally.until(count, task.left)
    tally.ended.pop(instance, None)
    begin = clock()
    jobs = (partial(send, app, event) for event in events)
    await together(jobs, min(len(events), task.concurrency or 4), tally, task.left)
    await tally.until(len(waiting), task.left)
    return tally.figures(len(waiting), begin)


@workload
async def finish(task: Task) -> Figures:
    return pick(await work_all(task, task.size, 1, task.concurrency or 8), workflows_per_s="per_s")


@workload
async def sequential(task: Task) -> Figures:
    return pick(await work_all(task, 1, task.size, 1), activities_per_s="activities_per_s")


@workload
async def parallel(task: Task) -> Figures:
    return pick(await work_all(task, task.size, task.steps, task.size), activities_per_s="activities_per_s")


@workload
async def wake(task: Task) -> Figures:
    events = [f"go.{i}" for i in range(task.size)]
    return pick(await wake_all(task, events, events), wall_s="wall_s", events_per_s="per_s")


@workload
async def broadcast(task: Task) -> Figures:
    return pick(await wake_all(task, ["go"] * task.size, ["go"]), wall_s="wall_s")


@workload
async def resume(task: Task) -> Figures:
    """No fresh process needed: Edda keeps nothing of a waiting workflow in memory, and replays it from the database."""
    figures = await wake_all(task, ["go"], ["go"], task.size)
    return {"seconds": arrived["go"] - sent["go"] if "go" in arrived else None} | pick(figures)


@workload
async def latency(task: Task) -> Figures:
    events = [f"go.{i}" for i in range(task.size)]
    app, tally = await running(task)
    for i, event in enumerate(events):
        await start_waiters(task, [event], tally)
        await send(app, event)
        await tally.until(i + 1, task.left)
    took = [arrived[event] - sent[event] for event in events if event in arrived]
    return (spread_ms(took) if took else {}) | pick(tally.figures(task.size, 0))


@workload
async def sleepers(task: Task) -> Figures:
    _, tally = await running(task)
    await sleeper.start(due=time.time())
    # Time to start them all, and then any moment within the ten seconds between two looks at the timers.
    due = time.time() + task.size * 0.1 + random.uniform(1, 11)
    await together((partial(sleeper.start, due=due) for _ in range(task.size)), 4, tally, task.left)
    if time.time() > due - 1:
        sys.exit(f"sleepers: {task.size} could not be started in the time they were to sleep")
    await tally.until(task.size + 1, task.left)
    lateness = [at - moment for moment, at in woke if moment == due]
    return (spread_ms(lateness) if lateness else {}) | pick(tally.figures(task.size + 1, 0))


@workload
async def memory(task: Task) -> Figures:
    _, tally = await running(task)
    await start_waiters(task, [f"warm.{i}" for i in range(50)], tally)
    gc.collect()
    before = rss_kb()
    await start_waiters(task, [f"go.{i}" for i in range(task.size)], tally)
    gc.collect()
    return {"kb_per_workflow": (rss_kb() - before) / task.size} | ({"failed": tally.raised} if tally.raised else {})


@workload
async def http(task: Task) -> Figures:
    """Each event starts a workflow of one activity; uvicorn is the server of Edda's documentation."""
    app, tally = await running(task)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False, lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    begin, connections = clock(), task.concurrency or 8
    jobs = [partial(post, listener.getsockname()[1], iter(range(task.size)))] * connections
    await together(jobs, connections, tally, task.left)
    await tally.until(task.size, task.left)
    assert not serving.done()
    return pick(tally.figures(task.size, begin), events_per_s="per_s")


async def post(port: int, numbers: Iterator[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/cloudevents+json\r\n"
    for i in numbers:
        body = json.dumps({"specversion": "1.0", "id": f"{i}", "source": "/", "type": "work", "data": {"n": 1}})
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        answer = await reader.readuntil(b"\r\n0\r\n\r\n")  # it gives no length, so uvicorn answers in chunks
        assert answer[9:12] == b"202", answer


@workload
async def recovery(task: Task) -> Figures:
    """In the first process the second activity does not end: all are in the middle of it when the process is killed."""
    said = await child(task, "first", slow=task.size + 1)
    if len(said["slow"]) <= task.size:
        sys.exit(f"recovery: {task.size} workflows were not in flight within the limit")
    begin = clock()
    again, ended = (await child(task, "second", slow=1, finished=task.size)).values()
    first_s = again[0] - begin if again else None
    if len(ended) < task.size:
        return {"first_s": first_s, "all_s": None, "unfinished": task.size - len(ended)}
    return {"first_s": first_s, "all_s": ended[-1] - begin}


async def child(task: Task, which: str, **wanted: int) -> dict[str, list[float]]:
    """Run a process until it has said each word as often as wanted, or the time is up; then SIGKILL it."""
    said: dict[str, list[float]] = {word: [] for word in wanted}
    arguments = ("-m", __spec__.name, which, task.database, str(task.size))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(task.left):
            while any(len(said[word]) < n for word, n in wanted.items()):
                word = (await process.stdout.readuntil()).decode().strip()
                said.setdefault(word, []).append(clock())
    process.kill()
    await process.wait()
    return said


async def be_child(which: str, task: Task) -> None:
    """The first starts the workflows, the second only runs; both say what happens until they are killed."""
    global pause
    tally = Tally()
    await app_on(task, tally).initialize()
    if which == "first":
        await two_steps.start(x=0)
        pause = 3600.0
        await asyncio.gather(*(two_steps.start(x=i) for i in range(task.size)), return_exceptions=True)
    for count in itertools.count(1):
        await tally.until(count, 3600)
        print("finished", flush=True)


if __name__ == "__main__":
    uvloop.install()
    logging.getLogger("edda").setLevel(logging.CRITICAL)  # what it could not do is missing in the figures
    if sys.argv[1] in ("first", "second"):
        asyncio.run(be_child(sys.argv[1], Task(sys.argv[2], int(sys.argv[3]), 0, 0, 0, clock())))
    common.main()
