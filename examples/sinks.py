"""Sinks: what an app sends goes to other systems, in order for each subject, and again if they fail.

`HTTPSink` posts to an address. Any object with `async def deliver(event)` is a sink, too.
"""

import asyncio
from typing import Any

from romancy import App, ReceivedEvent, WorkflowContext, send_event, workflow


@workflow
async def fulfil(ctx: WorkflowContext, order_id: str) -> None:
    await send_event(ctx, "order.paid", "shop", {"total": 42}, subject=order_id)
    await send_event(ctx, "order.shipped", "shop", subject=order_id)


class Topic:
    """A topic of a message broker that is down at first."""

    name = "topic"
    types = ("order.*",)

    def __init__(self) -> None:
        self.is_down = True
        self.arrived = asyncio.Semaphore(0)

    async def deliver(self, event: ReceivedEvent[Any]) -> None:
        if self.is_down:
            print("the broker is down")
            self.is_down = False
            raise ConnectionError("the broker is down")
        print(event.type, event.subject)
        self.arrived.release()


WORKFLOWS = [fulfil]


async def main() -> None:
    topic = Topic()
    async with App(":memory:", workflows=WORKFLOWS, sinks=[topic]) as app:
        await (await app.start_workflow(fulfil, "ORD-1")).result()
        for _ in range(2):
            await topic.arrived.acquire()


if __name__ == "__main__":
    asyncio.run(main())

# expect: the broker is down
# expect: order.paid ORD-1
# expect: order.shipped ORD-1
