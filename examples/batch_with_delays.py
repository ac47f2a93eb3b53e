"""Process many items in batches, with a pause between them.

The pause is a durable timer: after a crash, finished batches are not repeated and the five
seconds do not start over. A sleeping workflow is a row in the database and keeps no worker busy.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from romancy import ActivityContext, App, WorkflowContext, activity, sleep, workflow

BATCH_SIZE = 10


@dataclass
class Item:
    id: int
    text: str


@dataclass
class BatchReport:
    batch_id: str
    processed: list[int]


@activity
def process_batch(ctx: ActivityContext, items: list[Item]) -> int:
    print(f"processing {items[0].text} to {items[-1].text}")
    return len(items)


@workflow
async def batch_processor(
    ctx: WorkflowContext, batch_id: str, items: list[Item], pause: timedelta = timedelta(seconds=5)
) -> BatchReport:
    report = BatchReport(batch_id, processed=[])
    for start in range(0, len(items), BATCH_SIZE):
        if start > 0:
            await sleep(ctx, pause)
        report.processed.append(await process_batch(ctx, items[start : start + BATCH_SIZE]))
    return report


WORKFLOWS = [batch_processor]


async def main() -> None:
    items = [Item(number, f"letter {number}") for number in range(1, 26)]
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handle = await app.start_workflow(batch_processor, "monday", items, pause=timedelta(seconds=0.1))
        report = await handle.result(timeout=10)
    print(f"{report.batch_id}: {sum(report.processed)} items in batches of {report.processed}")


if __name__ == "__main__":
    asyncio.run(main())

# expect: monday: 25 items in batches of [10, 10, 5]
