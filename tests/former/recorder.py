"""Records a database: `python -m tests.former.recorder FILE`, run with the release that it is to be from."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import tempfile
from pathlib import Path

from romancy import App, WorkflowFailed
from tests.former.workflows import WORKFLOWS, failing, impatient, order, persistent, sleepy


async def fill(database: str) -> None:
    async with App(database, workflows=WORKFLOWS) as app:
        for number in (1, 2, 3, 4):
            await app.start_workflow(order, number, instance_id=f"order-{number}")
        failed = await app.start_workflow(failing, instance_id="failed")
        with contextlib.suppress(WorkflowFailed):
            await failed.result(timeout=10)
        await app.send_event("paid", "shop", {"order": 4}, id="payment-4")
        await app.handle("order-4", order).result(timeout=10)
        await app.send_event("placed", "shop", {"order": 9}, id="placement-9")
        await app.start_workflow(sleepy, instance_id="sleepy")
        await app.start_workflow(impatient, instance_id="impatient")
        await app.start_workflow(persistent, instance_id="persistent")
        while len((await app.list_waits(limit=20)).items) < 7:  # noqa: ASYNC110 - the engine is at it
            await asyncio.sleep(0.01)
    async with App(database, worker=False) as outside:
        await outside.send_event("paid", "shop", {"order": 2}, id="payment-2")
        await outside.send_event("early", "shop", id="early")
        await outside.cancel_workflow("order-3", reason="not wanted")
        await outside.start_workflow(order, 5, instance_id="order-5")


def dump(database: str, file: Path) -> None:
    with sqlite3.connect(database) as connection:
        file.write_text("\n".join(connection.iterdump()) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(fill(f"{folder}/shop.db"))
        dump(f"{folder}/shop.db", Path(sys.argv[1]))
