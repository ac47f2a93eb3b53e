"""What a codec costs: `python -m bench.codecs`. Encoding and decoding alone, and steps and waits with and without it.

CPU time, the least of a few runs: disturbances only make a run longer. In memory, so that no disk counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial

from bench.systems.romancy_ import WORKFLOWS, many_steps, one_step, waiter
from romancy import App
from romancy.codecs import Chain, Compressed, Encrypted, PayloadCodec

KEYS = {"k1": bytes(range(32))}
CODECS: dict[str, PayloadCodec | None] = {
    "none": None,
    "encrypted": Encrypted(KEYS),
    "compressed, encrypted": Chain(Compressed(), Encrypted(KEYS)),
}
SIZES = {"100 bytes": 100, "10 kB": 10_000, "1 MB": 1_000_000}
STEPS, TIMES = 2_000, 3


def cost(work: Callable[[], object], n: int) -> float:
    """Return microseconds of CPU time for one of `n`."""
    least = float("inf")
    for _ in range(TIMES):
        begun = time.process_time()
        work()
        least = min(least, time.process_time() - begun)
    return least / n * 1e6


async def steps(codec: PayloadCodec | None) -> None:
    async with App(":memory:", workflows=WORKFLOWS, codec=codec) as app:
        await (await app.start_workflow(many_steps, STEPS)).result()


async def starts(codec: PayloadCodec | None) -> None:
    async with App(":memory:", workflows=WORKFLOWS, codec=codec) as app:
        for n in range(STEPS // 4):
            await (await app.start_workflow(one_step, n)).result()


async def waits(codec: PayloadCodec | None) -> None:
    async with App(":memory:", workflows=WORKFLOWS, codec=codec) as app:
        handles = [await app.start_workflow(waiter, n) for n in range(STEPS // 4)]
        for n in range(STEPS // 4):
            await app.send_event("go", "bench", {"key": n})
        for handle in handles:
            await handle.result()


def repeat(change: Callable[[bytes, str], bytes], value: bytes, n: int) -> None:
    for _ in range(n):
        change(value, "history/a/1/payload")


def alone(name: str, codec: PayloadCodec, shown: str, size: int) -> None:
    raw, n = (b'{"some": "json"} ' * size)[:size], max(20, 2_000_000 // (size + 1000))
    made = codec.encode(raw, "history/a/1/payload")
    writes, reads = cost(partial(repeat, codec.encode, raw, n), n), cost(partial(repeat, codec.decode, made, n), n)
    more = f"{len(made) - size:+,} bytes"
    print(f"{name:>22}  {shown:>9}: encode {writes:8.1f} us, decode {reads:8.1f} us, {more}")


def main() -> None:
    logging.disable(logging.CRITICAL)
    for name, codec in CODECS.items():
        for shown, size in SIZES.items() if codec is not None else ():
            alone(name, codec, shown, size)
    for work, n in ((steps, STEPS), (starts, STEPS // 4), (waits, STEPS // 4)):
        for name, codec in CODECS.items():
            took = cost(partial(_run, work, codec), n)
            print(f"{work.__name__:>8}  {name:>22}: {took:8.1f} us")


def _run(work: Callable[[PayloadCodec | None], Coroutine[None, None, None]], codec: PayloadCodec | None) -> None:
    asyncio.run(work(codec))


if __name__ == "__main__":
    main()
