"""The page of sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from romancy import ReceivedEvent
from tests.helpers import eventually
from tests.http.conftest import Live
from tests.viewer.conftest import shot, visiting


class Broken:
    name, types, give_up_after = "crm", ["order.*"], 0

    def __init__(self) -> None:
        self.is_broken = True

    async def deliver(self, event: ReceivedEvent[Any]) -> None:
        if self.is_broken:
            raise ConnectionError("<b>out of order</b>")


SINK = Broken()


@pytest.fixture
def with_sink(serve: Callable[..., Live]) -> Live:
    SINK.is_broken = True
    return serve(sinks=[SINK])


@pytest.fixture
def page(browser: Browser, with_sink: Live) -> Iterator[Page]:
    yield from visiting(browser, with_sink)


def test_no_sinks(live: Live, look: Page) -> None:
    look.goto("/viewer/events")
    look.get_by_role("link", name="Sinks", exact=True).click()
    expect(look.locator("main")).to_contain_text("No app has declared one here")


def test_what_was_given_up_is_tried_again(with_sink: Live, page: Page) -> None:
    with_sink.on_loop(lambda: with_sink.app.send_event("order.paid", "shop", subject="ORD-1", id="e-1"))
    eventually(lambda: bool(with_sink.client.get("/api/dead-letters").json()["items"]), 20)
    page.goto("/viewer/sinks")
    expect(page.locator("#sinks tbody tr")).to_contain_text("order.*")
    expect(page.locator("#dead-letters tbody tr")).to_contain_text("<b>out of order</b>")
    shot(page, "sinks")
    SINK.is_broken = False
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("main")).to_contain_text("No sink has given up an event")
    page.goto("/viewer/event?source=shop&id=e-1")
    expect(page.locator("main")).to_contain_text("order.paid")
