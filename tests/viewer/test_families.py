"""The pages of parents, children and instances that continued as new."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from romancy import App, HTTPOptions, WorkflowContext, start_workflow, wait_event, workflow
from romancy.viewer import catalog
from tests.viewer.test_catalog import until


@workflow
async def delivery(ctx: WorkflowContext, n: int) -> int:
    if n < 0:
        raise ValueError("no such parcel")
    await wait_event(ctx, f"arrived.{n}")
    return n


@workflow
async def shipment(ctx: WorkflowContext, *ns: int) -> list[Any]:
    return await asyncio.gather(*(delivery(ctx, n) for n in ns), return_exceptions=True)


@workflow
async def sender(ctx: WorkflowContext, n: int) -> None:
    for each in range(n):
        await start_workflow(ctx, delivery, each)
    await wait_event(ctx, "never")


@workflow
async def counter(ctx: WorkflowContext, total: int = 0) -> int:
    """Adds up three events a run."""
    for _ in range(3):
        total += (await wait_event(ctx, "hit", model=int)).data
    counter.continue_as_new(ctx, total)


class Visitor:
    def __init__(self, app: App, client: httpx2.AsyncClient) -> None:
        self.app, self._client = app, client

    async def page(self, path: str) -> str:
        answer = await self._client.get(f"/viewer/{path}")
        assert answer.status_code == 200, answer.text
        return answer.text


@asynccontextmanager
async def visiting() -> AsyncIterator[Visitor]:
    known = [delivery, shipment, sender, counter]
    async with App(":memory:", workflows=known, http=HTTPOptions(open=True)) as app:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield Visitor(app, client)


def section(page: str, title: str) -> str:
    """The part of a page under a heading."""
    return page.split(f'id="{title}"', 1)[1].split("</section>", 1)[0]


def entries(page: str) -> list[int]:
    return [int(n) for n in re.findall(r'<li id="n(\d+)"', page)]


# --- parents and children -------------------------------------------------------------------------------------------
async def test_a_parent_shows_its_children_and_what_it_waits_for() -> None:
    async with visiting() as visitor:
        await visitor.app.start_workflow(shipment, 1, -1, instance_id="s")
        await until(visitor.app, "s", "waiting_for_child")
        await until(visitor.app, "s/delivery:2", "failed")
        page = await visitor.page("instances/s")
        listed = await visitor.page("?parent=s")
        everything = await visitor.page("?status=waiting_for_child")
    assert '<span class="badge waiting_for_child">' in page
    children = section(page, "children-title")
    assert children.count("<li ") == 2
    assert 'href="/viewer/instances/s%2Fdelivery%3A1"' in children
    assert "ValueError: no such parcel" in children
    assert 'href="/viewer/instances?parent=s"' in children
    assert "The newest" not in children
    waits = page.split('data-live-part="waits"')[1].split("</section>")[0]
    assert waits.count("<article") == 1, "only for the child that has not ended"
    assert "s/delivery:1" in waits
    assert "waiting for event" in waits, "the status of the child"
    assert '<i class="dot child" aria-hidden="true">' in page
    assert 'class="bar run running open' in page
    assert 'data-key="s/delivery:1"' in listed
    assert 'data-key="s"' not in listed
    assert 'name="parent" value="s"' in listed, "the filter stays when the form is sent"
    assert 'data-key="s"' in everything


async def test_a_child_links_to_its_parent_and_has_no_section_for_children() -> None:
    async with visiting() as visitor:
        await visitor.app.start_workflow(shipment, 1, instance_id="s")
        await until(visitor.app, "s/delivery:1", "waiting_for_event")
        page = await visitor.page("instances/s%2Fdelivery%3A1")
        parent = await visitor.page("instances/s")
    assert "child of <a" in page.split('class="crumbs"')[1].split("</p>")[0]
    assert 'href="/viewer/instances/s"' in page
    assert "children-title" not in page
    assert "child of" not in parent
    assert "<dt>run</dt>" not in parent


async def test_only_some_of_many_children_are_listed() -> None:
    async with visiting() as visitor:
        await visitor.app.start_workflow(sender, 25, instance_id="s")
        await until(visitor.app, "s", "waiting_for_event")
        page = await visitor.page("instances/s")
        listed = await visitor.page("?parent=s")
    assert section(page, "children-title").count("<li ") == 20
    assert "The newest 20." in page
    assert listed.count("<tr data-key=") == 25


# --- runs -----------------------------------------------------------------------------------------------------------
async def counted(visitor: Visitor, hits: int) -> None:
    await visitor.app.start_workflow(counter, instance_id="c")
    for _ in range(hits):
        await visitor.app.send_event("hit", "test", 1)
    run, hit = hits // 3 + 1, hits % 3 + 1
    await waiting(visitor.app, f"hit:{hit}" if run == 1 else f"hit:{hit}@{run}")


async def waiting(app: App, wait: str) -> None:
    """Returns once `c` waits for this; the feed says when to look again."""
    watcher = app._runtime.engine.changes.watch()
    try:
        async with asyncio.timeout(20):
            while wait not in [found.wait_id for found in (await app.get_instance("c")).waits]:
                await watcher.changed.wait()
                watcher.take()
    finally:
        app._runtime.engine.changes.leave(watcher)


async def test_the_page_shows_the_current_run_and_leads_to_the_one_before() -> None:
    async with visiting() as visitor:
        await counted(visitor, 7)
        page = await visitor.page("instances/c")
        [link] = re.findall(r'href="(\?after=\d+)">Entries of the run before', page)
        before = await visitor.page(f"instances/c{link}")
        oldest = await visitor.page("instances/c?after=0")
    assert "run 3, began " in page
    assert entries(page) == [0, 7]
    assert "2 entries of run 3" in page
    assert page.count('class="op-row') == 2, "the hit of this run, and the open wait"
    assert "hit:1@3" in section(page, "timeline-title")
    assert "start not recorded" not in page, "this run was replayed"
    assert "Earlier entries" not in page
    assert entries(before) == [4, 5, 6]
    assert "3 entries of run 2" in before
    assert "Show the current run" in before
    assert before.count('class="op-row') == 3, "no open wait: it belongs to the next run"
    assert "Later entries" not in before
    assert entries(oldest) == [4, 5, 6], "run 1 is not stored any more"
    assert "Earlier entries" not in oldest


async def test_what_a_child_did_is_drawn_below_its_call() -> None:
    async with visiting() as visitor:
        handle = await visitor.app.start_workflow(shipment, 1, instance_id="s")
        await until(visitor.app, "s/delivery:1", "waiting_for_event")
        await visitor.app.send_event("arrived.1", "post")
        await handle.result(timeout=30)
        page = await visitor.page("instances/s")
    line = section(page, "timeline-title")
    assert line.index("delivery:1</bdi>") < line.index("arrived.1:1</bdi>")
    assert 'class="label mono d1 event" href="/viewer/instances/s%2Fdelivery%3A1#n1"' in line


async def test_a_first_run_has_no_run_before() -> None:
    async with visiting() as visitor:
        await counted(visitor, 2)
        page = await visitor.page("instances/c")
    assert "the run before" not in page
    assert entries(page) == [0, 1, 2]
    assert "3 entries</span>" in page


async def test_long_runs_are_paged_each_within_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "ENTRIES", 2)
    monkeypatch.setattr("romancy.viewer.instance_page.ENTRIES", 2)
    async with visiting() as visitor:
        await counted(visitor, 6 + 2)
        newest = await visitor.page("instances/c")
        before = await visitor.page("instances/c?after=4")
        first = await visitor.page("instances/c?after=3")
    assert entries(newest) == [0, 7, 8]
    assert 'href="?after=4">Entries of the run before' in newest
    assert entries(before) == [5, 6]
    assert 'href="?after=3">Earlier entries' in before
    assert "Later entries" not in before
    assert "entries 2 to 3 of 3" in section(before, "timeline-title")
    assert entries(first) == [4, 5]
    assert 'href="?after=5">Later entries' in first
    assert "Earlier entries" not in first


async def test_a_wait_of_a_later_run_knows_the_model_of_its_event() -> None:
    async with visiting() as visitor:
        await counted(visitor, 4)
        found, model = await catalog.Catalog(visitor.app).wait("c", "hit:2@2")
    assert found is not None
    assert model is not None, "the run was replayed"
