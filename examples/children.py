"""A workflow that runs others as its children, and one that outlives it.

Each child is an instance of its own and can run on any worker. Their parent waits without costing
one, and hears of every end, also after a crash.
"""

import asyncio

from romancy import (
    ActivityContext,
    App,
    WorkflowContext,
    WorkflowFailed,
    activity,
    start_workflow,
    workflow,
)


@activity
async def fetch_price(ctx: ActivityContext, shop: str) -> int:
    if shop == "closed":
        raise LookupError("the shop is closed")
    return len(shop) * 10


@workflow
async def ask_shop(ctx: WorkflowContext, shop: str) -> int:
    return await fetch_price.options(timeout=5)(ctx, shop)


@workflow
async def keep_record(ctx: WorkflowContext, shop: str, price: int) -> str:
    return f"{shop}: {price}"


@workflow
async def find_cheapest(ctx: WorkflowContext, shops: list[str]) -> str:
    answers = await asyncio.gather(*(ask_shop(ctx, shop) for shop in shops), return_exceptions=True)
    prices: dict[str, int] = {}
    for shop, answer in zip(shops, answers, strict=True):
        if isinstance(answer, WorkflowFailed):
            print(f"{shop} gave no price")
        elif isinstance(answer, int):
            prices[shop] = answer
    best = min(prices, key=lambda shop: prices[shop])
    record = await start_workflow(ctx, keep_record, best, prices[best])  # it runs independently
    return f"{best} for {prices[best]}, see {record.instance_id}"


WORKFLOWS = [find_cheapest, ask_shop, keep_record]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handle = await app.start_workflow(find_cheapest, ["corner", "mall", "market"], instance_id="tea")
        print(await handle.result())
        print(await app.handle("tea/keep_record:1").result())


if __name__ == "__main__":
    asyncio.run(main())

# expect: mall for 40, see tea/keep_record:1
# expect: mall: 40
