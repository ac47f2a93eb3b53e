"""A workflow that handles events indefinitely: it continues as new, so its history stays short.

Events that arrive while one run follows another are not lost, and none is received twice.
"""

import asyncio

from romancy import App, WorkflowContext, events, workflow


@workflow
async def meter(ctx: WorkflowContext, total: int = 0) -> int:
    async for reading in events(ctx, "reading", model=int, limit=10):
        if reading.data < 0:
            print(f"stopped in run {ctx.run_number}, after {ctx.history_length} entries of it")
            return total
        total += reading.data
    meter.continue_as_new(ctx, total)


WORKFLOWS = [meter]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handle = await app.start_workflow(meter, instance_id="meter-7")
        for value in range(25):
            await app.send_event("reading", "meter", value)
        await app.send_event("reading", "meter", -1)
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main())

# expect: stopped in run 3, after 6 entries of it
# expect: 300
