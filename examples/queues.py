"""Limit how many instances run at a time, over all workers: a queue.

Instances wait as `queued`. Customers take turns, so one who orders a thousand letters does not hold
up the others.
"""

import asyncio

from romancy import ActivityContext, App, Queue, WorkflowContext, activity, workflow

printer = Queue("printer", max_concurrent=1)
printed: list[str] = []


@activity
async def print_letter(ctx: ActivityContext, text: str) -> None:
    printed.append(text)


@workflow(queue=printer, key="customer")
async def letter(ctx: WorkflowContext, customer: str, n: int) -> None:
    await print_letter(ctx, f"{customer} {n}")


WORKFLOWS = [letter]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        starts = [("Ada", 1), ("Ada", 2), ("Ada", 3), ("Grace", 1)]
        handles = await asyncio.gather(*(app.start_workflow(letter, *start) for start in starts))
        for handle in handles:
            await handle.result(timeout=10)
        print("printed:", len(printed))
        [queue] = await app.list_queues()
        print(queue.name, "running:", queue.running, "waiting:", queue.waiting)


if __name__ == "__main__":
    asyncio.run(main())

# expect: printed: 4
# expect: printer running: 0 waiting: 0
