"""Ask an instance how far it is, and find instances by what they are about.

`ctx.set_view` shows a value while the workflow runs, and after it has ended. Attributes are
small values to find instances by: from the arguments, or set by the code.
"""

import asyncio
from dataclasses import dataclass

from romancy import App, WorkflowContext, wait_event, workflow


@dataclass
class Order:
    customer: str
    parcels: int


@dataclass
class Progress:
    packed: int
    of: int


@workflow(attributes={"customer": "order.customer"})
async def packing(ctx: WorkflowContext, order: Order) -> str:
    ctx.set_attributes({"state": "packing"})
    for n in range(order.parcels):
        ctx.set_view(Progress(n, order.parcels))
        await wait_event(ctx, "packed", subject=ctx.instance_id)
    ctx.set_view(Progress(order.parcels, order.parcels))
    ctx.set_attributes({"state": "packed", "parcels": order.parcels})
    return f"{order.customer} gets {order.parcels}"


WORKFLOWS = [packing]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        small = await app.start_workflow(packing.options(instance_id="small"), Order("Ada", 1))
        await app.start_workflow(packing.options(instance_id="large"), Order("Grace", 9))
        print("Ada's orders:", await ids(app, customer="Ada"))
        while await small.view() is None:  # noqa: ASYNC110 - its code has not run yet
            await asyncio.sleep(0.01)
        print(await small.view(Progress))
        await app.send_event("packed", "warehouse", subject="small")
        print(await small.result(timeout=10))
        print(await small.view(Progress))
        print("packed:", await ids(app, state="packed", parcels=1))


async def ids(app: App, **attributes: str | int) -> list[str]:
    return [instance.instance_id for instance in (await app.list_instances(where=attributes)).items]


if __name__ == "__main__":
    asyncio.run(main())

# expect: Ada's orders: ['small']
# expect: Progress(packed=0, of=1)
# expect: Ada gets 1
# expect: Progress(packed=1, of=1)
# expect: packed: ['small']
