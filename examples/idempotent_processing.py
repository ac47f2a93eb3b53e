"""Requests, events and attempts can be repeated. Each counts once.

The request id is the instance id, so a repeated request finds the first run. An event is
identified by its source and id. The activity passes `ctx.idempotency_key`, the same on every
attempt, to a service that may have done the work before the connection broke.
"""

import asyncio
import logging
from datetime import timedelta

from romancy import ActivityContext, App, RetryPolicy, WorkflowContext, activity, wait_event, workflow


class Bank:
    """Stands for an external service that accepts an idempotency key."""

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}

    def charge(self, key: str, amount: int) -> str:
        repeated = key in self.charges
        self.charges.setdefault(key, amount)
        if not repeated:
            raise ConnectionError("charged, but the response was lost")
        return f"charged {self.charges[key]} once"


@activity(retry=RetryPolicy(initial=timedelta(seconds=0.1)))
def charge(ctx: ActivityContext, amount: int) -> str:
    print(f"attempt {ctx.attempt} to charge {amount}")
    bank: Bank = ctx.state
    return bank.charge(ctx.idempotency_key, amount)


@workflow
async def handle_request(ctx: WorkflowContext, request_id: str, patience: timedelta = timedelta(minutes=10)) -> str:
    event = await wait_event(ctx, f"process.{request_id}", timeout=patience)
    return await charge(ctx, event.data["amount"])


WORKFLOWS = [handle_request]


async def main() -> None:
    logging.basicConfig(level=logging.ERROR)  # hides the warning about the first attempt, which fails on purpose
    bank = Bank()
    async with App(":memory:", workflows=WORKFLOWS, state=bank) as app:
        first = await app.start_workflow(handle_request, "REQ-1", instance_id="REQ-1")
        again = await app.start_workflow(handle_request, "REQ-1", instance_id="REQ-1")
        sent = await app.send_event("process.REQ-1", "shop", {"amount": 40}, id="evt-1")
        resent = await app.send_event("process.REQ-1", "shop", {"amount": 40}, id="evt-1")
        results = [await first.result(timeout=10), await again.result(timeout=10)]
    print(f"created: {first.created}, then {again.created}")
    print(f"duplicate event: {sent.duplicate}, then {resent.duplicate}")
    print(f"both callers get: {results[0]!r}, {results[1]!r}; charges at the bank: {list(bank.charges.values())}")


if __name__ == "__main__":
    asyncio.run(main())

# expect: created: True, then False
# expect: duplicate event: False, then True
# expect: both callers get: 'charged 40 once', 'charged 40 once'; charges at the bank: [40]
