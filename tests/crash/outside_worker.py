"""A worker with large results outside the database: `python -m tests.crash.outside_worker DATABASE SCHEMA FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from hashlib import sha256
from typing import Any

from romancy import ActivityContext, App, Database, WorkflowContext, activity, workflow
from romancy.codecs import Encrypted, Outside
from tests.sealed import KEYS

STEPS, SIZE = 12, 50_000


def page(instance: str, n: int) -> str:
    return f"{instance}/{n} " * SIZE


@activity
async def render(ctx: ActivityContext, n: int) -> str:
    return page(ctx.instance_id, n)


@workflow
async def book(ctx: WorkflowContext) -> str:
    """Returns the hash of all of its pages: whether each one is still there, and the same."""
    pages = [await render(ctx, n) for n in range(STEPS)]
    return sha256("".join(pages).encode()).hexdigest()


def app(database: str, schema: str, folder: str, *, works: bool = True) -> App:
    options: dict[str, Any] = {"schema": schema} if schema else {}
    codec = Outside(folder, over=1000, codec=Encrypted(KEYS))
    return App(Database(database, **options), workflows=[book], codec=codec, lease=1, worker=works)


async def main() -> None:
    async with app(*sys.argv[1:4]):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
