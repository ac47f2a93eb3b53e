"""Measures a sink: `python -m bench.sinks [--database sqlite|postgres] [--events 5000] [--rounds 3]`.

Events of 200 subjects are stored while no worker runs. Then an app with an `HTTPSink` posts them, signed, to a server
on this machine, a process of its own, which answers 204. Full durability.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time

import click
from rich.console import Console
from rich.table import Table

from bench.plan import DATABASES
from bench.running import database
from romancy import App, Event, HTTPSink
from tests import pg_server

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SUBJECTS = 200
_SERVER = """
import asyncio

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            size = int(head.lower().split(b"content-length:")[1].split(b"\\r\\n")[0])
            await reader.readexactly(size)
            writer.write(b"HTTP/1.1 204 No Content\\r\\n\\r\\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


async def measure(url: str, port: int, events: int) -> tuple[float, float]:
    """Return events per second, and microseconds of CPU for each."""
    sink = HTTPSink("bench", f"http://127.0.0.1:{port}/", types=["order.*"], secrets=[SECRET])
    async with App(url, worker=False, sinks=[sink]) as app:
        for first in range(0, events, 500):
            numbers = range(first, min(first + 500, events))
            batch = [Event("order.paid", "bench", {"n": n}, subject=f"s{n % SUBJECTS}", id=str(n)) for n in numbers]
            await app.send_events(batch)
    left, done = events, asyncio.Event()
    post = sink.outlet.deliver

    async def counted(event: object) -> None:
        nonlocal left
        await post(event)  # type: ignore[arg-type]
        left -= 1
        if not left:
            done.set()

    object.__setattr__(sink.outlet, "deliver", counted)
    began, cpu = time.perf_counter(), time.process_time()
    async with App(url, sinks=[sink]):
        await asyncio.wait_for(done.wait(), 300)
        took, used = time.perf_counter() - began, time.process_time() - cpu
    return events / took, used / events * 1e6


@click.command()
@click.option("--database", "kind", type=click.Choice(DATABASES), multiple=True, default=DATABASES)
@click.option("--events", default=5000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
def main(kind: tuple[str, ...], events: int, rounds: int) -> None:
    """Measure how many events a sink posts."""
    table = Table("database", "events per second", "CPU each", title=f"{events:,} events through an HTTPSink")
    server = subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        port = int(server.stdout.readline())
        for each in kind:
            figures: list[tuple[float, float]] = []
            for _ in range(rounds):
                with database(each, "romancy", pg_server.url()) as url:
                    figures.append(asyncio.run(measure(url.removeprefix("sqlite:///"), port, events)))
            rate, cpu = (statistics.median(values) for values in zip(*figures, strict=True))
            table.add_row(each, f"{rate:,.0f}", f"{cpu:,.0f} us")
    finally:
        server.kill()
    Console().print(table)


if __name__ == "__main__":
    main()
