"""Change a workflow while its instances are running.

The shop is deployed twice. An order from before the second deployment finishes the old way; a new
one is checked first. `ctx.patched` decides for each instance, and its answer is recorded.
"""

import asyncio
import tempfile
from pathlib import Path

from romancy import ActivityContext, App, WorkflowContext, activity, wait_event, workflow


@activity
async def check_fraud(ctx: ActivityContext, order: str) -> str:
    return f"{order} is checked"


@workflow(name="order")
async def order_before(ctx: WorkflowContext, order: str) -> list[str]:
    """What was deployed first."""
    await wait_event(ctx, "order.paid", subject=order)
    return [f"{order} is paid"]


@workflow(name="order")
async def order_now(ctx: WorkflowContext, order: str) -> list[str]:
    done: list[str] = []
    if ctx.patched("fraud-check"):
        done.append(await check_fraud(ctx, order))
    await wait_event(ctx, "order.paid", subject=order)
    return [*done, f"{order} is paid"]


WORKFLOWS = [order_now]


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "shop.db"
        async with App(database, workflows=[order_before]) as app:
            await app.start_workflow(order_before, "ORD-1", instance_id="ORD-1")
        async with App(database, workflows=WORKFLOWS) as app:
            await app.start_workflow(order_now, "ORD-2", instance_id="ORD-2")
            for order in ("ORD-1", "ORD-2"):
                await app.send_event("order.paid", "bank", subject=order)
                print(await app.handle(order).result(timeout=30))


if __name__ == "__main__":
    asyncio.run(main())

# expect: ['ORD-1 is paid']
# expect: ['ORD-2 is checked', 'ORD-2 is paid']
