"""Views and attributes in a browser: they change without a reload, and lead to the filtered list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from romancy import WorkflowContext, wait_event, workflow
from tests.viewer.conftest import Live, shot, visiting


@workflow(attributes={"customer": "customer"})
async def packing(ctx: WorkflowContext, customer: str, parcels: int) -> None:
    """Shows which parcel is being packed."""
    for n in range(1, parcels + 1):
        await wait_event(ctx, "packed")
        ctx.set_view({"parcel": n, "of": parcels, "note": "fragile"})
        ctx.set_attributes({"state": "packing", "last": n == parcels})
    await wait_event(ctx, "sent")


@pytest.fixture
def packed(serve: Callable[..., Live]) -> Live:
    live = serve(workflows=[packing])
    live.start("packing", "c-7", 3, id="p")
    live.start("packing", "c-8", 3, id="q")
    for id in ("p", "q"):
        live.until(id, "waiting_for_event")
    return live


@pytest.fixture
def look(browser: Browser, packed: Live) -> Iterator[Page]:
    yield from visiting(browser, packed)


def test_a_view_appears_and_changes_without_reload(packed: Live, look: Page) -> None:
    look.goto("/viewer/instances/p")
    expect(look.locator("#live")).to_have_text("live")
    look.evaluate("window.stayed = true")
    view: Any = look.locator("section.view pre")
    expect(view).to_have_count(0)
    for n in (1, 2):
        packed.send(f"e{n}", "packed")
        expect(view).to_contain_text(f'"parcel": {n}')
    expect(look.locator("dd.attributes a")).to_have_text(["customer=c-7", "last=false", "state=packing"])
    assert look.evaluate("window.stayed")
    shot(look, "view")
    look.locator("dd.attributes a").first.click()
    expect(look.locator("#instances tbody tr")).to_have_count(1)
    expect(look.locator("input[name=attribute]").first).to_have_value("customer=c-7")
    shot(look, "attribute-filter")
