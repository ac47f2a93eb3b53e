"""Call three services at once and gather their answers, in whatever order they arrive.

This is plain asyncio: `gather` over three small coroutines, each of which triggers a service and
waits up to ten minutes for its `service.<name>.completed`. All of it survives a crash.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from romancy import ActivityContext, App, WorkflowContext, activity, wait_event, workflow


@dataclass
class ServiceResult:
    status: str
    data: str


@dataclass
class Trip:
    flight: ServiceResult
    hotel: ServiceResult
    car: ServiceResult


@activity
async def trigger(ctx: ActivityContext, service: str, request_id: str) -> None:
    print(f"asking the {service} service about {request_id}")


async def ask(ctx: WorkflowContext, service: str, request_id: str, patience: timedelta) -> ServiceResult:
    await trigger(ctx, service, request_id)
    event = await wait_event(
        ctx, f"service.{service}.completed", model=ServiceResult, subject=request_id, timeout=patience
    )
    return event.data


@workflow
async def book_trip(ctx: WorkflowContext, request_id: str, patience: timedelta = timedelta(minutes=10)) -> Trip:
    flight, hotel, car = await asyncio.gather(
        ask(ctx, "flight", request_id, patience),
        ask(ctx, "hotel", request_id, patience),
        ask(ctx, "car", request_id, patience),
    )
    return Trip(flight, hotel, car)


WORKFLOWS = [book_trip]


async def main() -> None:
    answers = {"car": "a red one", "flight": "window seat", "hotel": "sea view"}
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handle = await app.start_workflow(book_trip, "trip-1")
        for service, answer in answers.items():
            result = ServiceResult("booked", answer)
            await app.send_event(f"service.{service}.completed", service, result, subject="trip-1")
        trip = await handle.result(timeout=10)
    print(f"flight {trip.flight.status}: {trip.flight.data}")
    print(f"hotel {trip.hotel.status}: {trip.hotel.data}")
    print(f"car {trip.car.status}: {trip.car.data}")


if __name__ == "__main__":
    asyncio.run(main())

# expect: flight booked: window seat
# expect: hotel booked: sea view
# expect: car booked: a red one
