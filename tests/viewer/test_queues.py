"""The page of queues: limits, what runs and waits, whose turn is next; and the place of an instance on its own page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from romancy import Queue, Rate, WorkflowContext, wait_event, workflow
from tests.http.conftest import Live
from tests.viewer.conftest import shot, visiting

mail = Queue("mail", max_concurrent=3, max_concurrent_per_key=2, max_waiting=1000)
slow = Queue("slow <b>", rate=Rate(1, timedelta(hours=1)))


@workflow(queue=mail, key="customer")
async def letter(ctx: WorkflowContext, customer: str) -> str:
    await wait_event(ctx, "go")
    return customer


@workflow(queue=slow)
async def rare(ctx: WorkflowContext) -> None: ...


@workflow
async def other(ctx: WorkflowContext) -> None: ...


@pytest.fixture
def live(serve: Callable[..., Live]) -> Live:
    return serve(workflows=[letter, rare, other])


@pytest.fixture
def look(browser: Browser, live: Live) -> Iterator[Page]:
    yield from visiting(browser, live)


def start(live: Live, name: str, id: str, *args: Any, **more: Any) -> None:
    body = {"args": args, "instance_id": id, **more}
    assert live.client.post(f"/api/workflows/{name}/start", json=body).status_code == 201


def fill(live: Live) -> None:
    """Two letters of a run, a third one and those of b and c wait; one of b has a higher priority."""
    for id in ("a1", "a2"):
        start(live, "letter", id, "a")
        live.until(id, "waiting_for_event")
    start(live, "letter", "a3", "a")
    start(live, "letter", "b1", "b")
    live.until("b1", "waiting_for_event")
    for id, priority in (("b2", 0), ("b3", 5), ("b4", 0), ("b5", 0)):
        start(live, "letter", id, "b", priority=priority)
    start(live, "letter", "c1", "c")
    start(live, "rare", "r1")
    live.until("r1", "completed")
    start(live, "rare", "r2")


def test_no_queues(serve: Callable[..., Live], browser: Browser) -> None:
    for look in visiting(browser, serve(workflows=[other])):
        look.goto("/viewer/instances")
        look.get_by_role("link", name="Queues", exact=True).click()
        expect(look.locator("main")).to_contain_text("There are no queues")


def test_limits_counts_and_whose_turn_is_next(live: Live, look: Page) -> None:
    fill(live)
    look.goto("/viewer/queues")
    queue = look.locator('section[data-key="mail"]')
    expect(queue.locator(".limits")).to_have_text(
        "at most 3 at a time · at most 2 of a key at a time · at most 1,000 waiting"
    )
    expect(queue.locator(".running")).to_have_text("3 of 3")
    expect(queue.locator(".waiting")).to_contain_text("6 of 1,000, the oldest for ")
    rows = queue.locator("tbody tr")
    assert [row.get_attribute("data-key") for row in rows.all()] == ["c", "a", "b"], "b was served last"
    expect(rows.nth(1)).to_contain_text("its key is at the limit")
    expect(rows.nth(0)).to_contain_text("the queue is at its limit")
    assert rows.nth(2).locator("a.id").all_inner_texts() == ["b3", "b2", "b4"]
    expect(rows.nth(2)).to_contain_text("and 1 more")
    rate = look.locator('section[data-key="slow <b>"]')
    expect(rate.locator(".limits")).to_have_text("1 every 1 h")
    expect(rate.locator(".rate")).to_contain_text("used up: the next in ")
    expect(rate.locator("tbody tr")).to_contain_text("no key")
    expect(rate.locator("tbody tr")).to_contain_text("the rate, in ")


def test_many_queues_are_paged(serve: Callable[..., Live], browser: Browser) -> None:
    def of(n: int) -> Any:
        @workflow(name=f"wf-{n:03}", queue=Queue(f"q-{n:03}", max_concurrent=1))
        async def job(ctx: WorkflowContext) -> None: ...

        return job

    live = serve(workflows=[of(n) for n in range(70)])
    for look in visiting(browser, live):
        look.goto("/viewer/queues")
        expect(look.locator("section.queue")).to_have_count(50)
        expect(look.get_by_role("link", name="First")).to_have_count(0)
        look.get_by_role("link", name="More", exact=True).click()
        expect(look.locator("section.queue")).to_have_count(20)
        assert look.locator("section.queue").first.get_attribute("data-key") == "q-050"
        expect(look.get_by_role("link", name="More", exact=True)).to_have_count(0)
        start(live, "wf-060", "j")  # the page is live
        live.until("j", "completed")
        shot(look, "queues-second-page")
        look.get_by_role("link", name="First").click()
        expect(look.locator("section.queue")).to_have_count(50)
        assert look.locator("section.queue").first.get_attribute("data-key") == "q-000"


def test_the_page_is_live(live: Live, look: Page) -> None:
    start(live, "letter", "a1", "a")
    look.goto("/viewer/queues")
    running = look.locator('section[data-key="mail"] .running')
    expect(running).to_have_text("1 of 3")
    start(live, "letter", "b1", "b")
    expect(running).to_have_text("2 of 3")


def test_links_lead_to_the_filtered_list(live: Live, look: Page) -> None:
    fill(live)
    look.goto("/viewer/queues")
    look.locator('section[data-key="mail"] .waiting a').click()
    expect(look.locator("#instances tbody tr")).to_have_count(6)
    expect(look.locator('tr[data-key="b4"] .c-what')).to_contain_text("queue mail")
    look.go_back()
    look.locator('section[data-key="mail"] .running a').click()
    expect(look.locator("#instances tbody tr")).to_have_count(3)
    look.go_back()
    look.locator('section[data-key="mail"] tr[data-key="b"] td a').first.click()
    expect(look.locator("#instances tbody tr")).to_have_count(5)
    expect(look.locator('input[name="key"]')).to_have_value("b")


def test_an_instance_says_its_place(live: Live, look: Page) -> None:
    fill(live)
    look.goto("/viewer/instances/b5")
    expect(look.locator("dd.queue")).to_have_text("mail, key b: behind 3 others of its key")
    held = look.locator("article.now .held")
    expect(held).to_contain_text("max_concurrent=3 of the queue is reached: ")
    expect(held.locator("a.id")).to_have_count(3)
    shot(look, "queued-held")
    look.get_by_role("button", name="Cancel…").click()
    expect(look.locator("#cancel")).to_contain_text("It has not begun to run, so it is cancelled at once")
    look.get_by_role("button", name="Keep it", exact=True).click()
    expect(look.locator("article.now")).to_contain_text("queue mail")
    expect(look.locator(".runner")).to_have_count(0)
    look.goto("/viewer/instances/b3")
    expect(look.locator("dd.queue")).to_have_text("mail, key b, priority 5: the next one of its key")
    look.goto("/viewer/instances/a1")
    expect(look.locator("dd.queue")).to_have_text("mail, key a")
    look.goto("/viewer/instances/r2")
    expect(look.locator("article.now .held")).to_contain_text("is used up: 1 every 1 h. The next one can begin in ")


def test_a_process_without_the_code_shows_what_is_stored(serve: Callable[..., Live], browser: Browser) -> None:
    live = serve(workflows=[letter])
    start(live, "letter", "a1", "a")
    live.until("a1", "waiting_for_event")
    live.stop()
    for look in visiting(browser, serve(workflows=[other])):
        look.goto("/viewer/queues")
        queue = look.locator('section[data-key="mail"]')
        expect(queue.locator(".limits")).to_contain_text("no workflow of this process has this queue")
        expect(queue.locator(".running")).to_have_text("1")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_on_every_screen(live: Live, browser: Browser, scheme: str) -> None:
    fill(live)
    start(live, "letter", "0197f3a2-5c1d-7e44-9b1f-000000000001", "customer-" + "x" * 200)
    for look in visiting(browser, live, color_scheme=scheme):
        for width in (360, 1280):
            look.set_viewport_size({"width": width, "height": 800})
            for name, path in (("queues", "/viewer/queues"), ("queued", "/viewer/instances/b5")):
                look.goto(path)
                expect(look.locator("#live")).to_contain_text("live")
                shot(look, f"{name}-{scheme}-{width}")
                assert look.evaluate("document.documentElement.scrollWidth") <= width, f"{name} {width}"
