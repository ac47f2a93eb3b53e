"""A worker with workflows that ask people, to be killed: `database schema folder`. Links are left in the folder."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from romancy import ActivityContext, App, Database, Invitation, WorkflowContext, activity, ask, workflow

KEY = "a key of at least thirty-two characters"
URL = "http://shop.example"
ROUNDS = 3


@activity
async def invite(ctx: ActivityContext, invitation: Invitation, number: int) -> None:
    """Leave a link where whoever answers finds it. Repeated after a crash, it is the same file."""
    folder = ctx.state
    name = f"{ctx.instance_id}.{number}.{invitation.person}"
    unfinished = folder / f".{name}"
    unfinished.write_text(invitation.url(ctx))
    unfinished.rename(folder / name)


@workflow
async def interview(ctx: WorkflowContext) -> list[list[str]]:
    """Ask the same people again and again. Two of the three must agree."""
    decisions: list[list[str]] = []
    for number in range(ROUNDS):
        vote = await ask(ctx, str, title=f"{number}?", people=["ann", "bob", "cy"], agrees=bool, needed=2)
        for invitation in vote.invitations.values():
            await invite(ctx, invitation, number)
        decision = await vote.decision()
        decisions.append([f"{answer.by}:{answer.data}" for answer in decision.answers])
    return decisions


async def main(url: str, schema: str, folder: str) -> None:
    database = Database(url, schema=schema or None)
    app = App(database, workflows=[interview], state=Path(folder), public_url=URL, signing_keys=[KEY], lease=0.5)
    async with app:
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
