"""Read a stream of events: one at a time in a loop, or in batches.

Each event is taken once, in the order of arrival, also over crashes. `limit=` and `until=` end the
stream; `timeout=` is the time to wait for each event.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from romancy import App, WaitTimeout, WorkflowContext, events, workflow


@dataclass
class Bid:
    bidder: str
    amount: int


@workflow
async def auction(ctx: WorkflowContext, lot: str, patience: timedelta = timedelta(minutes=5)) -> str:
    best = Bid("nobody", 0)
    try:
        async for bid in events(ctx, "bid", model=Bid, subject=lot, timeout=patience):
            best = max(best, bid.data, key=lambda bid: bid.amount)
    except WaitTimeout:  # no more bids
        return f"{lot} goes to {best.bidder} for {best.amount}"
    raise AssertionError("a stream without a limit ends with its timeout")


@workflow
async def bookkeeping(ctx: WorkflowContext, count: int, window: timedelta = timedelta(minutes=1)) -> list[int]:
    bids = events(ctx, "bid", model=Bid, limit=count)
    totals: list[int] = []
    while batch := await bids.take(2, window=window):
        totals.append(sum(bid.data.amount for bid in batch))
    return totals


WORKFLOWS = [auction, bookkeeping]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        sale = await app.start_workflow(auction, "vase", timedelta(milliseconds=200))
        books = await app.start_workflow(bookkeeping, 3)
        for bidder, amount in (("Ada", 10), ("Grace", 30), ("Ada", 20)):
            await app.send_event("bid", "room", Bid(bidder, amount), subject="vase")
        print(await sale.result(timeout=10))
        print("totals:", await books.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())

# expect: vase goes to Grace for 30
# expect: totals: [40, 20]
