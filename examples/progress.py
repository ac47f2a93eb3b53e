"""A long activity reports its progress; the next attempt continues from there.

`ctx.progress(value)` saves any plain JSON value. `ctx.last_progress` is the last value saved by an earlier attempt.
"""

import asyncio

from romancy import ActivityContext, App, RetryPolicy, WorkflowContext, activity, workflow

ROWS = ["ada", "grace", "edsger", "barbara"]


@activity(retry=RetryPolicy(initial=0.01))
async def copy_rows(ctx: ActivityContext) -> int:
    done: int = ctx.last_progress or 0
    print(f"attempt {ctx.attempt} begins at row {done}")
    for n in range(done, len(ROWS)):
        if ctx.attempt == 1 and n == 2:
            raise ConnectionError("connection lost")
        print(f"copied {ROWS[n]}")
        ctx.progress(n + 1)
    return len(ROWS)


@workflow
async def move(ctx: WorkflowContext) -> str:
    return f"{await copy_rows(ctx)} rows moved"


WORKFLOWS = [move]


async def main() -> None:
    async with App(":memory:", workflows=WORKFLOWS) as app:
        handle = await app.start_workflow(move)
        print(await handle.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())

# expect: attempt 1 begins at row 0
# expect: copied ada
# expect: copied grace
# expect: attempt 2 begins at row 2
# expect: copied edsger
# expect: copied barbara
# expect: 4 rows moved
