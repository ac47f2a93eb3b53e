"""The app of this folder: replace it by your own. `$ROMANCY_DATABASE` names its database."""

from datetime import timedelta

from romancy import ActivityContext, App, ReceivedEvent, WaitTimeout, WorkflowContext, activity, wait_event, workflow


@activity
async def ship(ctx: ActivityContext, order_id: str) -> str:
    return f"parcel of {order_id}"


@workflow(on_event="order.placed")
async def order(ctx: WorkflowContext, placed: ReceivedEvent[dict[str, str]]) -> str:
    order_id = placed.data["order_id"]
    try:
        await wait_event(ctx, "payment.completed", subject=order_id, timeout=timedelta(days=3))
    except WaitTimeout:
        return "nobody paid"
    return await ship(ctx, order_id)


# `romancy serve` only accepts events and answers; `romancy worker` runs the workflows.
app = App(workflows=[order], worker=False)
