"""Who did it, over HTTP: names of tokens, what they may send, and where the names are shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from romancy import Client, Token, Webhook, WebhookRequest, WorkflowContext, ask, workflow
from romancy import Event as NewEvent
from romancy.cli.group import main
from tests.helpers import eventually
from tests.http.conftest import BATCH, CE, WORKFLOWS, Live, assert_error, event

Serve = Callable[..., Live]
ALICE, BOB, BANK = "secret-of-alice-0001", "secret-of-bob-000001", "secret-of-bank-00001"


@dataclass
class Approval:
    approved: bool


@workflow
async def refund(ctx: WorkflowContext) -> str:
    question = await ask(ctx, Approval, title="Refund?", people=["ann", "bo"])
    return (await question.answer()).by


def accept(request: WebhookRequest) -> bool:
    return True


def to_event(request: WebhookRequest) -> NewEvent:
    return NewEvent("acme.made", "acme", id="w")


@pytest.fixture
def live(serve: Serve) -> Live:
    tokens = [Token("alice", ALICE), f"bob={BOB}", f"bank=events[source=bank,type=payment.*|paid]:{BANK}", "nobody"]
    webhooks = [Webhook("acme", verify=accept, to_event=to_event)]
    return serve(tokens=tokens, webhooks=webhooks, workflows=[*WORKFLOWS, refund])


def by(live: Live, secret: str) -> httpx2.Client:
    return httpx2.Client(base_url=live.url, headers={"authorization": f"Bearer {secret}"}, timeout=30)


def start(http: httpx2.Client, id: str, name: str = "nap") -> None:
    assert http.post(f"/api/workflows/{name}/start", json={"instance_id": id}).status_code in (200, 201)


def acts(http: httpx2.Client, id: str) -> list[tuple[str, str]]:
    return [(act["verb"], act["who"]) for act in http.get(f"/api/instances/{id}").json()["acts"]]


def test_the_verbs(live: Live) -> None:
    with by(live, ALICE) as alice, by(live, BOB) as bob, by(live, "nobody") as nobody:
        start(alice, "a")
        start(bob, "a")  # it is there
        start(nobody, "n")
        assert bob.post("/cancel/a", json={}).status_code == 200
        eventually(lambda: alice.get("/api/instances/a").json()["status"] == "cancelled", 20)
        assert_error(alice.post("/cancel/a", json={}), 409)
        assert alice.post("/api/instances/a/retry", json={}).status_code == 200
        assert bob.post("/api/instances/a/fork", json={"new_id": "copy"}).status_code == 201
        many = bob.post("/api/instances/cancel", json={"workflow": "nap"}).json()
        assert many["changed"] == 3
        assert acts(bob, "a") == [("start", "alice"), ("cancel", "bob"), ("retry", "alice"), ("cancel", "bob")]
        assert acts(bob, "copy") == [("fork", "bob"), ("cancel", "bob")]
        assert acts(bob, "n") == [("cancel", "bob")]
        with by(live, f"bob={BOB}") as whole:
            start(whole, "w")  # as before tokens had names
            assert acts(whole, "w") == [("start", "bob")]


async def test_the_client_reads_them(live: Live) -> None:
    async with Client(live.url, token=ALICE) as client:
        await client.start_workflow("nap", instance_id="a")
        await client.send_event("paid", "bank", {"amount": 1}, id="1")
        read = await client.get_instance("a")
        assert [(act.verb, act.who, act.at) for act in read.acts] == [("start", "alice", read.started_at)]
        assert read.acts == live.on_loop(lambda: live.app.get_instance("a")).acts
        [record] = (await client.list_events()).items
        assert record.sent_by == "alice"


def test_who_sent_an_event(live: Live) -> None:
    with by(live, ALICE) as alice, by(live, "nobody") as nobody:
        for http, id in ((alice, "1"), (nobody, "2")):
            assert http.post("/", content=json.dumps(event(id)), headers=CE).status_code == 202
        assert alice.post("/", content=json.dumps([event("3"), event("4")]), headers=BATCH).status_code == 202
        assert alice.post("/webhooks/acme", json={}).status_code in (200, 202, 204)
        items = alice.get("/api/events").json()["items"]
    sent = {item["id"]: item["sent_by"] for item in items}
    assert sent == {"1": "alice", "2": None, "3": "alice", "4": "alice", "w": "webhook acme"}


def test_what_a_token_may_send(live: Live) -> None:
    def send(content: Any, headers: dict[str, str] = CE) -> httpx2.Response:
        with by(live, BANK) as bank:
            return bank.post("/", content=json.dumps(content), headers=headers)

    assert send(event("1", "paid")).status_code == 202
    assert send(event("2", "payment.made")).status_code == 202
    told = assert_error(send(event("3", "order.made")), 403, "Forbidden")["error"]
    assert "has the type 'order.made'" in told
    assert "only send events with source=bank and type=payment.*|paid" in told
    assert "the source 'shop'" in assert_error(send(event("4", "paid", source="shop")), 403)["error"]
    batch = [event("5", "paid"), event("6", "order.made"), event("7", "paid")]
    assert "event 2 of the batch, with the id '6'," in assert_error(send(batch, BATCH), 403)["error"]
    binary = {"ce-specversion": "1.0", "ce-id": "8", "ce-source": "shop", "ce-type": "paid"}
    assert_error(send({}, {**binary, "content-type": "application/json"}), 403)
    with by(live, BANK) as bank, by(live, ALICE) as alice:
        in_url = bank.post(f"/?access_token={BANK}", content=json.dumps(event("9", "x")), headers=CE)
        assert_error(in_url, 403)
        for path in ("/api/workflows/nap/start", "/cancel/x", "/api/instances/x/answer"):
            assert_error(bank.post(path, json={}), 403)
        assert_error(bank.get("/metrics"), 403)
        assert sorted(item["id"] for item in alice.get("/api/events").json()["items"]) == ["1", "2"]


def test_answers(live: Live) -> None:
    with by(live, ALICE) as alice:
        start(alice, "r", "refund")
        eventually(lambda: bool(alice.get("/api/questions").json()["items"]), 20)
        body = {"person": "ann", "data": {"approved": True}, "by": "ann, by chat"}
        assert alice.post("/api/instances/r/answer", json=body).status_code == 200
        assert alice.get("/api/instances/r/result", params={"timeout": 20}).json()["output"] == "ann, by chat"
        assert acts(alice, "r") == [("start", "alice"), ("answer", "alice")]


def test_an_operator_in_place_of_a_person(live: Live) -> None:
    with by(live, ALICE) as alice, by(live, "nobody") as nobody:
        for id, http, more, recorded in [
            ("r1", alice, {}, "alice, for ann"),
            ("r2", nobody, {}, "an operator, for ann"),
            ("r3", alice, {"by": "ann, by chat"}, "ann, by chat"),
        ]:
            start(alice, id, "refund")
            eventually(lambda: bool(alice.get("/api/questions").json()["items"]), 20)
            body = {"person": "ann", "data": {"approved": True}, "as_operator": True, **more}
            assert http.post(f"/api/instances/{id}/answer", json=body).status_code == 200
            assert alice.get(f"/api/instances/{id}/result", params={"timeout": 20}).json()["output"] == recorded


def test_the_command_answers_by_the_name_of_its_token(live: Live) -> None:
    with by(live, ALICE) as alice:
        for id, more, recorded in [("r1", [], "bob, for ann"), ("r2", ["--by", "ann, by phone"], "ann, by phone")]:
            start(alice, id, "refund")
            eventually(lambda: bool(alice.get("/api/questions").json()["items"]), 20)
            words = ["answer", id, "ann", '{"approved": true}', *more, "--url", live.url]
            done = CliRunner().invoke(main, words, env={"ROMANCY_TOKEN": BOB})
            assert done.exit_code == 0, done.output
            assert alice.get(f"/api/instances/{id}/result", params={"timeout": 20}).json()["output"] == recorded
            assert acts(alice, id) == [("start", "alice"), ("answer", "bob")]


def test_an_operator_who_is_logged_in(live: Live) -> None:
    with by(live, ALICE) as alice, httpx2.Client(base_url=live.url, timeout=30) as browser:
        start(alice, "r", "refund")
        eventually(lambda: bool(alice.get("/api/questions").json()["items"]), 20)
        own = {"origin": live.url, "sec-fetch-site": "same-origin"}
        assert browser.post("/viewer/login", data={"token": BOB}, headers=own).status_code == 303
        page = browser.get("/viewer/approvals").text
        path = page.split('href="/viewer/approvals/')[1].split('"')[0].replace("&amp;", "&")
        answer = browser.post(f"/viewer/approvals/{path}", data={"(person)": "1", "approved": "true"}, headers=own)
        assert answer.status_code == 303, answer.text
        assert alice.get("/api/instances/r/result", params={"timeout": 20}).json()["output"] == "bob, for bo"
        assert acts(alice, "r") == [("start", "alice"), ("answer", "bob")]


def test_the_command_line(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROMANCY_TOKEN", ALICE)
    monkeypatch.setattr("getpass.getuser", lambda: "carl")
    with by(live, ALICE) as alice, by(live, BOB) as bob:
        start(alice, "a")
        bob.post("/cancel/a", json={})
        shown = CliRunner().invoke(main, ["show", "a", "--url", live.url])
        assert "started by alice, cancelled by bob" in shown.output
        found = json.loads(CliRunner().invoke(main, ["show", "a", "--url", live.url, "--json"]).output)
        assert [(act["verb"], act["who"]) for act in found["acts"]] == [("start", "alice"), ("cancel", "bob")]
        database = ["--database", live.app.database]
        assert CliRunner().invoke(main, ["start", "nap", "--id", "b", *database]).exit_code == 0
        assert CliRunner().invoke(main, ["cancel", "b", *database]).exit_code == 0
        assert acts(alice, "b") == [("start", "carl (CLI)"), ("cancel", "carl (CLI)")]

        def nobody() -> str:
            raise OSError("no username set")

        monkeypatch.setattr("getpass.getuser", nobody)
        assert CliRunner().invoke(main, ["start", "nap", "--id", "c", *database]).exit_code == 0
        assert acts(alice, "c") == []
