"""Keep large values outside the database.

The report of 1 MB is a file, and the database holds a reference to it. The file is there before the
result is stored, so that it survives any crash; it is removed with its instance. A URL works as well.
"""

import asyncio
import tempfile
from pathlib import Path

from romancy import ActivityContext, App, WorkflowContext, activity, workflow
from romancy.codecs import Outside


@activity
async def render(ctx: ActivityContext, customer: str) -> str:
    return f"Dear {customer}. " * 70_000


@workflow
async def letter(ctx: WorkflowContext, customer: str) -> int:
    text = await render(ctx, customer)
    return len(text)


WORKFLOWS = [letter]


def show_files(folder: Path) -> None:
    for file in folder.glob("*/instances/letter-1/*"):
        print(f"{file.parent.name}: {file.stat().st_size:,} bytes")


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with App(folder / "shop.db", workflows=WORKFLOWS, codec=Outside(folder / "blobs")) as app:
            handle = await app.start_workflow(letter, "Ann", instance_id="letter-1")
            print(await handle.result(timeout=10))
        show_files(folder / "blobs")


if __name__ == "__main__":
    asyncio.run(main())

# expect: 700000
# expect: letter-1: 700,003 bytes
