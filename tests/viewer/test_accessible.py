"""Every page, in both themes and on a phone: axe finds nothing that keeps people from using it."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.http.conftest import Live
from tests.viewer.conftest import shot, visiting
from tests.viewer.test_pages import stock

PAGES = {
    "now": "/viewer/",
    "instances": "/viewer/instances",
    "failed": "/viewer/instances?status=failed",
    "nothing": "/viewer/instances?text=nosuch",
    "instance": "/viewer/instances/order-1",
    "failure": "/viewer/instances/failure-1",
    "attempts": "/viewer/instances/stubborn-1",
    "retrying": "/viewer/retrying",
    "overdue": "/viewer/overdue",
    "waiting": "/viewer/waiting",
    "waits": "/viewer/waits?type=payment.completed",
    "events": "/viewer/events",
    "unmatched": "/viewer/events?show=unmatched",
    "event": "/viewer/event?source=bank&id=wrong",
    "held": "/viewer/held",
    "inbox": "/viewer/inbox",
    "sinks": "/viewer/sinks",
    "queues": "/viewer/queues",
    "schedules": "/viewer/schedules",
    "questions": "/viewer/approvals",
    "workflows": "/viewer/workflows",
    "start": "/viewer/start/buy",
    "send": "/viewer/send",
    "login": "/viewer/login",
    "missing": "/viewer/nosuch",
}


@pytest.fixture
def stocked(live: Live) -> Live:
    stock(live)
    live.start("stubborn", True, id="stubborn-1")
    live.start("fails", id="failure-1")
    live.until("failure-1", "failed")
    live.send("wrong", "payment.completed", data={"order": {"id": "ORD-9"}})
    return live


@pytest.mark.play
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(stocked: Live, browser: Browser, scheme: str, width: int) -> None:
    found: dict[str, list[str]] = {}
    for look in visiting(browser, stocked, color_scheme=scheme, bypass_csp=True):
        look.set_viewport_size({"width": width, "height": 900})
        for name, path in PAGES.items():
            look.goto(path)
            look.wait_for_load_state("load")
            shot(look, f"{name}-{scheme}-{width}")
            if problems := faults(look):
                found[name] = problems
        look.complaints.clear()  # type: ignore[attr-defined] # of the page that is missing
    assert found == {}


def faults(look: Page) -> list[str]:
    response: Any = Axe().run(look).response
    return [f"{each['id']}: {node['html'][:160]}" for each in response["violations"] for node in each["nodes"]]
