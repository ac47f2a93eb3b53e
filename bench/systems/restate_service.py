"""The Restate service that `restate_` measures: `python -m bench.systems.restate_service PORT`, started by that one."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import timedelta

import restate
from hypercorn import Config
from hypercorn.asyncio import serve

from bench.systems.common import clock

bench = restate.Service("bench")
gate = restate.Workflow("gate")


def report(kind: str, key: object, value: object) -> None:
    """Tells the measuring process, past Restate: a line on the pipe it reads."""
    os.write(1, f"{kind} {key} {value}\n".encode())


async def noop() -> int:
    return 1


@bench.handler()
async def steps(ctx: restate.Context, count: int) -> int:
    for _ in range(count):
        await ctx.run_typed("noop", noop)
    return count


@bench.handler("wait")
@bench.handler("wait_suspended", inactivity_timeout=timedelta(seconds=0.1))
async def wait(ctx: restate.Context, count: int) -> None:
    for _ in range(count):
        await ctx.run_typed("noop", noop)
    name, event = ctx.awakeable(type_hint=int)
    report("waits", ctx.request().id, name)
    await event
    report("woke", ctx.request().id, clock())


@bench.handler()
async def sleep_until(ctx: restate.Context, due: float) -> float:
    begun = time.time()
    await ctx.sleep(timedelta(seconds=due - begun))
    report("late", ctx.request().id, time.time() - due)
    return due - begun


@bench.handler()
async def slow_second(ctx: restate.Context) -> None:
    async def slow() -> None:
        report("ran", ctx.request().id, clock())
        await asyncio.sleep(float(os.environ.get("BENCH_HOLD", "0.2")))

    await ctx.run_typed("noop", noop)
    await ctx.run_typed("slow", slow)


@gate.handler()
async def pass_through(ctx: restate.WorkflowSharedContext) -> int:
    return await ctx.promise("open", type_hint=int).value()


@gate.handler("open")
async def open_gate(ctx: restate.WorkflowSharedContext) -> None:
    await ctx.promise("open", type_hint=int).resolve(1)


def main() -> None:
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    config.h2_max_concurrent_streams = config.keep_alive_max_requests = config.keep_alive_timeout = 2147483647
    asyncio.run(serve(restate.app([bench, gate]), config))


if __name__ == "__main__":
    main()
