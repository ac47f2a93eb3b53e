"""Middleware: whatever an activity logs names the tenant that its instance belongs to.

Headers are stored with the instance, so this works in whichever process the activity runs, and after
a crash. Slow attempts are reported, too.
"""

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from romancy import ActivityContext, App, MiddlewareBase, StartRequest, WorkflowContext, activity, workflow

T = TypeVar("T")
tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


class Tenants(MiddlewareBase):
    async def around_start(self, start: StartRequest, call_next: Callable[[], Awaitable[T]]) -> T:
        if tenant.get() == "nobody":
            raise PermissionError(f"{start.workflow} needs a tenant")
        start.headers["tenant"] = tenant.get()
        return await call_next()

    async def around_activity(self, ctx: ActivityContext, call_next: Callable[[], Awaitable[T]]) -> T:
        tenant.set(ctx.headers["tenant"])
        return await call_next()


class Slow(MiddlewareBase):
    async def around_activity(self, ctx: ActivityContext, call_next: Callable[[], Awaitable[T]]) -> T:
        began = time.perf_counter()
        try:
            return await call_next()
        finally:
            if time.perf_counter() - began > 0.05:
                print(f"{ctx.activity_id} was slow")


@activity
def summarize(ctx: ActivityContext, day: str) -> str:
    time.sleep(0.06)
    return f"{tenant.get()} sold 3 books on {day}"


@workflow
async def report(ctx: WorkflowContext, day: str) -> str:
    return await summarize(ctx, day)


WORKFLOWS = [report]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS, middleware=[Tenants(), Slow()]) as app:
        try:
            await app.start_workflow(report, "Monday")
        except PermissionError as error:
            print("refused:", error)
        for name in ("acme", "initech"):
            tenant.set(name)
            handle = await app.start_workflow(report, "Monday")
            print(await handle.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())

# expect: refused: report needs a tenant
# expect: summarize:1 was slow
# expect: acme sold 3 books on Monday
# expect: summarize:1 was slow
# expect: initech sold 3 books on Monday
