"""A worker with a sink, to be killed: `database schema url`."""

from __future__ import annotations

import asyncio
import sys

from romancy import App, Database, HTTPSink


async def main(url: str, schema: str, receiver: str) -> None:
    sink = HTTPSink("crm", receiver, types=["order.*"], timeout=2.0)
    async with App(Database(url, schema=schema or None), sinks=[sink], lease=0.5):
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
