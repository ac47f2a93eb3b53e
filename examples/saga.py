"""Undo what a workflow did when it fails.

Each activity declares its undo. When the last step fails, Romancy calls the undos, the last one
first, with what was recorded: also after a crash in between.
"""

import asyncio

from romancy import NO_RETRY, ActivityContext, App, WorkflowContext, WorkflowFailed, activity, compensate, workflow


@activity
async def book_flight(ctx: ActivityContext, to: str) -> str:
    print(f"flight to {to}: booked")
    return f"flight to {to}"


@book_flight.compensate
async def cancel_flight(ctx: ActivityContext, flight: str) -> None:
    print(f"{flight}: cancelled")


@activity
async def book_hotel(ctx: ActivityContext, city: str, nights: int) -> str:
    print(f"hotel in {city}: booked")
    return f"hotel-{city}"


@book_hotel.compensate
async def cancel_hotel(ctx: ActivityContext, booking: str, city: str, nights: int) -> None:
    print(f"{booking}: {nights} nights cancelled")


@activity(retry=NO_RETRY)
async def charge(ctx: ActivityContext, payment: str, amount: int) -> None:
    raise ConnectionError("no answer: was the card charged?")


@activity
async def void(ctx: ActivityContext, payment: str) -> None:
    print(f"{payment}: void, if it exists")


@workflow
async def trip(ctx: WorkflowContext, city: str) -> None:
    await book_flight(ctx, city)
    await book_hotel(ctx, city, nights=3)
    payment = f"payment for {ctx.instance_id}"
    compensate(ctx, void, payment)  # before the call: it may have an effect although it fails
    await charge(ctx, payment, 900)


WORKFLOWS = [trip]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handle = await app.start_workflow(trip, "Rome", instance_id="trip-1")
        try:
            await handle.result(timeout=10)
        except WorkflowFailed as failed:
            print(f"the trip is off: {failed.error_type}; it is {await handle.status()}")


if __name__ == "__main__":
    asyncio.run(main())

# expect: flight to Rome: booked
# expect: hotel in Rome: booked
# expect: payment for trip-1: void, if it exists
# expect: hotel-Rome: 3 nights cancelled
# expect: flight to Rome: cancelled
# expect: the trip is off: ActivityError; it is failed
