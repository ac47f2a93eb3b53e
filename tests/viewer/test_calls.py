"""What a page says of activities that run or are retried."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from romancy import ActivityContext, App, HTTPOptions, RetryPolicy, WorkflowContext, activity, workflow
from romancy.core.failure import Failure
from romancy.core.model import to_us
from romancy.explain.ownership import runner_of
from romancy.records import Wait
from romancy.storage.records import ShownAttempt
from romancy.viewer.calls import calls_of, unlisted
from romancy.viewer.catalog import Catalog

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def attempt(n: int, due: float | None, progress: bytes | None = None) -> ShownAttempt:
    error = Failure("OSError", "down").encode() if n else None
    size = len(progress or b"")
    return ShownAttempt("a:1", n, to_us(ago(60)), None if due is None else to_us(ago(due)), error, progress, size)


@pytest.mark.parametrize(
    ("stored", "is_alive", "state"),
    [
        (attempt(2, -5), True, "rests"),
        (attempt(2, -5), False, "rests"),
        (attempt(2, 5), True, "begins"),
        (attempt(2, 5), False, "waits"),
        (attempt(2, None), True, "runs"),
        (attempt(2, None), False, "waits"),
    ],
)
def test_an_attempt_that_is_due_is_not_overdue_while_its_worker_lives(
    stored: ShownAttempt, is_alive: bool, state: str
) -> None:
    call = calls_of([], [stored], [], NOW, is_alive=is_alive)["a:1"]
    assert (call.attempt, call.state, call.error, call.is_retry) == (3, state, "OSError: down", True)


def test_a_first_attempt_has_no_error() -> None:
    wait = Wait("i", "a:1", "activity", (), {}, ago(3), None, "")
    call = calls_of([wait], [], [], NOW, is_alive=True)["a:1"]
    assert (call.attempt, call.state, call.since, call.error, call.is_retry) == (1, "runs", ago(3), "", False)
    assert unlisted({"a:1": call}, [wait], [], "i") == []
    [made] = unlisted({"a:1": call}, [], [], "i")
    assert (made.wait_id, made.kind, made.since) == ("a:1", "activity", ago(3))


def test_progress_is_read_even_if_it_is_long() -> None:
    call = calls_of([], [attempt(0, None, b'{"rows": 3}')], [], NOW, is_alive=True)["a:1"]
    assert (call.has_progress, call.progress) == (True, {"rows": 3})
    long = ShownAttempt("a:1", 0, 0, None, None, b'"' + b"x" * 4095, 100_000)
    assert calls_of([], [long], [], NOW, is_alive=True)["a:1"].progress.startswith('"xxx')


RUNNING = asyncio.Event()


@activity
async def load(ctx: ActivityContext, file: str) -> None:
    ctx.progress({"rows": 12})
    RUNNING.set()
    await asyncio.sleep(3600)


@activity(retry=RetryPolicy(initial=3600))
async def book(ctx: ActivityContext, parcel: int) -> None:
    raise ConnectionError("no answer")


@workflow
async def both(ctx: WorkflowContext) -> None:
    await asyncio.gather(load(ctx, "rows.csv"), book(ctx, 7))


async def test_the_page_of_an_instance_that_runs_and_retries() -> None:
    RUNNING.clear()
    async with App(":memory:", workflows=[both], http=HTTPOptions(open=True)) as app:
        await app.start_workflow(both, instance_id="b")
        await asyncio.wait_for(RUNNING.wait(), 30)
        watcher = app._runtime.engine.changes.watch()
        async with asyncio.timeout(30):
            while len((detail := await Catalog(app).instance("b", None)).calls) < 2 or not detail.is_retrying:
                await watcher.changed.wait()
                watcher.take()
        app._runtime.engine.changes.leave(watcher)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            page = (await client.get("/viewer/instances/b")).text
        await app.cancel_workflow("b")
    assert {op: (call.attempt, call.state, call.input) for op, call in detail.calls.items()} == {
        "load:1": (1, "runs", {"file": "rows.csv"}),
        "book:1": (2, "rests", {"parcel": 7}),
    }
    assert detail.calls["load:1"].progress == {"rows": 12}
    assert detail.is_retrying
    assert '<span class="badge retrying">' in page
    assert 'data-act="retry-now"' in page
    assert "attempt 1 failed: <bdi>ConnectionError: no answer" in page
    assert "/viewer/start/both?again=b" in page


def test_no_worker_is_missing_while_one_can_continue_it() -> None:
    about = ("pay", "waiting_for_event", None, None, 0)
    calm = runner_of(*about, is_wanted=False, has_others=True)
    assert (calm.said, calm.is_needed) == (
        "no worker holds it while it waits; one continues it when the wait ends",
        False,
    )
    assert runner_of(*about, is_wanted=False, has_others=False).is_needed
    assert runner_of("pay", "running", None, None, 0, is_wanted=False, has_others=True).is_needed


@workflow
async def scale(ctx: WorkflowContext, factor: float, unit: str) -> None: ...


async def test_an_input_that_browsers_can_not_read_is_not_filled_in() -> None:
    async with App(":memory:", workflows=[scale], http=HTTPOptions(open=True)) as app:
        await app.start_workflow(scale, 2.5, "m", instance_id="plain")
        await app.start_workflow(scale, float("nan"), "m", instance_id="odd")
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            plain, odd = [(await client.get(f"/viewer/start/scale?again={id}")).text for id in ("plain", "odd")]
    assert "&#34;default&#34;: 2.5" in plain
    assert "NaN" not in odd
    assert "The input can't be filled in" in odd
