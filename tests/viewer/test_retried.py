"""Retrying on a page, and how a page shows what no longer counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, Page, expect

from romancy import NO_RETRY, ActivityContext, RetryPolicy, WorkflowContext, activity, workflow
from romancy.core.history import Entry, Kind, pack_attempt, pack_dropped
from romancy.core.model import SECOND
from romancy.storage.catalog import ShownEntry
from romancy.viewer.retries import dropped_entries
from romancy.viewer.spans import Bar, bars_of
from romancy.viewer.words import clock_time
from tests.http.conftest import Live
from tests.viewer.conftest import shot, visiting

BROKEN: set[str] = set()


@activity(retry=NO_RETRY)
async def book(ctx: ActivityContext) -> str:
    return "booked"


@activity(retry=RetryPolicy(max_attempts=2, initial=0.01, jitter=0))
async def bill(ctx: ActivityContext) -> str:
    if "bill" in BROKEN:
        raise ConnectionError("the bank is down")
    return "paid"


@book.compensate
async def unbook(ctx: ActivityContext, booked: str) -> None: ...


@activity(retry=NO_RETRY)
async def price(ctx: ActivityContext) -> int:
    return 3


@workflow
async def sale(ctx: WorkflowContext) -> str:
    await price(ctx)
    return await bill(ctx)


@workflow
async def trip(ctx: WorkflowContext) -> str:
    await book(ctx)
    return await bill(ctx)


@pytest.fixture(autouse=True)
def broken() -> Iterator[None]:
    BROKEN.add("bill")
    yield
    BROKEN.clear()


@pytest.fixture
def live(serve: Callable[..., Live]) -> Live:
    live = serve(workflows=[sale, trip])
    for name in ("sale", "trip"):
        live.start(name, id=name)
        live.until(name, "failed")
    return live


def ask(look: Page, answer: str) -> None:
    look.get_by_role("button", name="Retry…").click()
    look.get_by_role("button", name=answer).click()


def test_retry_with_a_confirmation(live: Live, look: Page) -> None:
    look.goto("/viewer/instances/sale")
    expect(look.locator("#live")).to_have_text("live")
    ask(look, "Leave it as it is")
    assert live.client.get("/api/instances/sale").json()["status"] == "failed"
    ask(look, "Retry the instance")
    expect(look.get_by_text("Retried, but it failed again")).to_be_visible()
    expect(look.locator(".history")).to_contain_text("retried")
    BROKEN.clear()
    look.get_by_role("button", name="Retry…").click()
    shot(look, "retry-dialog")
    look.get_by_role("button", name="Retry the instance").click()
    expect(look.locator(".head .badge")).to_have_text("completed")
    expect(look.get_by_role("button", name="Retry…")).to_have_count(0)
    assert live.result("sale")["output"] == "paid"


def test_what_no_longer_counts_is_struck_through(live: Live, look: Page) -> None:
    BROKEN.clear()
    before = datetime.now(UTC)
    live.client.post("/api/instances/sale/retry")
    live.until("sale", "completed")
    times = {f"{time:%H:%M}" for time in (before, datetime.now(UTC))}
    look.goto("/viewer/instances/sale")
    gone = look.locator("summary.entry.dropped")
    expect(gone).to_have_count(1)
    expect(gone).to_contain_text("bill:1")
    expect(gone.locator(".retried")).to_have_text(re.compile(f"retried ({'|'.join(times)})"))
    assert "line-through" in gone.locator(".op").evaluate("e => getComputedStyle(e).textDecorationLine")
    gone.click()
    expect(look.locator("li", has=gone)).to_contain_text("This no longer counts since the retry of")
    look.locator("summary.entry.retried").click()
    expect(look.locator("li", has=look.locator("summary.entry.retried"))).to_contain_text("No longer counted:")
    expect(look.locator(".tl .dropped .op")).to_have_text("bill:1")
    expect(look.locator(".tl .bar.dropped").first).to_be_attached()
    shot(look, "instance-retried")


def test_a_retry_by_someone_else_shows_on_open_pages(live: Live, look: Page) -> None:
    BROKEN.clear()
    look.goto("/viewer/instances?workflow=sale")
    expect(look.locator("#live")).to_have_text("live")
    live.client.post("/api/instances/sale/retry")
    expect(look.locator("tr", has_text="sale").locator(".badge")).to_have_text("completed")


def test_what_has_undone_its_steps_has_no_button(live: Live, look: Page) -> None:
    look.goto("/viewer/instances/trip")
    expect(look.locator(".head .badge")).to_have_text("failed")
    expect(look.get_by_role("button", name="Retry…")).to_have_count(0)
    expect(look.locator(".note.undone")).to_contain_text("It has undone its steps, so it can't be retried.")
    expect(look.locator(".note.undone code")).to_have_text("romancy fork trip")
    look.goto("/viewer/instances/sale")
    expect(look.get_by_role("button", name="Retry…")).to_be_visible()
    expect(look.locator(".note.undone")).to_have_count(0)


def test_a_refusal_is_shown_where_it_was_asked_for(live: Live, look: Page) -> None:
    """The page is older than the retry of someone else."""
    look.goto("/viewer/instances/sale")
    look.route("**/api/instances/sale/retry", lambda route: route.continue_(url=f"{live.url}/api/instances/trip/retry"))
    ask(look, "Retry the instance")
    expect(look.locator("#retry .problem")).to_contain_text("it has undone its steps")
    look.complaints.clear()  # type: ignore[attr-defined] - the browser notes the refusal


def test_a_token_that_only_reads_can_not_retry(serve: Callable[..., Live], browser: Browser) -> None:
    live = serve(workflows=[sale], tokens=["read:looker", "all-of-it"])
    live.client.headers["authorization"] = "Bearer all-of-it"
    live.start("sale", id="sale")
    live.until("sale", "failed")
    for look in visiting(browser, live):
        look.goto("/viewer/instances/sale")
        look.get_by_label("token").fill("looker")
        look.get_by_role("button", name="Log in").click()
        expect(look.get_by_role("button", name="Retry…")).to_be_disabled()
        expect(look.get_by_role("button", name="Fork…")).to_be_disabled()
        look.locator("summary.entry", has_text="price:1").click()
        expect(look.get_by_role("button", name="Fork here…")).to_have_count(0)


# --- forks -----------------------------------------------------------------------------------------------------------
def test_fork_at_an_entry_of_the_history(live: Live, look: Page) -> None:
    BROKEN.clear()
    look.goto("/viewer/instances/sale")
    look.locator(".tl a.label", has_text="price:1").click()
    look.get_by_role("button", name="Fork here…").click()
    expect(look.get_by_label("last entry to keep")).to_have_value("1")
    shot(look, "fork-dialog")
    look.get_by_label("id of the new instance").fill("copy")
    look.get_by_role("button", name="Fork the instance").click()
    expect(look.locator("h1")).to_have_text("copy")
    expect(look.locator(".head .badge")).to_have_text("completed")
    expect(look.locator(".crumbs .origin")).to_have_text("forked from sale")
    entries = live.client.get("/api/instances/copy/history").json()["entries"]
    assert [e["kind"] for e in entries] == ["started", "activity_completed", "retried", "activity_completed"]
    assert live.client.get("/api/instances/sale").json()["status"] == "failed"
    shot(look, "fork")


def test_fork_from_the_beginning_or_not(live: Live, look: Page) -> None:
    look.goto("/viewer/instances/trip")
    look.get_by_role("button", name="Fork…").click()
    expect(look.locator("#fork")).to_contain_text(
        "It has undone its steps, so the new one starts again from its input."
    )
    expect(look.get_by_label("last entry to keep")).to_have_count(0)
    look.get_by_role("button", name="Don't fork").click()
    expect(look.get_by_role("button", name="Fork here…")).to_have_count(0)
    BROKEN.clear()
    look.get_by_role("button", name="Fork…").click()
    look.get_by_role("button", name="Fork the instance").click()
    expect(look.locator(".crumbs .origin")).to_have_text("forked from trip")
    expect(look.locator(".head .badge")).to_have_text("completed")
    assert live.client.get("/api/instance-count?workflow=trip").json() == {"count": 2}


def test_a_fork_that_is_refused_says_why(live: Live, look: Page) -> None:
    look.goto("/viewer/instances/sale")
    look.get_by_role("button", name="Fork…").click()
    for at, new_id, words in (("99", "", "no entry 99"), ("0", "sale", "already exists")):
        look.get_by_label("last entry to keep").fill(at)
        look.get_by_label("id of the new instance").fill(new_id)
        look.get_by_role("button", name="Fork the instance").click()
        expect(look.locator("#fork .problem")).to_contain_text(words)
    look.complaints.clear()  # type: ignore[attr-defined] - the browser notes the refusals
    assert live.client.get("/api/instance-count?workflow=sale").json() == {"count": 1}


def test_a_fork_links_to_its_original(live: Live, look: Page) -> None:
    live.client.post("/api/instances/sale/fork", json={"at": 1, "new_id": "copy"})
    live.until("copy", "failed")
    look.goto("/viewer/instances/copy")
    expect(look.locator(".crumbs .origin")).to_have_text("forked from sale")
    mark = look.locator("summary.entry.retried")
    expect(mark).to_contain_text("forked")
    mark.click()
    expect(look.locator("li", has=mark)).to_contain_text("Everything before is copied from sale.")
    expect(look.locator(".tl .label", has_text="fork")).to_be_visible()
    look.locator(".crumbs .origin a").click()
    expect(look.locator("h1")).to_have_text("sale")
    expect(look.locator(".crumbs .origin")).to_have_count(0)


# --- bars ------------------------------------------------------------------------------------------------------------
def shown(n: int, kind: Kind, op: str, second: int, input: bytes | None = None) -> ShownEntry:
    return ShownEntry(Entry(n, kind, op, second * SECOND, input), 0, 0)


def moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def test_a_repeated_operation_has_a_bar_for_each_time() -> None:
    entries = [
        shown(1, Kind.ATTEMPT_FAILED, "a:1", 1, pack_attempt(1, 0, 2 * SECOND)),
        shown(2, Kind.ACTIVITY_FAILED, "a:1", 3),
        shown(3, Kind.RETRIED, "", 10, pack_dropped([2])),
        shown(4, Kind.ATTEMPT_FAILED, "a:1", 11, pack_attempt(1, 0, 12 * SECOND)),
        shown(5, Kind.ACTIVITY_COMPLETED, "a:1", 13),
    ]
    retried = dropped_entries([(3, 10 * SECOND, entries[2].entry.input)])
    first, mark, second = bars_of(entries, (), None, moment(0), retried)
    assert (first.n, first.outcome, first.retried) == (2, "failed", retried[2])
    assert (mark.label, mark.kind, mark.retried) == ("retry", "mark", None)
    assert (second.n, second.outcome, second.retried) == (5, "completed", None)
    assert [attempt.n for attempt in first.attempts] == [1, 2]
    assert [attempt.n for attempt in second.attempts] == [4, 5]
    assert second.begin == moment(10), "not when the call was first made"
    assert second.attempts[0].begin == moment(10)


def test_a_mark_that_was_cut_short_and_one_that_drops_nothing() -> None:
    assert dropped_entries([(9, 0, b'{"dropped": [1, 2, 3')]).keys() >= {1, 2}
    assert dropped_entries([(9, 0, b'{"dropped": []}'), (10, 0, None)]) == {}


def test_times_of_other_days_have_a_date() -> None:
    assert clock_time(moment(180), moment(200)) == "00:03"
    assert clock_time(moment(180), moment(100_000)) == "1970-01-01 00:03"
    assert Bar("a", "mark", "", moment(0), None).retried is None
