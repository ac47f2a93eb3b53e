"""Your own rows and the workflow commit together: an activity writes into a table in the database of the app.

The first attempt fails after it has written its row. Nothing of it is left, so there is exactly one row for each order.
"""

import asyncio
import sqlite3
import tempfile
from datetime import timedelta
from pathlib import Path

from romancy import App, RetryPolicy, TransactionContext, WorkflowContext, activity, wait_event, workflow


@activity(transactional=True, retry=RetryPolicy(initial=timedelta(milliseconds=10)))
def book(ctx: TransactionContext[sqlite3.Connection], order: str, amount: int) -> int:
    ctx.connection.execute("INSERT INTO ledger VALUES (?, ?)", (order, amount))
    ctx.send_event("ledger.booked", "shop", {"order": order}, to=ctx.instance_id)
    if ctx.attempt == 1:
        raise OSError("the power is gone")
    return ctx.attempt


@workflow
async def order(ctx: WorkflowContext, number: str) -> str:
    attempts = await book(ctx, number, 42)
    event = await wait_event(ctx, "ledger.booked")
    return f"{event.data['order']} booked with attempt {attempts}"


WORKFLOWS = [order]


async def main(path: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE ledger (order_id TEXT, amount INTEGER)")
    async with App(path, workflows=WORKFLOWS) as app:
        handles = [await app.start_workflow(order, f"ORD-{n}") for n in (1, 2)]
        for handle in handles:
            print(await handle.result())
    print(sorted(connection.execute("SELECT * FROM ledger").fetchall()))
    connection.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(str(Path(folder) / "shop.db")))

# expect: ORD-1 booked with attempt 2
# expect: ORD-2 booked with attempt 2
# expect: [('ORD-1', 42), ('ORD-2', 42)]
