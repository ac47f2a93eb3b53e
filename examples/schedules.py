"""A workflow that is started every so often, with arguments, and now and then by hand.

In production, `Schedule("0 9 * * MON-FRI", timezone="Europe/Berlin")` is more usual.
"""

import asyncio

from romancy import App, Schedule, WorkflowContext, wait_event, workflow


@workflow
async def refresh(ctx: WorkflowContext, region: str) -> str:
    return f"{region} is up to date"


@workflow
async def watch(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "stop")


WORKFLOWS = [refresh, watch]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        await app.set_schedule("refresh-eu", Schedule(every=0.05), refresh, "eu")
        await app.set_schedule("watch", Schedule(every=0.05), watch)
        await asyncio.sleep(0.5)
        await app.delete_schedule("refresh-eu")
        # One instance at a time: ticks are skipped while it runs.
        print(f"instances of watch: {await app.count_instances(workflow='watch')}")
        handle = await app.trigger_schedule("watch")
        print(f"started by hand: {handle.instance_id.partition('/')[0]}")


if __name__ == "__main__":
    asyncio.run(main())

# expect: instances of watch: 1
# expect: started by hand: watch
