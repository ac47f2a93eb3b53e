"""Observe workflows from outside, with hooks.

A hook runs after the commit and never for replayed steps, so it sees each thing once. It can be
sync or async. An exception in a hook is logged and does not affect any workflow.
"""

import asyncio
from collections import Counter
from datetime import timedelta

from romancy import App, EventReceivedInfo, HooksBase, WorkflowContext, wait_event, workflow


class DebugHooks(HooksBase):
    def on_event_received(self, info: EventReceivedInfo) -> None:
        print(f"{info.instance_id} received {info.event_type}: {info.event_data}")


class EventCount(HooksBase):
    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    async def on_event_received(self, info: EventReceivedInfo) -> None:
        self.seen[info.event_type] += 1


@workflow
async def parcel(ctx: WorkflowContext, parcel_id: str, patience: timedelta = timedelta(days=3)) -> str:
    await wait_event(ctx, "parcel.sent", subject=parcel_id, timeout=patience)
    arrived = await wait_event(ctx, "parcel.arrived", subject=parcel_id, timeout=patience)
    place: str = arrived.data["place"]
    return place


WORKFLOWS = [parcel]


async def main() -> None:
    count = EventCount()
    async with App(":memory:", workflows=WORKFLOWS, hooks=[DebugHooks(), count]) as app:
        for parcel_id in ("P-1", "P-2"):
            handle = await app.start_workflow(parcel, parcel_id, instance_id=f"parcel-{parcel_id}")
            await app.send_event("parcel.sent", "post", {"weight": 3}, subject=parcel_id)
            await app.send_event("parcel.arrived", "post", {"place": "Kyoto"}, subject=parcel_id)
            await handle.result(timeout=10)
    for event_type, times in sorted(count.seen.items()):
        print(f"{event_type} was received {times} times")


if __name__ == "__main__":
    asyncio.run(main())

# expect: parcel.arrived was received 2 times
# expect: parcel.sent was received 2 times
