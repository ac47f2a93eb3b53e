"""A request goes to the manager; after a day of silence it goes to the director.

Both waits are for the same event type and differ in `where`. A decision that arrives before its
wait begins is kept, so the director can answer while it is still the manager's turn.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from romancy import ActivityContext, App, WaitTimeout, WorkflowContext, activity, wait_event, workflow


@dataclass
class Decision:
    role: str
    approver: str
    approved: bool


@dataclass
class Approval:
    approved: bool
    approver: str | None = None
    escalated: bool = False


@activity
async def send_approval_request(ctx: ActivityContext, request_id: str, role: str) -> None:
    print(f"{request_id}: dear {role}, please decide")


@workflow
async def approval(ctx: WorkflowContext, request_id: str, patience: timedelta = timedelta(hours=24)) -> Approval:
    for role in ("manager", "director"):
        await send_approval_request(ctx, request_id, role)
        try:
            event = await wait_event(
                ctx,
                "approval.decision",
                model=Decision,
                subject=request_id,
                where={"role": role},
                timeout=patience,
            )
        except WaitTimeout:
            continue
        return Approval(event.data.approved, event.data.approver, escalated=role == "director")
    return Approval(approved=False, escalated=True)


WORKFLOWS = [approval]


async def main() -> None:
    brief = timedelta(seconds=0.2)
    async with App(":memory:", workflows=WORKFLOWS) as app:
        laptop = await app.start_workflow(approval, "laptop")
        piano = await app.start_workflow(approval, "piano", patience=brief)
        yacht = await app.start_workflow(approval, "yacht", patience=brief)
        await app.send_event("approval.decision", "intranet", Decision("manager", "Mo", True), subject="laptop")
        await app.send_event("approval.decision", "intranet", Decision("director", "Di", True), subject="piano")
        results = await asyncio.gather(*(request.result(timeout=10) for request in (laptop, piano, yacht)))
    for request_id, result in zip(("laptop", "piano", "yacht"), results, strict=True):
        print(f"{request_id}: approved={result.approved} by={result.approver} escalated={result.escalated}")


if __name__ == "__main__":
    asyncio.run(main())

# expect: laptop: approved=True by=Mo escalated=False
# expect: piano: approved=True by=Di escalated=True
# expect: yacht: approved=False by=None escalated=True
