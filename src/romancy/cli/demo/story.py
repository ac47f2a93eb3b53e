"""The story of the demo: start, wait, deliver, kill, take over, finish. Nothing is simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from rich.console import Console

from romancy import App, Instance, Receipt
from romancy.cli.demo import show
from romancy.cli.demo.workers import READY, Worker
from romancy.cli.demo.workflows import WORKFLOWS, approval_workflow, batch_processor, payment_with_timeout
from romancy.core.clock import stopwatch
from romancy.options import WITHOUT_HTTP

T = TypeVar("T")
PAID, FORGOTTEN, REQUEST, BATCH = "payment-ORD-1", "payment-ORD-2", "approval-REQ-1", "batch-monday"
EXPECTED: dict[str, Any] = {
    PAID: "parcel of ORD-1",
    FORGOTTEN: "timeout",
    REQUEST: {"approved": True, "approver": "Ada", "escalated": False},
    BATCH: [10, 10, 5],
}
PACKING = 2.5
PATIENCE = timedelta(seconds=5)
REST = timedelta(seconds=1.2)
LIMIT = 90.0
"""Seconds after which a chapter has failed. It takes a few, but the machine may be busy."""
_BREATH = 0.5
"""Seconds of pause, so that the user can follow."""


class Story:
    """Holds the worker processes, and an app without a worker that starts workflows, sends events and reads."""

    def __init__(self, console: Console, database: str) -> None:
        self.console, self.database = console, database
        # Without $ROMANCY_TOKENS, which are not meant for the demo: the viewer answers this machine and asks for none.
        self.app = App(database, workflows=WORKFLOWS, worker=False, tokens=WITHOUT_HTTP)
        self.viewer: str | None = None
        """The address of the viewer, if it is served."""
        self.workers: list[Worker] = []

    async def __aenter__(self) -> Self:
        await self.app.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        try:
            await asyncio.gather(*(worker.stop() for worker in self.workers))
        finally:
            await self.app.stop()

    async def hire(self) -> Worker:
        """Start one more worker process."""
        number = len(self.workers) + 1
        worker = await Worker.spawn(
            number, self.database, lambda w, line: show.worker_line(self.console, w.number, line)
        )
        self.workers.append(worker)
        await worker.printed(READY)
        return worker

    async def instances(self, ids: Sequence[str]) -> list[Instance]:
        return [await self.app.get_instance(id) for id in ids]

    async def tell(self) -> bool:
        """Tell the whole story. Return whether everything ended as expected."""
        began = stopwatch()
        self.console.print("[bold]Romancy[/]: workflows that wait for events and timers, and survive crashes.")
        self.console.print(f"The database is a single SQLite file, {self.database}")
        if self.viewer is not None:
            self.console.print(f"The viewer shows everything in a browser: {self.viewer}", soft_wrap=True)
        first = await _in_time(self._start())
        await _in_time(self._wait_and_deliver(first))
        await _in_time(self._kill(first))
        second = await _in_time(self._take_over())
        good = await _in_time(self._finish(first, second))
        took = f"{stopwatch() - began:.1f} s"
        count = len(EXPECTED)
        self.console.print()
        if good:
            self.console.print(f"[bold green]All {count} finished as expected[/] despite a killed worker, in {took}.")
        else:
            self.console.print(f"[bold red]Not everything ended as expected[/] (after {took}): see above.")
        return good

    # --- the chapters ------------------------------------------------------------------------------------------------
    async def _start(self) -> Worker:
        worker = await self.hire()
        show.heading(self.console, f"1. Four workflows start. Worker 1 (process {worker.process.pid}) runs them.")
        start = self.app.start_workflow
        paid = payment_with_timeout.options(instance_id=PAID)
        forgotten = payment_with_timeout.options(instance_id=FORGOTTEN)
        items = [f"letter {n}" for n in range(1, 26)]
        await start(paid, "ORD-1", packing=PACKING)
        await start(forgotten, "ORD-2", patience=PATIENCE)
        await start(approval_workflow.options(instance_id=REQUEST), "REQ-1")
        await start(batch_processor.options(instance_id=BATCH), "monday", items, rest=REST)
        return worker

    async def _wait_and_deliver(self, worker: Worker) -> None:
        await self._until(self._all_wait)
        await asyncio.sleep(_BREATH / 2)
        show.heading(self.console, "2. Now they wait. A waiting workflow is a row in the database and uses no worker.")
        self.console.print(show.waiting_table(await self.instances(list(EXPECTED))))
        await asyncio.sleep(_BREATH)
        show.heading(self.console, "3. The bank reports that ORD-1 is paid.")
        payment = {"payment_id": "PAY-ORD-1", "amount": 99.99, "status": "success"}
        self._sent("payment.completed.ORD-1", await self.app.send_event("payment.completed.ORD-1", "bank", payment))
        await worker.printed("packing ORD-1")
        await self._until(self._two_batches_done)
        await asyncio.sleep(_BREATH)

    async def _kill(self, worker: Worker) -> None:
        pid = worker.process.pid
        show.heading(self.console, "4. While ORD-1 is being packed, with two of three batches done:")
        self.console.print(
            f"  [bold red]worker 1 is killed: SIGKILL to process {pid}.[/] It had no time to save anything."
        )
        await worker.kill()
        self.console.print("  With no worker running, Ada decides on REQ-1. The event is stored and waits.")
        decision = {"request_id": "REQ-1", "approver": "Ada", "approved": True}
        self._sent("approval.decision", await self.app.send_event("approval.decision", "intranet", decision))
        await asyncio.sleep(_BREATH)

    async def _take_over(self) -> Worker:
        show.heading(self.console, "5. Worker 2 starts and takes over at once.")
        worker = await self.hire()
        again = await worker.printed("packing ORD-1")
        up = await worker.printed(READY)
        self.console.print(
            f"  [dim]It continued {1000 * (again - up):.0f} ms after it was ready. Packing was interrupted, so it\n"
            "  runs again with the same key. Two batches and a payment were recorded, so they do not.[/]"
        )
        return worker

    async def _finish(self, first: Worker, second: Worker) -> bool:
        await asyncio.gather(*(self.app.handle(id).result() for id in EXPECTED), return_exceptions=True)
        instances = await self.instances(list(EXPECTED))
        judged = {i.instance_id: i.status == "completed" and i.output == EXPECTED[i.instance_id] for i in instances}
        show.heading(self.console, "6. All workflows have finished.")
        self.console.print(show.results_table(instances, judged))
        show.heading(self.console, f"7. The history of {PAID}, written by two processes:")
        self.console.print(show.history_table(await self.app.get_history(PAID)))
        wrong = list(_what_went_wrong(first, second))
        for line in wrong:
            self.console.print(f"  [bold red]{line}[/]")
        return all(judged.values()) and not wrong

    async def _all_wait(self) -> bool:
        return all(instance.status != "running" for instance in await self.instances(list(EXPECTED)))

    async def _two_batches_done(self) -> bool:
        return len(await self.app.get_history(BATCH)) >= 4  # its start, a batch, a rest, a batch

    async def _until(self, true: Callable[[], Awaitable[bool]]) -> None:
        while not await true():  # noqa: ASYNC110 - it changes in another process
            await asyncio.sleep(0.02)

    def _sent(self, type: str, receipt: Receipt) -> None:
        waiting = f"{receipt.delivered} instance{'' if receipt.delivered == 1 else 's'} waited for it"
        self.console.print(f"  event [bold]{type}[/] {receipt.status}: {waiting}")


async def _in_time(chapter: Awaitable[T]) -> T:
    async with asyncio.timeout(LIMIT):
        return await chapter


def _what_went_wrong(first: Worker, second: Worker) -> Iterator[str]:
    """Yield what the workers did wrong. The results of the workflows are checked elsewhere."""
    if first.process.returncode in (0, None):
        yield f"worker 1 should have been killed, but its exit code is {first.process.returncode}"
    heard = [line for worker in (first, second) for _, line in worker.lines]
    for batch in (1, 2, 3):
        times = sum(line.startswith(f"processed batch {batch},") for line in heard)
        if times != 1:
            yield f"batch {batch} was processed {times} times instead of once"
    packed = [sum(line.startswith("packed ORD-1") for _, line in worker.lines) for worker in (first, second)]
    if packed != [0, 1]:
        yield f"only worker 2 should have packed ORD-1, once; workers 1 and 2 packed it {packed} times"
