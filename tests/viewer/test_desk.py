"""The front page, selecting rows and acting on many, filters that are saved, and the filters of events."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote

from playwright.sync_api import Browser, Page, Route, expect

from romancy import NO_RETRY, ActivityContext, WorkflowContext, activity, workflow
from romancy.viewer.charts import by_minute, points, throughput
from tests.http.conftest import Live
from tests.viewer.conftest import log_in, visiting


@activity(name="charge", retry=NO_RETRY)
async def charged(ctx: ActivityContext) -> None:
    raise ValueError("no money")


@activity(name="wrap", retry=NO_RETRY)
async def wrapped(ctx: ActivityContext) -> None:
    raise ValueError("no paper")


@workflow
async def breaks(ctx: WorkflowContext, at: str) -> None:
    await (charged(ctx) if at == "charge" else wrapped(ctx))


def test_charts_count_missing_minutes_as_zero() -> None:
    assert by_minute({100: 7, 98: 2, 1: 9}, 100)[-4:] == [0, 2, 0, 7]
    assert points([0, 5, 10]) == "0,98.0 1,55.1 2,12.3"
    chart = throughput(datetime(2026, 1, 1, 12, 30, 40, tzinfo=UTC), [0, 4, 8], [0, 0, 1])
    assert [(bar.up, bar.down) for bar in chart.bars] == [(0.0, 0.0), (50.0, 0.0), (100.0, 12.5)]
    assert (chart.completed, chart.failed, chart.top) == (12, 1, 8)
    assert [at.strftime("%H:%M") for _, at in chart.ticks] == ["12:30"]


def test_the_front_page_says_what_needs_a_person(live: Live, look: Page) -> None:
    look.goto("/viewer/")
    expect(look.locator(".verdict")).to_have_text("Nothing needs a person.")
    expect(look.locator(".tile.failed strong")).to_have_text("0")
    for n in range(3):
        live.start("fails", id=f"failure-{n}")
        live.until(f"failure-{n}", "failed")
    live.start("stubborn", True, id="stubborn-1")
    expect(look.locator(".tile.failed strong")).to_have_text("3")
    expect(look.locator(".verdict")).to_contain_text("3 fails")
    group = look.locator("table.groups tbody tr")
    expect(group).to_contain_text("RuntimeError")
    expect(look.locator("[data-live-part=workers] li")).to_contain_text("activities")
    expect(look.locator(".tile.retrying strong")).to_have_text("1")
    look.locator(".tile.retrying").click()
    expect(look.locator("#retrying tbody tr")).to_contain_text("hourly:1")
    expect(look.locator("#retrying tbody tr")).to_contain_text("the bank does not answer")


def test_a_kind_of_failure_is_retried_with_a_preview(live: Live, look: Page) -> None:
    for n in range(3):
        live.start("fails", id=f"failure-{n}")
        live.until(f"failure-{n}", "failed")
    look.goto("/viewer/")
    look.locator("[data-group=retry]").click()
    expect(look.locator("#bulk-preview")).to_have_text("3 instances of this kind: fails, charge.")
    look.locator("#bulk-yes").click()
    expect(look.locator(".toast")).to_contain_text("3 instances retried")


def test_a_kind_of_failure_is_retried_without_its_neighbours(serve: Callable[..., Live], browser: Browser) -> None:
    live = serve(workflows=[breaks])
    for n, at in enumerate(("charge", "wrap", "charge")):
        live.start("breaks", at, id=f"b-{n}")
        live.until(f"b-{n}", "failed")
    for look in visiting(browser, live):
        look.goto("/viewer/")
        row = look.locator("table.groups tbody tr", has_text="wrap")
        row.locator(".number a").click()
        expect(look.locator("tbody tr")).to_have_count(1)
        look.locator("[data-group=retry]").click()
        look.locator("#bulk-yes").click()
        expect(look.locator(".toast")).to_contain_text("1 instance retried")
    retried = {n for n in range(3) if "retried" in live.client.get(f"/api/instances/b-{n}/history").text}
    assert retried == {1}


def test_selected_rows_are_cancelled_and_others_stay(live: Live, look: Page) -> None:
    for n in range(4):
        live.start("approval", f"a-{n}", id=f"approve-{n}")
        live.until(f"approve-{n}", "waiting_for_event")
    live.start("fails", id="failure")
    live.until("failure", "failed")
    look.goto("/viewer/instances")
    bar = look.locator("#bulk-bar")
    expect(bar).to_be_hidden()
    for id in ("approve-0", "failure"):
        look.get_by_label(f"Select {id}").check()
    expect(look.locator("#picked")).to_have_text("2 selected")
    expect(look.locator("[data-bulk=cancel] b")).to_have_text("1")
    expect(look.locator("[data-bulk=resume]")).to_be_disabled()
    look.locator("[data-bulk=cancel]").click()
    expect(look.locator("#bulk-preview")).to_contain_text("1 instance of those selected")
    look.locator("#bulk [name=reason]").fill("no longer wanted")
    look.locator("#bulk-yes").click()
    expect(look.locator(".toast")).to_contain_text("1 instance asked to cancel")
    live.until("approve-0", "cancelled")
    assert live.client.get("/api/instances/approve-1").json()["status"] == "waiting_for_event"
    expect(bar).to_be_hidden()


def test_everything_that_a_filter_finds_is_cancelled(live: Live, look: Page) -> None:
    for n in range(3):
        live.start("approval", f"a-{n}", id=f"approve-{n}")
        live.until(f"approve-{n}", "waiting_for_event")
    live.start("reminder", id="reminder")
    live.until("reminder", "waiting_for_timer")
    look.goto("/viewer/instances?workflow=approval")
    live.start("approval", "late", id="approve-late")  # after the page was made
    look.locator("#pick-all").check()
    look.locator("[data-every=cancel]").click()
    expect(look.locator("#bulk-preview")).to_contain_text("finds 3 instances; 3 can be changed")
    look.locator("#bulk-yes").click()
    expect(look.locator(".toast")).to_contain_text("3 instances asked to cancel")
    for n in range(3):
        live.until(f"approve-{n}", "cancelled")
    for id in ("reminder", "approve-late"):
        assert live.client.get(f"/api/instances/{id}").json()["status"].startswith("waiting")


def test_no_more_are_changed_than_the_preview_said(live: Live, look: Page) -> None:
    for n in range(2):
        live.start("approval", f"a-{n}", id=f"approve-{n}")
        live.until(f"approve-{n}", "waiting_for_event")
    live.client.post("/cancel/approve-1")
    live.until("approve-1", "cancelled")
    look.goto("/viewer/instances?workflow=approval&status=cancelled")
    look.locator("#pick-all").check()
    look.locator("[data-every=retry]").click()
    expect(look.locator("#bulk-preview")).to_contain_text("finds 1 instance; 1 can be changed")
    live.client.post("/cancel/approve-0")  # now it matches, too
    live.until("approve-0", "cancelled")
    look.locator("#bulk-yes").click()
    expect(look.locator(".toast")).to_contain_text("1 instance retried")


def test_a_slow_count_does_not_change_the_next_question(live: Live, look: Page) -> None:
    live.start("approval", "a", id="approve-1")
    live.until("approve-1", "waiting_for_event")
    held: list[Route] = []
    look.route("**/api/instances/cancel", lambda route: held.append(route))
    look.goto("/viewer/instances?workflow=approval")
    look.locator("#pick-all").check()
    look.locator("[data-every=cancel]").click()
    expect(look.locator("#bulk-yes")).to_have_text("Counting…")
    look.keyboard.press("Escape")
    look.locator("[data-every=retry]").click()
    expect(look.locator("#bulk-yes")).to_have_text("Retry 0")
    with look.expect_response("**/api/instances/cancel"):
        held[0].continue_()
    look.evaluate("fetch('/openapi.json').then((later) => later.text())")  # by then the page has read the answer
    expect(look.locator("#bulk-yes")).to_have_text("Retry 0")


def test_a_row_with_an_invisible_character_in_its_id_is_acted_on(live: Live, look: Page) -> None:
    for id in ("a\u3164b", "a\\u3164b"):  # the second is how the first is shown
        live.start("approval", "a", id=id)
        live.until(quote(id), "waiting_for_event")
    look.goto("/viewer/instances")
    look.locator("#instances tbody tr").nth(1).locator("input").check()
    look.locator("[data-bulk=cancel]").click()
    look.locator("#bulk-yes").click()
    live.until(quote("a\u3164b"), "cancelled")


def test_a_filter_is_saved_and_removed(live: Live, look: Page) -> None:
    live.start("echo", 7, id="Seven")
    live.until("Seven", "completed")
    look.goto("/viewer/instances?workflow=echo&text=sEVEN")  # in any case
    expect(look.locator("#instances tbody tr")).to_have_count(1)
    look.locator("#save-filter").click()
    look.locator("#save [name=name]").fill("sevens")
    look.locator("#save button[value=yes]").click()
    look.goto("/viewer/")
    look.get_by_role("link", name="sevens").click()
    expect(look).to_have_url(re.compile(r"workflow=echo&text=sEVEN"))
    look.get_by_label("Remove the filter sevens").click()
    expect(look.locator("#saved-filters")).to_be_hidden()


def test_it_starts_again_with_the_same_input(live: Live, look: Page) -> None:
    live.start("payment", "ORD-7", 3.5, id="first")
    live.until("first", "waiting_for_event")
    look.goto("/viewer/start/payment?again=first")
    expect(look.get_by_label("order", exact=True)).to_have_value("ORD-7")
    expect(look.get_by_label("minutes", exact=True)).to_have_value("3.5")
    look.get_by_role("button", name="Start").click()
    look.wait_for_url(re.compile("/viewer/instances/"))
    second = live.client.get(f"/api/instances/{look.url.rpartition('/')[2]}").json()
    assert second["input"] == live.client.get("/api/instances/first").json()["input"]


def test_events_are_found_by_source_subject_time_and_text(live: Live) -> None:
    live.send("one", "order.placed", data={"sku": "LAMP"}, subject="s-1")
    live.send("two", "payment.completed", data={"order": {"id": "ORD-9"}})

    def found(query: str) -> set[str]:
        text = live.client.get(f"/viewer/events?{query}").text
        return {id for id in ("one", "two") if f"id={id}" in text}

    assert found("") == {"one", "two"}
    assert found("source=bank") == {"one", "two"}
    assert found("source=Bank") == set()
    assert found("subject=s-1") == {"one"}
    assert found("text=ord-9") == {"two"}
    assert found("text=PAYMENT.") == {"two"}
    assert found("within=1h&text=lamp") == {"one"}
    assert found("before=2020-01-01T00:00") == set()
    assert found("after=2020-01-01T00:00&type=order.placed") == {"one"}


def test_an_event_is_copied_as_a_command(live: Live, look: Page) -> None:
    data, more = {"sku": "LAMP", "link": "{origin}/lamp"}, {"romancyinstanceid": "one", "tenant": "t-1"}
    live.send("it's", "order.placed", data=data, subject="s-1", **more)
    look.context.grant_permissions(["clipboard-read", "clipboard-write"])
    look.goto("/viewer/event?source=bank&id=it%27s")
    look.get_by_role("button", name="Copy as curl").click()
    expect(look.locator(".toast")).to_have_text("Copied")
    command = look.evaluate("navigator.clipboard.readText()").replace('"id": "it', '"id": "again')
    curl, _, method, url, _, header, _, body = shlex.split(command)
    assert (curl, method, url) == ("curl", "POST", f"{live.url}/")
    assert json.loads(body)["data"] == data
    assert json.loads(body).items() >= more.items()  # without the instance, it would be for all
    answer = live.client.post("/", content=body, headers=[tuple(header.split(": "))])
    assert answer.json()["status"] == "accepted"
    assert not answer.json().get("duplicate")


def test_the_pages_say_who_did_it(serve: Callable[..., Live], browser: Browser) -> None:
    live = serve(tokens=["alice=" + "s" * 40])
    live.client.headers["authorization"] = f"Bearer {'s' * 40}"
    live.start("approval", "ann", id="approve")
    live.until("approve", "waiting_for_event")
    assert live.send("e", "approved", subject="bob").status_code == 202
    for look in visiting(browser, live):
        look.goto("/viewer/instances/approve")
        log_in(look, "s" * 40)
        expect(look.locator("[data-live-part=who]")).to_contain_text("alice")
        look.locator("[data-act=cancel]").click()
        look.locator("#cancel button[value=cancel]").click()
        expect(look.locator("[data-live-part=who] dt").first).to_have_text("cancel")
        among = look.locator(".history li:has(+ li .cancel_requested)")
        expect(among).to_contain_text(re.compile(r"cancel\s*by alice"))
        look.goto("/viewer/events")
        expect(look.locator("tbody tr").first).to_contain_text("by alice")
