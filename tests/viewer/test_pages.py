"""A visitor clicks through every page, and what changes on the server changes under their eyes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from romancy.core.model import SECOND
from romancy.errors import StorageError
from romancy.http import stream
from tests.http.conftest import Live
from tests.viewer.conftest import shot, visiting


def stock(live: Live) -> None:
    live.start("payment", "ORD-1", id="order-1")
    live.start("payment", "ORD-2", 600, id="order-2")
    live.start("approval", "ada", id="approval-1")
    live.start("reminder", id="nap-1")
    live.start("branches", id="branches-1")
    live.start("fails", id="failed-1")
    live.start("echo", {"hello": ["world", 1, True, None]}, id="echo-1")
    for id, status in (("order-1", "waiting_for_event"), ("failed-1", "failed"), ("branches-1", "completed")):
        live.until(id, status)


def row(page: Page, id: str):
    return page.locator(f'tr[data-key="{id}"]')


def test_instances_with_status_wait_and_time_left(live: Live, look: Page) -> None:
    stock(live)
    look.goto("/viewer/instances")
    expect(row(look, "order-1")).to_contain_text("waiting for event")
    expect(row(look, "order-1")).to_contain_text("payment.completed")
    expect(row(look, "order-1")).to_contain_text('order.id = "ORD-1"')
    expect(row(look, "order-1")).to_contain_text("min")
    expect(row(look, "approval-1")).to_contain_text("no timeout")
    expect(row(look, "failed-1")).to_contain_text("RuntimeError: no way")
    expect(look.locator('[data-count="failed"]')).to_have_text("1")
    shot(look, "instances-light")


def test_a_workflow_goes_from_waiting_to_completed_without_reload(live: Live, look: Page) -> None:
    stock(live)
    look.goto("/viewer/instances")
    expect(look.locator("#live")).to_have_text("live")
    look.evaluate("window.untouched = true")
    look.locator('tr[data-key="order-1"]').evaluate("element => { element.mine = true }")
    live.send("e1", "payment.completed", data={"order": {"id": "ORD-1"}})
    expect(row(look, "order-1").locator(".badge")).to_have_text("completed")
    expect(look.locator('[data-count="completed"]')).to_have_text("3")
    assert look.evaluate("window.untouched"), "the page was not loaded again"
    assert row(look, "order-1").evaluate("element => element.mine"), "the row is the same one"


def test_new_instances_are_announced_and_nothing_jumps(live: Live, look: Page) -> None:
    stock(live)
    look.goto("/viewer/instances")
    expect(look.locator("#live")).to_have_text("live")
    before = look.locator("tbody tr").first.get_attribute("data-key")
    live.start("echo", id="new-1")
    live.start("echo", id="new-2")
    expect(look.locator("#newer")).to_have_text("2 new")
    assert look.locator("tbody tr").first.get_attribute("data-key") == before
    look.locator("#newer").click()
    expect(look.locator("tbody tr").first).to_have_attribute("data-key", "new-2")


def test_rows_of_what_has_completed_are_not_asked_for_again(live: Live, look: Page) -> None:
    stock(live)
    asked: list[str] = []
    look.on("request", lambda request: asked.append(request.url))
    look.goto("/viewer/instances")
    expect(look.locator("#live")).to_have_text("live")
    live.start("echo", id="new-1")
    expect(look.locator("#newer")).to_have_text("1 new")
    rows = [url for url in asked if "/viewer/rows" in url]
    assert any("order-1" in url for url in rows)
    assert any("failed-1" in url for url in rows), "it may have been retried"
    assert not any("echo-1" in url for url in rows)


def test_the_page_of_what_has_completed_is_not_asked_for_again(live: Live, look: Page) -> None:
    stock(live)
    asked: list[str] = []
    look.on("request", lambda request: asked.append(request.url))
    look.goto("/viewer/instances/echo-1")
    expect(look.locator("#live")).to_have_text("live")
    look.evaluate("void (heard = new Promise((done) => { new EventSource('/api/stream').onmessage = done }))")
    live.start("echo", id="new-1")
    look.evaluate("heard.then(() => true)")
    assert len([url for url in asked if "/viewer/instances/" in url]) == 1


def test_the_filter_is_in_the_address(live: Live, look: Page) -> None:
    stock(live)
    look.goto("/viewer/instances")
    look.locator(".counts a.failed").click()
    expect(look.locator("tbody tr")).to_have_count(1)
    assert "status=failed" in look.url
    look.goto("/viewer/instances")
    look.keyboard.press("/")
    look.keyboard.type("ORD-2")
    look.keyboard.press("Enter")
    expect(look.locator("tbody tr")).to_have_count(1)
    expect(row(look, "order-2")).to_be_visible()
    look.goto("/viewer/instances?workflow=payment&within=1h")
    expect(look.locator("tbody tr")).to_have_count(2)
    look.goto("/viewer/instances?error_type=RuntimeError")
    expect(look.locator("tbody tr")).to_have_count(1)
    expect(look.locator("input[name=error_type]")).to_have_value("RuntimeError")
    look.goto("/viewer/instances?workflow=nosuch")
    expect(look.locator(".empty")).to_contain_text("No matches")
    look.goto("/viewer/instances?status=waiting_for_event&status=waiting_for_timer")
    expect(look.locator("tbody tr")).to_have_count(4)


def test_the_keyboard_goes_through_rows(live: Live, look: Page) -> None:
    stock(live)
    look.goto("/viewer/instances")
    expect(look.locator("#live")).to_have_text("live")  # its scripts are there
    look.keyboard.press("j")
    look.keyboard.press("j")
    look.keyboard.press("k")
    expect(look.locator("tr.chosen")).to_have_attribute("data-key", "echo-1")
    look.keyboard.press("Enter")
    expect(look.locator("h1")).to_have_text("echo-1")
    expect(look.locator("#live")).to_have_text("live")
    look.keyboard.press("?")
    expect(look.locator("#help")).to_be_visible()
    look.keyboard.press("Escape")
    look.keyboard.press("g")
    look.keyboard.press("w")
    expect(look.locator("h1")).to_have_text("Waiting")


def test_one_instance_from_waiting_to_completed(live: Live, look: Page) -> None:
    stock(live)
    live.send("near", "payment.completed", data={"order": {"id": "ORD-9"}})
    look.goto("/viewer/instances/order-1")
    expect(look.locator("h1")).to_have_text("order-1")
    expect(look.locator("section[aria-label='Waiting for']")).to_contain_text("payment.completed")
    expect(look.locator(".near")).to_contain_text("where order.id = 'ORD-1' but got 'ORD-9'")
    expect(look.locator(".source .marked")).to_contain_text("wait_event")
    expect(look.locator(".tl a.label")).to_have_count(2)
    shot(look, "instance-waiting")
    expect(look.locator("#live")).to_have_text("live")
    live.send("e1", "payment.completed", data={"order": {"id": "ORD-1"}})
    expect(look.locator(".head .badge")).to_have_text("completed")
    expect(look.locator(".history")).to_contain_text("event received")
    expect(look.locator("#history-title")).to_contain_text("4 entries")
    look.locator("summary.entry", has_text="event received").click()
    expect(look.locator(".inside").filter(has_text="from bank")).to_contain_text('"ORD-1"')
    expect(look.locator(".inside", has_text="Waited for").first).to_contain_text('order.id = "ORD-1"')
    shot(look, "instance-completed")


def test_parallel_branches_lie_beside_each_other(live: Live, look: Page) -> None:
    live.start("branches", id="b")
    live.until("b", "completed")
    look.goto("/viewer/instances/b")
    bars = look.locator(".tl rect.bar")
    expect(bars).to_have_count(4)
    starts, widths = (
        [float((bars.nth(i).get_attribute(name) or "").rstrip("%")) for i in range(4)] for name in ("x", "width")
    )
    assert starts[0] == starts[1] == starts[2] == 0.0, "three began at once"
    assert starts[3] >= max(widths[:3]) - 0.1, "the fourth began when they had ended"
    expect(look.locator(".tl .guess")).to_have_count(0)
    before = look.locator(".tl .lines").bounding_box()
    look.locator("[data-zoom=in]").click()
    after = look.locator(".tl .lines").bounding_box()
    assert before
    assert after
    assert after["width"] > before["width"] * 1.5
    shot(look, "instance-branches")


def test_waiting_by_type_with_the_next_timers(live: Live, look: Page) -> None:
    stock(live)
    look.goto("/viewer/waiting")
    expect(look.locator('article[data-key="payment.completed"]')).to_contain_text("2 waiting")
    expect(look.locator('article[data-key="approved"]')).to_contain_text("no timeout")
    expect(look.locator('article[data-key="approved"]')).to_contain_text("subject = 'ada'")
    expect(look.locator('[data-steady="timers"]')).to_contain_text("nap-1")
    assert look.locator(".dueline circle").count() >= 1
    shot(look, "waiting-light")
    expect(look.locator("#live")).to_have_text("live")
    live.send("e1", "approved", data="yes", subject="ada")
    expect(look.locator('article[data-key="approved"] tr.gone')).to_have_count(1)
    look.goto("/viewer/waits?type=payment.completed")
    expect(look.locator("tbody tr")).to_have_count(2)


def test_events_and_the_unmatched_with_what_did_not_match(live: Live, look: Page) -> None:
    stock(live)
    live.send("taken", "payment.completed", data={"order": {"id": "ORD-1"}})
    live.until("order-1", "completed")
    live.send("wrong", "payment.completed", data={"order": {"id": "ORD-9"}})
    live.send("typo", "payment.complete", data={"order": {"id": "ORD-2"}})
    live.send("begins", "order.placed", data={"n": 1})
    look.goto("/viewer/events")
    expect(look.locator("tr", has_text="taken")).to_contain_text("order-1")
    expect(look.locator("tr", has_text="begins")).to_contain_text("started")
    shot(look, "events-light")
    look.get_by_role("link", name="unmatched").click()
    expect(look.locator("tr", has_text="wrong")).to_contain_text("where order.id = 'ORD-2' but got 'ORD-9'")
    expect(look.locator("tr", has_text="typo")).to_contain_text(
        "it waits for 'payment.completed', not 'payment.complete'"
    )
    expect(look.locator("tbody")).not_to_contain_text("begins")
    shot(look, "unmatched-light")
    look.locator("tr", has_text="wrong").locator("a", has_text="wrong").click()
    expect(look.locator("main")).to_contain_text("ORD-9")
    expect(look.locator("main")).to_contain_text("The nearest waits")


def test_empty_pages_say_what_to_do(live: Live, look: Page) -> None:
    for path, text in (
        ("/viewer/", "No instances yet"),
        ("/viewer/waiting", "No instance waits for an event"),
        ("/viewer/events", "romancy send TYPE"),
        ("/viewer/events?show=unmatched", "Every event was taken by an instance"),
    ):
        look.goto(path)
        expect(look.locator("main")).to_contain_text(text)
    shot(look, "empty")
    live.start("echo", id="first")
    look.goto("/viewer/instances")
    expect(row(look, "first")).to_be_visible()


def test_what_is_not_there_is_a_friendly_page(live: Live, look: Page) -> None:
    answer = look.goto("/viewer/instances/nosuch")
    assert answer is not None
    assert answer.status == 404
    expect(look.locator("main")).to_contain_text("nosuch")
    answer = look.goto("/viewer/nosuch")
    assert answer is not None
    assert answer.status == 404
    answer = look.goto("/viewer/instances?status=nosuch")
    assert answer is not None
    assert answer.status == 400
    for cursor in ("/viewer/instances?cursor=zz", "/viewer/newer?top=zz"):
        answer = look.goto(cursor)
        assert answer is not None
        assert answer.status == 400
    look.complaints.clear()  # type: ignore[attr-defined] - the browser notes each of these answers


# --- live, or not -----------------------------------------------------------------------------------------------------
def test_without_a_sign_of_life_a_page_is_not_live(live: Live, look: Page) -> None:
    look.clock.install()
    look.goto("/viewer/instances")
    expect(look.locator("#live")).to_have_text("live")
    look.clock.fast_forward(14_000)  # a server that hangs keeps its connections, and says nothing
    expect(look.locator("#live")).to_have_text("not live")
    expect(look.locator("#live")).to_have_attribute("title", "no message from the server for 12 seconds")
    expect(look.locator("#live")).to_have_text("live", timeout=10_000)  # the next beat


def test_without_its_database_a_page_is_not_live(live: Live, look: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_BEAT", 0.2)
    look.goto("/viewer/waiting")
    expect(look.locator("#live")).to_have_text("live")

    async def away(*_: Any) -> Any:
        raise StorageError("the database is away")

    monkeypatch.setattr(type(live.app._runtime._engine.storage.catalog), "counts", away)
    expect(look.locator("#live")).to_have_text("not live")
    expect(look.locator("#live")).to_have_attribute("title", "the database can't be read")
    look.goto("/viewer/waiting")
    expect(look.locator("h1")).to_have_text("Temporarily unavailable")
    expect(look.locator("#live")).to_have_count(0)
    look.complaints.clear()  # type: ignore[attr-defined] - the browser notes the 503


def test_a_worker_that_dies_is_noticed_though_nobody_says_so(
    serve: Callable[..., Live], browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_BEAT", 0.2)
    live = serve(worker=False)
    live.start("echo", id="e")

    async def hold() -> None:
        storage = live.app._runtime.engine.storage
        await storage.register("w1", 6 * SECOND, (), ["echo"])  # the stream's first counts have come by then
        assert len(await storage.claim("w1", ["echo"], 10, 0)) == 1

    live.on_loop(hold)
    for look in visiting(browser, live):
        look.goto("/viewer/instances/e")
        expect(look.locator(".runner")).to_contain_text("runs it and is alive")
        expect(look.locator(".runner")).to_contain_text("but its lease expired", timeout=15_000)


# --- small truths -----------------------------------------------------------------------------------------------------
def test_every_status_of_the_filter_is_marked_and_what_is_ignored_is_said(live: Live, look: Page) -> None:
    stock(live)
    look.goto("/viewer/instances?status=failed&status=waiting_for_event")
    marked = look.locator(".counts a[aria-current]")
    expect(marked).to_have_count(2)
    expect(marked.first).to_contain_text("waiting for event")
    expect(marked.last).to_contain_text("failed")
    expect(look.locator("#ignored")).to_have_count(0)
    look.goto("/viewer/instances?status=failed&colour=red&<b>=1")
    expect(look.locator("#ignored")).to_have_text("Unknown parameters ignored: <b>, colour")
    for path in ("/viewer/waiting", "/viewer/events", "/viewer/workflows", "/viewer/send", "/viewer/instances/nap-1"):
        look.goto(f"{path}?nosuch=1")
        expect(look.locator("#ignored")).to_have_text("Unknown parameter ignored: nosuch")


def test_what_an_ended_instance_said_last_is_told_as_that(live: Live, look: Page) -> None:
    stock(live)
    live.send("e1", "payment.completed", data={"order": {"id": "ORD-1"}})
    live.until("order-1", "completed")
    look.goto("/viewer/instances")
    expect(look.locator("th").last).to_have_text("Waits for, error or output")
    expect(row(look, "order-1").locator(".about")).to_have_text("last description: order ORD-1")
    expect(row(look, "order-2").locator(".about")).to_have_text("order ORD-2")
    look.goto("/viewer/instances/order-1")
    expect(look.locator("dl.facts dt", has_text="last description")).to_have_count(1)
    look.goto("/viewer/instances/order-2")
    expect(look.locator("dl.facts dt", has_text="last description")).to_have_count(0)


def test_what_can_not_be_is_not_offered(live: Live, look: Page) -> None:
    look.goto("/viewer/instances")
    expect(look.locator(".counts a.blocked")).to_be_visible()
    expect(look.locator(".counts a.compensating")).to_be_hidden()
    look.goto("/viewer/instances?status=compensating")
    expect(look.locator(".counts a.compensating")).to_be_visible()


def test_the_history_counts_what_it_shows(live: Live, look: Page) -> None:
    live.start("echo", id="e")
    live.start("reminder", 0, id="r")
    live.until("r", "completed")
    look.goto("/viewer/instances/e")
    expect(look.locator("#history-title")).to_have_text("History 1 entry")
    expect(look.locator(".history > li[id]")).to_have_count(1)
    look.goto("/viewer/instances/r")
    expect(look.locator("#history-title")).to_have_text("History 2 entries")
    expect(look.locator(".history > li[id]")).to_have_count(2)


def test_whom_an_event_started_is_named_once(live: Live, look: Page) -> None:
    live.send("begins", "order.placed", data={"n": 1})
    live.until(live.client.get("/api/instances").json()["items"][0]["instance_id"], "completed")
    look.goto("/viewer/events")
    expect(look.locator("tr", has_text="begins").locator(".c-what a")).to_have_count(1)
    look.locator("tr", has_text="begins").locator(".c-id a").click()
    expect(look.locator("section", has_text="Received by").locator("a")).to_have_count(1)


def test_pages_speak_of_pages(live: Live, look: Page) -> None:
    look.goto("/viewer/instances/nosuch")
    expect(look.locator("main")).to_contain_text("no instance has the id 'nosuch'; it may have been deleted, or")
    expect(look.locator("main")).not_to_contain_text("list_instances")
    look.complaints.clear()  # type: ignore[attr-defined] - the browser notes the 404
    look.goto("/viewer/instances")
    expect(look.locator("#search")).to_have_attribute("placeholder", "id, input, output or error  ( / )")
    expect(look.locator("[name=workflow] option").first).to_have_text("any workflow")
