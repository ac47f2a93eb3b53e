"""An instance waits, and its code now waits for something else: the new wait replaces the stored one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from romancy import App, Workflow, WorkflowContext, wait_event, workflow
from romancy.engine.followup import Followup
from romancy.service import runtime_of


@dataclass
class Paid:
    amount: int


@dataclass
class PaidIn:
    amount: int
    currency: str = "EUR"


def make(*types: str, **asked: Any) -> Workflow[[], list[Any]]:
    @workflow(name="changed")
    async def changed(ctx: WorkflowContext) -> list[Any]:
        first = asyncio.create_task(wait_event(ctx, *(types or ("go",)), **asked))
        second = asyncio.create_task(wait_event(ctx, *(types or ("go",)), **asked))
        return [(await first).source, (await second).source]

    return changed


CHANGES = [
    ({}, {"subject": "s"}),
    ({"subject": "s"}, {}),
    ({}, {"source": "a"}),
    ({}, {"where": {"amount": 7}}),
    ({"where": {"amount": 7}}, {"where": {"kind": "x"}}),
    ({"model": Paid}, {"model": PaidIn}),
    ({"model": Paid}, {}),
    ({}, {"since": "now"}),
    ({"since": "now"}, {}),
    ({"since": "now", "model": Paid}, {"since": "now", "model": PaidIn}),
    ({"since": "now"}, {"since": "now", "subject": "s"}),
    ({"timeout": 1000}, {"timeout": 2000, "subject": "s"}),
]


async def waits(app: App) -> None:
    while await app.handle("i").status() != "waiting_for_event":  # noqa: ASYNC110
        await asyncio.sleep(0)


async def send(app: App, n: int) -> None:
    data = {"amount": 7, "kind": "x"}
    receipt = await app.send_event("go", "a", data, subject="s", id=f"e{n}")
    assert not receipt.duplicate


@pytest.mark.parametrize(("old", "new"), CHANGES, ids=str)
@pytest.mark.parametrize("is_down", [False, True], ids=["up", "down"])
async def test_events_reach_the_new_wait(db: str, old: dict[str, Any], new: dict[str, Any], is_down: bool) -> None:
    async with App(db, workflows=[make(**old)]) as app:
        await app.start_workflow("changed", instance_id="i")
        await waits(app)
    if is_down:
        async with App(db, worker=False) as app:
            await send(app, 1)
    code = make(**new)
    async with App(db, workflows=[code]) as app:
        for n in (2, 3):
            await send(app, n)
        while "since" in new and await app.handle("i").status() != "completed":
            await send(app, n := n + 1)  # new waits with a beginning of their own may begin later than the first two
        assert await app.handle("i", code).result(timeout=20) == ["a", "a"]
        commits = runtime_of(app).engine.committer._batches  # type: ignore[attr-defined]
        assert commits < 100, "it did not go in circles"


async def test_an_event_for_the_old_wait_alone_is_not_taken(db: str) -> None:
    async with App(db, workflows=[make()]) as app:
        await app.start_workflow("changed", instance_id="i")
        await waits(app)
    code = make(subject="s")
    async with App(db, workflows=[code]) as app:
        await app.send_event("go", "other", 1)
        await app.send_event("go", "other", 2, subject="else")
        for n in (1, 2):
            await send(app, n)
        assert await app.handle("i", code).result(timeout=20) == ["a", "a"]


async def test_a_death_between_its_two_commits(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with App(db, workflows=[make(timeout=timedelta(hours=1))]) as app:
        await app.start_workflow("changed", instance_id="i")
        await waits(app)
        [due, _] = [wait.due_at for wait in (await app.get_instance("i")).waits]
    code = make(timeout=timedelta(hours=2), subject="s")
    with monkeypatch.context() as patch:
        done = asyncio.Event()
        patch.setattr(Followup, "_renew_waits", lambda self, resident: done.set())  # type: ignore[misc]
        async with App(db, workflows=[code]) as app:
            await app.send_event("go", "other", 1)
            await asyncio.wait_for(done.wait(), 10)
            found = await app.get_instance("i")
            assert (found.status, list(found.waits)) == ("running", [])
    async with App(db, workflows=[code]) as app:
        await send(app, 1)
        await send(app, 2)
        assert await app.handle("i", code).result(timeout=20) == ["a", "a"]
    assert due is not None


async def test_a_stored_deadline_is_kept(db: str) -> None:
    async with App(db, workflows=[make(timeout=timedelta(hours=1))]) as app:
        await app.start_workflow("changed", instance_id="i")
        await waits(app)
        before = {wait.wait_id: wait.due_at for wait in (await app.get_instance("i")).waits}
    code = make(timeout=timedelta(hours=2), subject="s")
    async with App(db, workflows=[code]) as app:
        await app.send_event("go", "other", 1)
        waiting = (await app.get_instance("i")).waits
        async with asyncio.timeout(20):
            while [wait.subject for wait in waiting] != ["s", "s"]:
                await asyncio.sleep(0)
                waiting = (await app.get_instance("i")).waits
        assert {wait.wait_id: wait.due_at for wait in waiting} == before
