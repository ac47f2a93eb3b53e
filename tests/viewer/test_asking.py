"""The page on which people answer: what it shows, what decides, and what strangers and machines can't do."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Literal

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect
from pydantic import BaseModel, field_validator

from romancy import ActivityContext, Invitation, WorkflowContext, activity, ask, workflow
from romancy.core.tickets import SigningKeys, Ticket
from romancy.viewer import question_page
from tests.http.conftest import Live
from tests.viewer.conftest import shot, visiting
from tests.viewer.test_security import EVIL, RTL

KEY = "a key of at least thirty-two characters"
FORM = {"content-type": "application/x-www-form-urlencoded"}
Serve = Callable[..., Live]
links: dict[str, str] = {}


@dataclass
class Address:
    street: str
    number: int


@dataclass
class Claim:
    approved: bool
    amount: Decimal
    reason: Literal["damaged", "late"]
    on: date
    to: Address
    note: str = ""


@activity
async def deliver(ctx: ActivityContext, invitation: Invitation) -> None:
    links[invitation.person] = invitation.url(ctx)


@workflow
async def claim(ctx: WorkflowContext, title: str = "A claim", text: str = "Please decide.") -> str:
    """Asks two people."""
    people = ["ann@x.org", "bob@x.org"]
    question = await ask(ctx, Claim, title=title, text=text, people=people, expires_in=timedelta(days=3))
    for invitation in question.invitations.values():
        await deliver(ctx, invitation)
    answer = await question.answer()
    return f"{answer.by}: {answer.data.approved} {answer.data.amount} {answer.data.to.street}"


@workflow
async def quick(ctx: WorkflowContext, seconds: float) -> bool:
    """Asks for a moment."""
    question = await ask(ctx, bool, title="Now?", people=["ann@x.org"], expires_in=seconds)
    await deliver(ctx, question.invitations["ann@x.org"])
    return (await question.answer()).data


GOOD = {
    "approved": "true",
    "amount": "12.50",
    "reason": '"late"',
    "on": "2026-01-31",
    "to.street": "Main",
    "to.number": "7",
}


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "romancy")  # whatever tests before this one have set


@pytest.fixture
def live(serve: Serve) -> Live:
    links.clear()
    return serve(workflows=[claim, quick], public_url="https://shop.example", signing_keys=[KEY], tokens=["t" * 20])


def asked(live: Live, *args: Any, name: str = "claim") -> str:
    headers = {"authorization": f"Bearer {'t' * 20}"}
    body = {"args": args}
    id: str = live.client.post(f"/api/workflows/{name}/start", json=body, headers=headers).json()["instance_id"]
    wait_for_links(2 if name == "claim" else 1)
    return id


def wait_for_links(number: int) -> None:
    deadline = time.monotonic() + 20
    while len(links) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def path(person: str = "ann@x.org") -> str:
    return links[person].removeprefix("https://shop.example")


def result(live: Live, id: str) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {'t' * 20}"}
    return live.client.get(f"/api/instances/{id}/result", params={"timeout": 20}, headers=headers).json()


# --- showing and deciding --------------------------------------------------------------------------------------------
def test_looking_decides_nothing_and_answering_does(live: Live) -> None:
    id = asked(live)
    for _ in range(3):
        assert live.client.get(path()).status_code == 200
        assert live.client.head(path()).status_code == 200
    page = live.client.get(path()).text
    assert "A claim" in page
    assert "You answer as <strong>ann@x.org</strong>" in page
    assert "checked" not in page, "nothing is preselected"
    answer = live.client.post(path(), data=GOOD)
    assert answer.status_code == 303
    assert result(live, id)["output"] == "ann@x.org: True 12.50 Main"
    assert "Your answer is recorded" in live.client.get(path()).text
    again = live.client.post(path(), data={**GOOD, "approved": "false"})
    assert "The first answer counts" in again.text
    closed = live.client.get(path("bob@x.org"))
    assert (closed.status_code, "This question is closed" in closed.text) == (409, True)
    assert live.client.post(path("bob@x.org"), data=GOOD).status_code == 409


def test_what_is_wrong_is_said_at_its_field_and_nothing_is_lost(live: Live) -> None:
    asked(live)
    answer = live.client.post(path(), data={**GOOD, "amount": "4.000,00", "to.number": ""})
    assert answer.status_code == 422
    assert "without separators" in answer.text
    assert "This is needed." in answer.text
    assert 'value="4.000,00"' in answer.text
    assert re.search(r'value="&#34;late&#34;"[^>]* checked', answer.text)
    assert live.client.post(path(), data=GOOD).status_code == 303


def test_a_question_expires(live: Live) -> None:
    asked(live, 1.2, name="quick")
    assert live.client.get(path()).status_code == 200
    deadline = time.monotonic() + 20
    while (answer := live.client.get(path())).status_code != 410:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "too late" in answer.text
    assert live.client.post(path(), data={"value": "true"}).status_code == 410


def test_two_answers_of_one_person_at_the_same_time(live: Live) -> None:
    """Whatever the order, one of them counts, and the other one is told so."""
    import threading

    id = asked(live)
    told: list[str] = []

    def send(approved: str) -> None:
        with httpx2.Client(base_url=live.url, timeout=30) as client:
            answer = client.post(path(), data={**GOOD, "approved": approved})
            told.append("stored" if answer.status_code == 303 else "first" if "first answer" in answer.text else "?")

    threads = [threading.Thread(target=send, args=(approved,)) for approved in ("true", "false")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == ["first", "stored"]
    assert result(live, id)["status"] == "completed"


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def _is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("only even numbers")
        return number


@workflow
async def even(ctx: WorkflowContext) -> int:
    """Refuses odd numbers."""
    question = await ask(ctx, Even, title="Which one?", people=["ann@x.org"])
    await deliver(ctx, question.invitations["ann@x.org"])
    return (await question.answer()).data.number


def eventually(live: Live, text: str) -> httpx2.Response:
    deadline = time.monotonic() + 20
    while text not in (answer := live.client.get(path())).text:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.05)
    return answer


def test_refused_answers(serve: Serve) -> None:
    links.clear()
    live = serve(workflows=[even], public_url="https://shop.example", signing_keys=[KEY])
    id = live.start("even")
    wait_for_links(1)
    for number in range(1, 6):
        assert live.client.post(path(), data={"number": f"{number}1"}).status_code == 303
        if number < 5:
            eventually(live, "could not be used: number: only even numbers. Please answer again")
    page = eventually(live, "could not be used: number: only even numbers. No more answers are taken with this link.")
    assert page.status_code == 409
    assert live.client.post(path(), data={"number": "2"}).status_code == 409
    listed = live.client.get("/viewer/approvals").text
    link = re.search(r'href="(/viewer/approvals/[^"]+)"', listed)
    assert link is not None
    there = link[1].replace("&amp;", "&")
    assert "ann@x.org" in live.client.get(there).text
    answer = live.client.post(there, data={"number": "2", "(person)": "0"}, headers={"origin": live.url})
    assert answer.status_code == 303
    assert live.result(id)["output"] == 2


# --- strangers -------------------------------------------------------------------------------------------------------
def test_forged_and_unknown_links_look_alike(live: Live) -> None:
    asked(live)
    good = path()
    forged = [
        good[:-1] + ("A" if good[-1] != "A" else "B"),
        "/ask/x",
        f"/ask/{'A' * 76}",
        "/ask/%00",
        "/ask/../viewer/",
    ]
    texts = set[str]()
    for link in forged:
        answer = live.client.get(link)
        assert answer.status_code in (401, 404), link
        if answer.status_code == 404:
            texts.add(re.sub(r'action="[^"]*"', "", answer.text))
        assert live.client.post(link, data=GOOD).status_code in (401, 404, 405), link
    assert len(texts) == 1


def test_the_page_works_behind_a_proxy_that_removes_a_part_of_the_path(live: Live) -> None:
    """Everything it refers to is relative to the address that the browser sees."""
    asked(live)
    page = live.client.get(path()).text
    assert not re.search(r'(href|action|src)="/', page)
    [style] = re.findall(r'href="(\.\./[^"]*ask\.css)"', page)
    assert live.client.get(f"/ask/{style}").status_code == 200
    answered = live.client.post(path(), data=GOOD)
    assert (answered.status_code, answered.headers["location"]) == (303, path().removeprefix("/ask/"))


def test_a_link_of_another_key_is_logged(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    foreign = SigningKeys(["another key of thirty-two characters"]).sign(Ticket("i", "1.a", 0))
    question_page._throttle._next = 0
    assert live.client.get(f"/ask/{foreign}").status_code == 404
    assert "signed with an unknown key; all processes need the same ones" in caplog.text
    assert foreign not in caplog.text


def test_the_link_is_in_no_log_and_no_answer_of_the_api(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        id = asked(live)
        ticket = path().rpartition("/")[2]
        live.client.get(path())
        live.client.post(path(), data={**GOOD, "amount": "x"})
        live.client.post(path(), content=b"x" * 300_000, headers=FORM)
        live.client.post(path(), json=GOOD)
        live.client.post(path(), content=b"\xff", headers=FORM)
        live.client.post(path(), data=GOOD)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("romancy")]
    assert ticket not in "\n".join(ours)
    headers = {"authorization": f"Bearer {'t' * 20}"}
    for place in (f"/api/instances/{id}", f"/api/instances/{id}/history", "/api/events", "/api/waits"):
        assert ticket not in live.client.get(place, headers=headers).text


def test_odd_answers(live: Live) -> None:
    asked(live)
    assert live.client.post(path(), json=GOOD).status_code == 415
    assert live.client.post(path(), content=b"x" * 300_000, headers=FORM).status_code == 413
    assert live.client.post(path(), content=b"\xff", headers=FORM).status_code == 400
    assert live.client.post(path(), content=b"&".join(b"a=1" for _ in range(1000)), headers=FORM).status_code == 400
    assert live.client.post(path(), content=b"", headers=FORM).status_code == 422
    assert live.client.put(path()).status_code in (401, 405)


def test_pages_can_not_be_framed_kept_or_found(live: Live) -> None:
    asked(live)
    headers = live.client.get(path()).headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["x-robots-tag"] == "noindex, nofollow"


def test_a_server_that_stops_takes_no_answers(live: Live) -> None:
    asked(live)
    live.drain()
    assert live.client.post(path(), data=GOOD).status_code == 503


# --- in a browser ----------------------------------------------------------------------------------------------------
@pytest.fixture(params=[True, False], ids=["script", "no script"])
def look(browser: Browser, live: Live, request: pytest.FixtureRequest) -> Iterator[Page]:
    for page in visiting(browser, live, java_script_enabled=request.param):
        yield page
        complaints: list[str] = page.complaints  # type: ignore[attr-defined]
        complaints[:] = [text for text in complaints if "status of 422" not in text]


def test_a_person_answers(look: Page, live: Live) -> None:
    id = asked(live)
    look.goto(path())
    shot(look, "ask")
    look.get_by_label("Yes").check()
    look.get_by_label("Amount").fill("12,50")
    look.get_by_label("late").check()
    look.get_by_label("On", exact=True).fill("2026-01-31")
    look.get_by_label("Street").fill("Main")
    look.get_by_label("Number", exact=True).fill("7")
    look.get_by_role("button", name="Send answer").click()
    expect(look.get_by_text("without separators")).to_be_visible()
    shot(look, "ask-wrong")
    look.get_by_label("Amount").fill("12.50")
    look.get_by_role("button", name="Send answer").click()
    expect(look.get_by_text("Your answer is recorded")).to_be_visible()
    shot(look, "ask-thanks")
    assert result(live, id)["output"] == "ann@x.org: True 12.50 Main"


def test_what_a_workflow_asks_is_shown_and_never_run(look: Page, live: Live) -> None:
    asked(live, EVIL[:200], EVIL + RTL)
    look.goto(path())
    expect(look.get_by_role("heading", level=1)).to_contain_text("<script>alert(1)</script>")
    assert look.locator("main img, main script").count() == 0


def test_on_a_phone_in_the_dark(browser: Browser, live: Live) -> None:
    asked(live)
    for page in visiting(browser, live, color_scheme="dark"):
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(path())
        shot(page, "ask-390-dark")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# --- operators -------------------------------------------------------------------------------------------------------
def test_an_operator_answers_in_place_of_a_person(serve: Serve, browser: Browser) -> None:
    links.clear()
    live = serve(workflows=[claim, quick], public_url="https://shop.example", signing_keys=[KEY])
    id = live.start("claim", "Refund ORD-1?")
    for page in visiting(browser, live):
        page.goto("/viewer/approvals")
        shot(page, "approvals")
        expect(page.get_by_role("link", name="Refund ORD-1?")).to_be_visible()
        page.goto(f"/viewer/instances/{id}")
        expect(page.locator("#now .question")).to_contain_text("Refund ORD-1?")
        page.get_by_role("link", name="Answer…").click()
        shot(page, "approval")
        page.get_by_label("bob@x.org").check()
        page.get_by_label("No", exact=True).check()
        page.get_by_label("Amount").fill("1")
        page.get_by_label("late").check()
        page.get_by_label("On", exact=True).fill("2026-01-31")
        page.get_by_label("Street").fill("Main")
        page.get_by_label("Number", exact=True).fill("7")
        page.get_by_role("button", name="Answer").click()
        expect(page).to_have_url(re.compile(f"/viewer/instances/{id}$"))
        expect(page.get_by_text("an operator, for bob@x.org").first).to_be_visible()
    assert live.result(id)["output"] == "an operator, for bob@x.org: False 1 Main"


def test_who_may_only_read_can_not_answer(live: Live, serve: Serve) -> None:
    id = asked(live)
    reader = serve(
        workflows=[claim], tokens=[f"read:{'r' * 20}"], signing_keys=[KEY], public_url="https://shop.example"
    )
    headers = {"authorization": f"Bearer {'r' * 20}"}
    listed = reader.client.get("/viewer/approvals", headers=headers)
    assert "A claim" in listed.text
    link = re.search(r'href="(/viewer/approvals/[^"]+)"', listed.text)
    assert link is not None
    there = link[1].replace("&amp;", "&")
    assert "Answer</button>" not in reader.client.get(there, headers=headers).text
    refused = reader.client.post(there, data={**GOOD, "(person)": "0"}, headers=headers)
    assert refused.status_code == 403
    assert id
