"""What `why`, `show` and the viewer say about schedules, and about events that were removed."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
from click.testing import CliRunner

from romancy import App, Client, HTTPOptions, Retention, Schedule, WorkflowContext, sleep, wait_event, workflow
from romancy.cli.group import main
from romancy.cli.server_target import ServerTarget
from romancy.core.model import to_us
from romancy.service import runtime_of
from romancy.testing import environment

DAY = timedelta(days=1)


@workflow(expects="approved")
async def sleeper(ctx: WorkflowContext) -> Any:
    await sleep(ctx, 20 * DAY)
    return (await wait_event(ctx, "approved")).data


@workflow
async def report(ctx: WorkflowContext) -> None:
    await wait_event(ctx, "go")


def call(*words: str) -> str:
    done = CliRunner().invoke(main, list(words), prog_name="romancy")
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


async def page(db: str, id: str) -> str:
    async with App(db, worker=False, http=HTTPOptions(open=True)) as app:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as visitor:
            return (await visitor.get(f"/viewer/instances/{id}")).text


async def cut_at_server(db: str, id: str) -> datetime | None:
    """What `why --url` knows about removed events."""
    async with App(db, worker=False, http=HTTPOptions(open=True)) as app:
        async with Client("http://localhost", transport=httpx2.ASGITransport(app), retry_for=0) as client:
            [reason] = (await ServerTarget(client).standing(id)).reasons
            return reason.wait.cut_at


def test_events_that_were_removed(tmp_path: Path) -> None:
    db = str(tmp_path / "cut.db")

    async def fill() -> None:
        kept = Retention(events=10 * DAY)
        async with environment(database=db, workflows=[sleeper], retention=kept) as env:
            await env.start(sleeper.options(instance_id="old"))
            await env.send_event("approved", "test", "yes")
            await env.advance(9 * DAY)
            await env.advance(timedelta(hours=2))  # events are counted every hour, perhaps just before the last turn
            metrics = runtime_of(env.app).engine.metrics
            assert metrics.held_since is not None
            await env.advance(2 * DAY)
            await env.start(sleeper.options(instance_id="young"))
            await env.advance(20 * DAY + DAY)

    asyncio.run(fill())
    assert "were removed, because Retention(events=...)" in call("why", "old", "-d", db)
    [wait] = json.loads(call("why", "old", "-d", db, "--json"))["waits"]
    assert wait["cut_at"] is not None
    assert "were removed" not in call("why", "young", "-d", db), "it came after those events"
    assert asyncio.run(cut_at_server(db, "old")) == datetime.fromisoformat(wait["cut_at"])
    assert asyncio.run(cut_at_server(db, "young")) is None
    assert "It may have missed one." in asyncio.run(page(db, "old"))
    assert "It may have missed one." not in asyncio.run(page(db, "young"))


def test_the_schedule_and_its_tick(tmp_path: Path) -> None:
    db = str(tmp_path / "ticks.db")

    async def fill() -> tuple[str, str]:
        async with environment(database=db, workflows=[report]) as env:
            await env.turn_to(to_us(datetime(2027, 1, 4, 8, tzinfo=UTC)))
            await env.app.set_schedule("eu", Schedule("0 9 * * *"), report)
            by_hand = await env.app.trigger_schedule("eu")
            await env.app.set_schedule("eu", Schedule("0 9 * * *", overlap="allow"), report)
            await env.advance(timedelta(hours=2))
            ids = [instance.instance_id for instance in (await env.app.list_instances()).items]
            [tick] = [id for id in ids if id != by_hand.instance_id]
            return tick, by_hand.instance_id

    tick, by_hand = asyncio.run(fill())
    assert "it was started by schedule eu, for its tick at 2027-01-04 09:00:00 UTC" in call("why", tick, "-d", db)
    assert "schedule eu, for its tick at 2027-01-04 09:00:00 UTC" in call("show", tick, "-d", db)
    assert "it was started by schedule eu, outside its ticks" in call("why", by_hand, "-d", db)
    assert "eu, for its tick at 2027-01-04 09:00:00 UTC" in asyncio.run(page(db, tick.replace("/", "%2F")))
