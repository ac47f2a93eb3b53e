"""DBOS in the side-by-side benchmark, on SQLite and PostgreSQL. One process, as the other systems.

- PostgreSQL is what its documentation recommends for production; fsync and synchronous_commit stay on. LISTEN/NOTIFY
  (`use_listen_notify`, the default) wakes waiters; `notification_coalesce_sec` bounds how late: it is at its minimum.
- SQLite is for development, says its documentation. DBOS leaves the file as SQLite makes it (a rollback journal,
  synchronous=FULL). We make the file beforehand in WAL mode, which stays with the file: as durable, and faster.
  `notification_listener_polling_interval_sec` (1 s by default) is how often each waiter is looked up: as low as pays.
- Plain workflows, called as functions, are the faster on an idle machine, async ones where there is company: `finish`,
  `sequential` and `parallel` run both ways, and the better one counts.
  What waits is async: no thread is kept for it. `max_executor_threads` bounds the threads of their database calls: near
  the pool's size (`sys_db_pool_size`, 20 by default; more did not help), but few for `sleepers`.
- An event is `send` and `recv` with a topic; `wake` sends by `send_bulk`, all in one transaction. `broadcast` is
  `set_event` by one workflow and `get_event` in all the others, who must know its id.
- `resume` and `recovery` put their workflows on a queue whose `polling_interval_sec` is short: a workflow of no queue
  is recovered by an internal one that polls each second. An executor recovers, when it starts, what was its own.
  `resume` counts from the message, sent as soon as `launch` has returned, to the code after the wait.
  `recovery` holds all N in their second step until the kill, so that none is finished by then.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from dbos import DBOS, DBOSConfig, SendMessage, SetWorkflowID, WorkflowHandleAsync

from bench.systems.common import Figures, Task, absent, clock, main, rss_kb, spread_ms, workload

REQUIREMENTS = ("dbos==3.3.0",)
CONCURRENCY = (1, 4, 20)
absent(http="DBOS has no HTTP endpoint of its own")

FOREVER = 3600.0
QUEUE = RECORDED = "bench"
loop = asyncio.new_event_loop()  # of the async workflows, in a thread of its own
ticks: list[float] = []  # this and the next two: what the workflows of this process tell us
reached: dict[str, float] = {}
entered: list[float] = []
hold = FOREVER if "die" in sys.argv else 0.2  # how long the second step of `recovery` takes


# --- workflows -------------------------------------------------------------------------------------------------------
@DBOS.step()
def noop(x: int) -> int:
    return x


@DBOS.workflow()
def plain(name: str, steps: int, waits: bool = True) -> None:
    for i in range(steps):
        noop(i)
        ticks.append(clock())
    if waits:
        DBOS.recv("go", timeout_seconds=FOREVER)
    reached[name] = clock()


@DBOS.step()
async def async_noop(x: int) -> int:
    return x


@DBOS.workflow()
async def waiter(name: str, steps: int = 0, waits: bool = True) -> None:
    for i in range(steps):
        await async_noop(i)
        ticks.append(clock())
    if waits:
        await DBOS.recv_async("go", timeout_seconds=FOREVER)
    reached[name] = clock()


@DBOS.workflow()
async def listener(name: str, publisher: str) -> None:
    await DBOS.get_event_async(publisher, "go", timeout_seconds=FOREVER)


@DBOS.workflow()
async def publisher() -> None:
    await DBOS.set_event_async("go", 1)


@DBOS.workflow()
async def sleeper(name: str, due: float) -> None:
    await DBOS.sleep_async(due - time.time())
    reached[name] = time.time() - due


@DBOS.step()
async def second() -> None:
    entered.append(time.time())
    await asyncio.sleep(hold)


@DBOS.workflow()
async def two_steps(x: int) -> None:
    await async_noop(x)
    await second()


# --- helpers ---------------------------------------------------------------------------------------------------------
def launch(database: str, poll: float = 0.01, threads: int = 32) -> None:
    if database.startswith("sqlite"):
        sqlite3.connect(database.removeprefix("sqlite:///")).execute("PRAGMA journal_mode = WAL").connection.close()
    config = DBOSConfig(
        name="bench",
        system_database_url=database,
        max_executor_threads=threads,
        notification_listener_polling_interval_sec=poll,
        notification_coalesce_sec=0.001,
        log_level="ERROR",
    )
    DBOS(config=config)
    DBOS.launch()
    threading.Thread(target=loop.run_forever, daemon=True).start()


class Outcome:
    """What came of calls or workflows, when all have ended or the limit is reached."""

    def __init__(self, task: Task, begin: float, futures: list[Future[Any]]) -> None:
        ended = wait(futures, task.left).done
        self.seconds = clock() - begin
        errors = [error for future in ended if (error := future.exception())]
        for error in errors[:1]:
            print(f"failed: {error!r}", file=sys.stderr)
        self.done = len(ended) - len(errors)
        counts = ("failed", len(errors)), ("unfinished", len(futures) - len(ended))
        self.missing: Figures = {name: count for name, count in counts if count}
        self.wall = None if self.missing else self.seconds


def in_loop(coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
    return asyncio.run_coroutine_threadsafe(coroutine, loop)


def run_plain(task: Task, workflows: int, at_once: int, steps: int) -> Outcome:
    pool = ThreadPoolExecutor(at_once)
    return Outcome(task, clock(), [pool.submit(plain, "", steps, False) for _ in range(workflows)])


def run_async(task: Task, workflows: int, at_once: int, steps: int) -> Outcome:
    room = asyncio.Semaphore(at_once)

    async def run() -> None:
        async with room:
            await (await DBOS.start_workflow_async(waiter, "", steps, False)).get_result()

    return Outcome(task, clock(), [in_loop(run()) for _ in range(workflows)])


def step_rate(task: Task, workflows: int, steps: int) -> Figures:
    launch(task.database)
    outcome = run_plain(replace(task, limit=task.limit / 2), workflows, workflows, steps)
    rate = len(ticks) / outcome.seconds
    if not outcome.missing:  # else they still run, and would count in the other's time
        ticks.clear()
        outcome = run_async(task, workflows, workflows, steps)
        rate = max(rate, len(ticks) / outcome.seconds)
    return {"activities_per_s": rate, **outcome.missing}


async def start(name: str, workflow: Callable[..., Any], *arguments: Any) -> WorkflowHandleAsync[Any]:
    with SetWorkflowID(name):
        return await DBOS.start_workflow_async(workflow, *arguments)


def await_wait(task: Task, name: str, after: int = 0) -> None:
    """Until the workflow waits or sleeps: it has recorded until when, as its last deed before it does."""
    while not any(step["function_name"] == "DBOS.sleep" for step in DBOS.list_workflow_steps(name, offset=after)):
        if not task.left:
            sys.exit(f"workflow {name} did not get to its wait within {task.limit} s")
        time.sleep(0.005)


def start_waiting(task: Task, count: int, workflow: Any, *more: Any, prefix: str = "run") -> list[Any]:
    """Workflows that all wait, each told its name."""
    handles = [in_loop(start(f"{prefix}-{i}", workflow, f"{prefix}-{i}", *more)).result() for i in range(count)]
    for handle in handles:
        await_wait(task, handle.workflow_id)
    return handles


# --- workloads -------------------------------------------------------------------------------------------------------
@workload
def finish(task: Task) -> Figures:
    launch(task.database)
    at_once = task.concurrency or CONCURRENCY[1]
    outcomes = [run_plain(replace(task, limit=task.limit / 2), task.size, at_once, 1)]
    if not outcomes[0].missing:  # else they still run, and would count in the other's time
        outcomes.append(run_async(task, task.size, at_once, 1))
    best = max(outcomes, key=lambda outcome: outcome.done / outcome.seconds)
    return {"workflows_per_s": best.done / best.seconds, **best.missing}


@workload
def sequential(task: Task) -> Figures:
    return step_rate(task, 1, task.size)


@workload
def parallel(task: Task) -> Figures:
    return step_rate(task, task.size, task.steps)


@workload
def wake(task: Task) -> Figures:
    launch(task.database, poll=0.1)  # each round looks up every waiter: more often leaves less for the workflows
    handles = start_waiting(task, task.size, waiter)
    begin = clock()
    DBOS.send_bulk([SendMessage(handle.workflow_id, 1, "go") for handle in handles])
    outcome = Outcome(task, begin, [in_loop(handle.get_result()) for handle in handles])
    return {"wall_s": outcome.wall, "events_per_s": outcome.done / outcome.seconds, **outcome.missing}


@workload
def broadcast(task: Task) -> Figures:
    launch(task.database, poll=0.1)
    handles = start_waiting(task, task.size, listener, "publisher")
    begin = clock()
    in_loop(start("publisher", publisher))
    outcome = Outcome(task, begin, [in_loop(handle.get_result()) for handle in handles])
    return {"wall_s": outcome.wall, **outcome.missing}


@workload
def latency(task: Task) -> Figures:
    launch(task.database, poll=0.003)  # one waiter: nobody minds
    taken: list[float] = []
    for i in range(task.size):
        (handle,) = start_waiting(task, 1, waiter, prefix=f"latency-{i}")
        time.sleep(0.02)  # idle again after the questions above
        sent = clock()
        DBOS.send(handle.workflow_id, 1, "go")
        if missing := Outcome(task, sent, [in_loop(handle.get_result())]).missing:
            return {**(spread_ms(taken) if taken else {}), **missing}
        taken.append(reached[handle.workflow_id] - sent)
    return spread_ms(taken)


@workload
def sleepers(task: Task) -> Figures:
    launch(task.database, threads=4)  # more take the interpreter from those still to be woken
    due = time.time() + min(2 + task.size / 10, task.limit / 2)
    handles = start_waiting(task, task.size, sleeper, due)
    if time.time() > due - 1:
        sys.exit(f"{task.size} sleepers could not be put to sleep in time")
    missing = Outcome(task, clock(), [in_loop(handle.get_result()) for handle in handles]).missing
    return {**spread_ms(list(reached.values())), **missing}


@workload
def memory(task: Task) -> Figures:
    launch(task.database)
    start_waiting(task, 50, waiter, prefix="warm")  # threads, connections and caches
    before = rss_kb()
    start_waiting(task, task.size, waiter)
    return {"kb_per_workflow": (rss_kb() - before) / task.size}


@workload
def resume(task: Task) -> Figures:
    make_ready_and_kill(task, "record")
    launch(task.database)
    sent = clock()
    DBOS.send(RECORDED, 1, "go")
    while task.left and RECORDED not in reached:
        time.sleep(0.001)
    return {"seconds": reached[RECORDED] - sent} if RECORDED in reached else {"seconds": None, "unfinished": 1}


@workload
def recovery(task: Task) -> Figures:
    make_ready_and_kill(task, "die")
    begin = time.time()
    process = spawn(task, "recover")
    first, finished, failed = (hear(process, word) for word in ("first", "all", "failed"))
    figures: Figures = {"first_s": first and first - begin, "all_s": finished and finished - begin}
    return figures | ({"failed": failed} if failed else {})


# --- processes of `resume` and `recovery` ----------------------------------------------------------------------------
def spawn(task: Task, part: str) -> subprocess.Popen[str]:
    """This script again, in a part of its own: it says `WORD NUMBER` a line, and is killed at the limit."""
    command = [sys.executable, "-m", "bench.systems.dbos_", "--part", part, task.database, str(task.size)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    threading.Timer(task.left, process.kill).start()
    return process


def hear(process: subprocess.Popen[str], word: str) -> float | None:
    """The number said next, of this word; None when it was killed before."""
    assert process.stdout
    said, _, number = process.stdout.readline().partition(" ")
    return float(number) if said == word else None


def make_ready_and_kill(task: Task, part: str) -> None:
    process = spawn(task, part)
    ready = hear(process, "ready")
    process.kill()
    process.wait()
    if ready is None:
        sys.exit(f"the process that is to be killed ended, or came to the limit of {task.limit} s, before it was ready")


def part(name: str, database: str, size: int) -> None:
    launch(database)
    if name == "recover":
        return recover(size)
    DBOS.register_queue(QUEUE, polling_interval_sec=0.02)
    if name == "record":
        workflow = plain if database.startswith("sqlite") else waiter  # the faster of the two to replay
        with SetWorkflowID(RECORDED):
            DBOS.enqueue_workflow(QUEUE, workflow, RECORDED, size)
        await_wait(Task("", size, 0, 0, FOREVER, clock()), RECORDED, after=size)
    else:
        for i in range(size):
            DBOS.enqueue_workflow(QUEUE, two_steps, i)
        while len(entered) < size:
            time.sleep(0.01)
    print("ready", time.time(), flush=True)
    sys.stdin.read()  # until it is killed, or the process that started it is


def recover(size: int) -> None:
    while not entered:
        time.sleep(0.001)
    print("first", entered[0], flush=True)
    while DBOS.list_workflows(status=["PENDING", "ENQUEUED"], limit=1, load_input=False):
        time.sleep(0.02)
    print("all", time.time(), flush=True)
    print("failed", size - len(DBOS.list_workflows(status="SUCCESS", load_input=False)), flush=True)


if __name__ == "__main__":
    status = 1
    try:
        part(sys.argv[2], sys.argv[3], int(sys.argv[4])) if sys.argv[1:2] == ["--part"] else main()
        status = 0
    except (Exception, SystemExit) as error:
        print(repr(error) if isinstance(error, Exception) else error, file=sys.stderr, flush=True)
    os._exit(status)  # workflows that still wait would keep the interpreter
