"""What visitors do: start, send, cancel, resume; with the keys they have."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect

from romancy import ReceivedEvent, WorkflowContext, workflow
from tests.http.conftest import Live
from tests.viewer.conftest import CODE, Paid, log_in, shot, visiting


def test_start_from_a_form_made_of_the_signature(live: Live, look: Page) -> None:
    look.goto("/viewer/workflows")
    look.locator("tr", has_text="Buys something").get_by_role("link", name="Start").click()
    look.get_by_label("sku", exact=True).fill("A-1")
    look.get_by_label("count", exact=True).fill("3")
    look.get_by_label("price", exact=True).fill("2.5")
    look.get_by_label("size", exact=True).select_option("large")
    look.get_by_label("street", exact=True).fill("<Main> & 'Side'")
    look.get_by_label("zip", exact=True).fill("012")
    look.get_by_role("button", name="Add to tags").click()
    look.get_by_role("button", name="Add to tags").click()
    look.get_by_label("tags 1", exact=True).fill("one")
    look.get_by_label("tags 2", exact=True).fill("two")
    look.get_by_label("gift", exact=True).check()
    look.get_by_label("when", exact=True).fill("2026-01-31")
    look.locator("#instance-id").fill("bought/1")
    shot(look, "start-form")
    look.get_by_role("button", name="Start", exact=True).click()
    expect(look.locator("h1")).to_have_text("bought/1")
    expect(look.locator(".head .badge")).to_have_text("completed")
    expect(look.locator("main")).to_contain_text("3 A-1 large to <Main> & 'Side' 2026-01-31 one,two")
    given = live.client.get("/api/instances/bought%2F1").json()["input"]["order"]
    assert (given["gift"], given["count"], given["price"], given["to"]["floor"]) == (True, 3, 2.5, None)


def test_a_form_says_which_field_is_wrong(live: Live, look: Page) -> None:
    look.goto("/viewer/start/buy")
    look.get_by_label("sku", exact=True).fill("A")
    look.get_by_label("count", exact=True).fill("three")
    look.get_by_role("button", name="Start", exact=True).click()
    expect(look.locator("#problem")).to_have_text("count: must be a whole number")
    expect(look.locator(".field.bad")).to_have_count(1)
    look.goto("/viewer/start/echo")
    look.locator("textarea").fill("{nope")
    look.get_by_role("button", name="Start", exact=True).click()
    expect(look.locator("#problem")).to_contain_text("not valid JSON")
    assert live.client.get("/api/instances").json()["items"] == []


def test_send_what_a_wait_wants(live: Live, look: Page) -> None:
    live.start("payment", "ORD-1", id="order-1")
    live.until("order-1", "waiting_for_event")
    look.goto("/viewer/instances/order-1")
    look.get_by_role("link", name="send a matching event").click()
    expect(look.locator("[name=type]")).to_have_value("payment.completed")
    expect(look.locator("[name=data]")).to_have_value('{\n  "order": {\n    "id": "ORD-1"\n  }\n}')
    look.locator("[name=data]").fill('{"order": ')
    look.get_by_role("button", name="Send", exact=True).click()
    expect(look.locator("#problem")).to_contain_text("data is not valid JSON")
    look.locator("[name=data]").fill('{"order": {"id": "ORD-1"}, "by": "hand"}')
    look.get_by_role("button", name="Send", exact=True).click()
    expect(look.locator("#done")).to_have_text("Stored: delivered to 1 instance.")
    shot(look, "send-form")
    assert live.result("order-1")["output"]["data"]["by"] == "hand"


def test_send_an_unmatched_event_again(live: Live, look: Page) -> None:
    live.send("early", "approved", subject="ada", data="yes")
    live.start("approval", "ada", id="late")
    live.until("late", "waiting_for_event")
    look.goto("/viewer/events?show=unmatched")
    expect(look.locator("tr", has_text="early")).to_contain_text("arrived before the instance was started")
    look.get_by_role("link", name="early").click()
    look.get_by_role("link", name="Send again").click()
    look.get_by_role("button", name="Send", exact=True).click()
    expect(look.locator("#done")).to_have_text("Stored: delivered to 1 instance.")
    assert live.result("late")["output"] == "yes"


def test_cancel_with_a_reason_and_a_confirmation(live: Live, look: Page) -> None:
    live.start("reminder", id="nap")
    live.until("nap", "waiting_for_timer")
    look.goto("/viewer/instances/nap")
    look.get_by_role("button", name="Cancel…").click()
    look.get_by_role("button", name="Keep it running").click()
    assert live.client.get("/api/instances/nap").json()["status"] == "waiting_for_timer"
    look.get_by_role("button", name="Cancel…").click()
    look.get_by_label("reason").fill("not needed")
    shot(look, "cancel-dialog")
    look.get_by_role("button", name="Cancel the instance").click()
    expect(look.locator(".head .badge")).to_have_text("cancelled")
    expect(look.locator(".history")).to_contain_text("cancel requested")
    look.locator("summary.entry", has_text="cancel requested").click()
    expect(look.locator(".history")).to_contain_text("not needed")


def test_resume_what_is_blocked(blocked: Live, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    for look in visiting(browser, blocked):
        look.goto("/viewer/instances/f")
        expect(look.locator("section.alarm")).to_contain_text("Blocked")
        shot(look, "instance-blocked")
        monkeypatch.setitem(CODE, "version", 1)
        expect(look.locator("#live")).to_have_text("live")
        look.get_by_role("button", name="Resume").click()
        expect(look.locator(".head .badge")).to_have_text("completed")
        expect(look.locator("section.alarm")).to_have_count(0)


def test_a_token_that_only_reads_can_only_look(serve: Callable[..., Live], browser: Browser) -> None:
    live = serve(tokens=["read:looker", "all-of-it"])
    live.client.headers["authorization"] = "Bearer all-of-it"
    live.start("reminder", id="nap")
    for look in visiting(browser, live):
        look.goto("/viewer/instances/nap")
        expect(look.locator("h1")).to_have_text("Log in")
        shot(look, "login")
        look.get_by_label("Token").fill("wrong")
        look.get_by_role("button", name="Log in").click()
        expect(look.locator(".problem")).to_contain_text("Unknown token")
        look.complaints.clear()  # type: ignore[attr-defined] - the browser notes the 401
        look.get_by_label("Token").fill("looker")
        look.get_by_role("button", name="Log in").click()
        expect(look.locator("h1")).to_have_text("nap")
        expect(look.get_by_role("button", name="Cancel…")).to_be_disabled()
        expect(look.get_by_role("button", name="Cancel…")).to_have_attribute(
            "title", 'Your token can\'t cancel instances: it lacks the scope "control"'
        )
        expect(look.locator("#live")).to_have_text("live")
        assert "looker" not in look.content()
        assert "looker" not in look.url
        assert look.evaluate("document.cookie") == ""
        status = look.evaluate("fetch('/cancel/nap', {method: 'POST'}).then(a => a.status)")
        assert status == 403
        look.complaints.clear()  # type: ignore[attr-defined] - the browser notes the 403
        look.goto("/viewer/send")
        expect(look.get_by_role("button", name="Send", exact=True)).to_be_disabled()
        look.get_by_role("button", name="Log out").click()
        expect(look.locator("h1")).to_have_text("Log in")
        look.goto("/viewer/instances")
        expect(look.locator("h1")).to_have_text("Log in")


def test_a_token_for_everything_may_act(serve: Callable[..., Live], browser: Browser) -> None:
    live = serve(tokens=["all-of-it;,=\u00e4"])
    live.on_loop(lambda: live.app.start_workflow("reminder", instance_id="nap"))
    for look in visiting(browser, live):
        look.goto("/viewer/instances/nap")
        log_in(look, "all-of-it;,=\u00e4")
        look.get_by_role("button", name="Cancel…").click()
        look.get_by_role("button", name="Cancel the instance").click()
        expect(look.locator(".head .badge")).to_have_text("cancelled")


# --- an event for a model -------------------------------------------------------------------------------------------
FILLED = {"amount": 0, "currency": "", "by": {"street": "", "zip": ""}, "number": 7}


def test_what_a_wait_with_a_model_wants_is_filled_in(live: Live, look: Page) -> None:
    live.start("invoice", 7, id="i")
    live.until("i", "waiting_for_event")
    look.goto("/viewer/instances/i")
    look.get_by_role("link", name="send a matching event").click()
    assert json.loads(look.locator("[name=data]").input_value()) == FILLED
    expect(look.locator("main")).to_contain_text("required fields of its model")
    look.locator("[name=data]").fill(json.dumps({**FILLED, "amount": 9.5}))
    look.locator("[name=id]").fill("pay-1")
    look.locator("[name=to]").fill("i")
    look.get_by_role("button", name="Send", exact=True).click()
    expect(look.locator("#done")).to_have_text("Stored: delivered to 1 instance.")
    expect(look.locator("#done")).not_to_have_class(re.compile("warn"))
    assert live.result("i")["output"] == 9.5
    [event] = live.client.get("/api/events").json()["items"]
    assert (event["id"], event["to"]) == ("pay-1", "i")


def test_what_does_not_fit_is_a_warning_with_the_reason(live: Live, look: Page) -> None:
    live.start("invoice", 7, id="i")
    live.until("i", "waiting_for_event")
    look.goto("/viewer/send?type=invoice.paid")
    look.locator("[name=data]").fill('{"number": 7, "amount": "much"}')
    look.get_by_role("button", name="Send", exact=True).click()
    expect(look.locator("#done")).to_contain_text("did not fit the model of 1")
    expect(look.locator("#done")).to_have_class(re.compile("warn"))
    expect(look.locator("#misfits")).to_contain_text("does not fit Paid: ")
    shot(look, "send-misfit")
    look.locator("#misfits").get_by_role("link", name="i", exact=True).click()
    expect(look.locator("h1")).to_have_text("i")


def test_an_event_sent_again_with_its_id_is_a_duplicate(live: Live, look: Page) -> None:
    live.send("e", "nobody.waits", data=1)
    look.goto("/viewer/send?type=nobody.waits")
    look.locator("[name=source]").fill("bank")
    look.locator("[name=id]").fill("e")
    look.locator("[name=data]").fill("1")
    look.get_by_role("button", name="Send", exact=True).click()
    expect(look.locator("#done")).to_contain_text("Already stored")


def test_what_starts_a_workflow_is_filled_in(serve: Callable[..., Live]) -> None:
    @workflow(on_event="invoice.made")
    async def made(ctx: WorkflowContext, event: ReceivedEvent[Paid]) -> None: ...

    live = serve(workflows=[made])
    text = html.unescape(live.client.get("/viewer/send?type=invoice.made").text)
    assert '"currency": ""' in text


def test_resuming_what_is_still_broken_says_so(blocked: Live, browser: Browser) -> None:
    for look in visiting(browser, blocked):
        look.goto("/viewer/instances/f")
        expect(look.locator("#live")).to_have_text("live")
        look.get_by_role("button", name="Resume").click()
        expect(look.locator(".toast")).to_contain_text("Resumed, but it is blocked again: ")
        expect(look.locator(".toast")).to_contain_text("charge:1")
