"""The pages of the inbox and of old events that are kept for open instances."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from playwright.sync_api import Page, expect

from romancy.service import runtime_of
from tests.http.conftest import Live
from tests.viewer.conftest import shot


def leave(live: Live, value: int) -> None:
    """Leave a start and an event. They stay, because nothing is taken in by itself any more."""

    async def leave() -> None:
        engine: Any = runtime_of(live.app).engine
        await engine._moving.stop()
        with closing(sqlite3.connect(live.app.database)) as connection, connection:
            tx = live.app.within(connection)
            await tx.start_workflow("echo", value, instance_id="order/<b>1")
            await tx.send_event("paid", "bank", id=f"e{value}")

    live.on_loop(leave)


def test_the_inbox(live: Live, look: Page) -> None:
    look.goto("/viewer/instances")
    expect(look.locator("#inbox-note")).to_have_count(0)
    look.goto("/viewer/inbox")
    expect(look.locator("main")).to_contain_text("The inbox is empty")
    leave(live, 1)
    look.goto("/viewer/instances")
    expect(look.locator("#inbox-note")).to_contain_text("2 wait for a worker")
    look.locator("#inbox-note a").click()
    rows = look.locator("#inbox tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("order/<b>1")
    expect(rows.nth(1)).to_contain_text("paid")
    expect(rows.nth(1)).to_contain_text("waits for a worker")
    shot(look, "inbox")


def test_what_was_refused_is_removed_by_a_visitor(live: Live, look: Page) -> None:
    live.start("echo", 0, id="order/<b>1")
    leave(live, 1)
    live.on_loop(lambda: runtime_of(live.app)._engine.take_in())  # type: ignore[union-attr]
    look.goto("/viewer/instances")
    expect(look.locator("#inbox-note")).to_contain_text("1 refused")
    look.goto("/viewer/inbox")
    row = look.locator("#inbox tbody tr")
    expect(row).to_contain_text("different input")
    shot(look, "inbox-refused")
    row.get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)
    assert live.client.get("/api/inbox").json()["items"] == []
    live.until("order%2F%3Cb%3E1", "completed")


def test_held_events(live: Live, look: Page) -> None:
    live.start("approval", "ann", id="old")
    live.until("old", "waiting_for_event")
    live.send("e", "approved", subject="bob")
    look.goto("/viewer/events")
    look.get_by_role("link", name="held", exact=True).click()
    expect(look.locator("main")).to_contain_text("No old events are held")
    look.goto("/viewer/held?older=0")
    row = look.locator('tr[data-key="approved"]')
    expect(row).to_contain_text("approval")
    expect(row.locator("a.id")).to_have_text("old")
    assert live.send("f", "note", romancyinstanceid="old").status_code == 202
    look.goto("/viewer/held?older=0")
    row = look.locator('tr[data-key="note to old"]')
    expect(row.locator("a.id")).to_have_text("old")
    expect(row).to_contain_text("sent to it")
    shot(look, "held")
    look.goto("/viewer/events?type=a%26b")
    expect(look.get_by_role("link", name="unmatched")).to_have_attribute(
        "href", "/viewer/events?type=a%26b&show=unmatched"
    )
