"""Retry a workflow that has failed: it goes on from what failed, under its own id.

Everything else that is recorded stays: the seat is not reserved again. The call that failed keeps
its idempotency key. `fork_workflow` starts a new instance instead.
"""

import asyncio
from dataclasses import dataclass, field

from romancy import NO_RETRY, ActivityContext, App, WorkflowContext, WorkflowFailed, activity, workflow


@dataclass
class Bank:
    is_down: bool = True
    keys: set[str] = field(default_factory=set[str])


@activity
async def reserve_seat(ctx: ActivityContext, seat: str) -> None:
    print(f"seat {seat}: reserved")


@activity(retry=NO_RETRY)
async def charge(ctx: ActivityContext, amount: int) -> str:
    bank: Bank = ctx.state
    bank.keys.add(ctx.idempotency_key)
    if bank.is_down:
        raise ConnectionError("the bank is down")
    return f"{amount} paid"


@workflow
async def ticket(ctx: WorkflowContext, seat: str) -> str:
    await reserve_seat(ctx, seat)
    return f"seat {seat}: {await charge(ctx, 90)}"


WORKFLOWS = [ticket]


async def main() -> None:
    bank = Bank()
    async with App(":memory:", workflows=WORKFLOWS, state=bank) as app:
        handle = await app.start_workflow(ticket, "12A", instance_id="ticket-1")
        try:
            await handle.result(timeout=10)
        except WorkflowFailed:
            print(f"the ticket is {await handle.status()}")
        bank.is_down = False
        again = await app.retry_workflow("ticket-1", ticket)
        print(await again.result(timeout=10))
        print(f"idempotency keys used: {len(bank.keys)}")
        gone = [entry.operation for entry in await app.get_history("ticket-1") if entry.dropped]
        print(f"no longer counts: {', '.join(gone)}")


if __name__ == "__main__":
    asyncio.run(main())

# expect: seat 12A: reserved
# expect: the ticket is failed
# expect: seat 12A: 90 paid
# expect: idempotency keys used: 1
# expect: no longer counts: charge:1
