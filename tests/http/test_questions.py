"""Questions to people over HTTP, with the clients and on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from click.testing import CliRunner
from pydantic import AfterValidator, TypeAdapter

from romancy import Client, InstanceNotFound, InvalidInput, QuestionRecord, WorkflowContext, ask, workflow
from romancy.cli.group import main
from romancy.sync import Client as SyncClient
from tests.helpers import eventually
from tests.http.conftest import Live, assert_error

Serve = Callable[..., Live]


@dataclass
class Approval:
    approved: bool
    note: str = ""


@workflow
async def refund(ctx: WorkflowContext, amount: int) -> list[Any]:
    text, people = f"Order {amount}.\nIt was lost.", ["ann", "bob"]
    question = await ask(ctx, Approval, title=f"Refund {amount}?", text=text, people=people, expires_in=3600)
    answer = await question.answer()
    return [answer.data.approved, answer.data.note, answer.by]


def must_be_short(note: str) -> str:
    if len(note) > 10:
        raise ValueError("at most 10 characters")
    return note


@dataclass
class Ballot:
    approved: bool
    note: Annotated[str, AfterValidator(must_be_short)] = ""


@workflow
async def merge(ctx: WorkflowContext) -> bool:
    people = ["ann", "bob", "cy"]
    vote = await ask(ctx, Ballot, title="Merge?", people=people, agrees=lambda b: b.approved, needed=2, refusals=2)
    return (await vote.decision()).agreed


@pytest.fixture
def live(serve: Serve) -> Live:
    live = serve(workflows=[refund])
    live.start("refund", 7, id="order-7")
    eventually(lambda: bool(live.client.get("/api/questions").json()["items"]), 20)
    return live


def test_over_http(live: Live) -> None:
    http = live.client
    [item] = http.get("/api/questions").json()["items"]
    asked_at, expires_at = item.pop("asked_at"), item.pop("expires_at")
    assert asked_at < expires_at
    assert item == {
        "instance_id": "order-7",
        "workflow": "refund",
        "ask_id": "ask:1",
        "title": "Refund 7?",
        "text": "Order 7.\nIt was lost.",
        "people": ["ann", "bob"],
        "schema": TypeAdapter(Approval).json_schema(),
        "needed": None,
        "answered": [],
    }
    answer = "/api/instances/order-7/answer"
    assert_error(http.post("/api/instances/none/answer", json={"person": "ann", "data": 1}), 404, "InstanceNotFound")
    refused = assert_error(http.post(answer, json={"person": "cy", "data": {"approved": True}}), 400, "InvalidInput")
    assert "it has no open question to 'cy'; it has asked ann, bob" in refused["error"]
    assert_error(http.post(answer, json={"person": "ann"}), 400)
    assert_error(http.post(answer, json={"person": "ann", "data": True, "by": ""}), 400)
    done = http.post(answer, json={"person": "ann", "data": {"approved": True}, "by": "ann, in Slack"})
    assert (done.status_code, done.json()) == (200, {"instance_id": "order-7"})
    assert live.result("order-7")["output"] == [True, "", "ann, in Slack"]
    late = assert_error(http.post(answer, json={"person": "bob", "data": {"approved": False}}), 400, "InvalidInput")
    assert "'bob' can't answer 'Refund 7?': it is closed" in late["error"]
    assert http.get("/api/questions").json() == {"items": [], "cursor": None}


def test_an_answer_of_the_wrong_shape_is_refused(live: Live) -> None:
    for data, says in (({"yes": True}, "approved is missing"), ({"approved": "perhaps"}, "must be true or false")):
        answer = live.client.post("/api/instances/order-7/answer", json={"person": "ann", "data": data})
        assert says in assert_error(answer, 400, "InvalidInput")["error"]
    assert "An answer is {approved: true|false, note?: text}" in answer.json()["error"]
    assert live.client.get("/api/events", params={"type": "romancy.answered"}).json()["items"] == []
    live.client.post("/api/instances/order-7/answer", json={"person": "bob", "data": {"approved": False}})
    assert live.result("order-7")["output"] == [False, "", "bob"]


async def test_the_client_sees_what_the_app_sees(live: Live) -> None:
    async with Client(live.url) as client:
        page = await client.list_questions()
        assert isinstance(page.items[0], QuestionRecord)
        assert list(page.items) == list(live.on_loop(lambda: live.app.list_questions()).items)
        with pytest.raises(InvalidInput, match="no open question to 'cy'"):
            await client.answer_question("order-7", "cy", Approval(True))
        with pytest.raises(InstanceNotFound):
            await client.answer_question("none", "ann", Approval(True))
        await client.answer_question("order-7", "ann", Approval(True, "ok"), ask_id="ask:1")
        assert await client.handle("order-7").result(20) == [True, "ok", "ann"]


def test_blocking(live: Live) -> None:
    with SyncClient(live.url) as client:
        assert client.list_questions().items[0].title == "Refund 7?"
        client.answer_question("order-7", "bob", {"approved": False})
        assert client.handle("order-7").result(20) == [False, "", "bob"]


def test_the_commands(live: Live) -> None:
    def call(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, [*words, "--url", live.url])
        assert done.exit_code == code, done.output
        return done.output

    assert "Refund 7?  Order 7. It was lost.  {approved: true|false, note?: text}  ann, bob" in call("questions")
    why = call("why", "order-7")
    assert re.search(r"question ask:1\nfor +ann or bob to answer 'Refund 7\?'\ntext +Order 7\. It was lost\.\n", why)
    assert "`romancy answer order-7 ann DATA --ask-id ask:1` answers in place of ann" in why
    assert "nearest" not in why
    assert json.loads(call("why", "order-7", "--json"))["waits"][0]["question"]["title"] == "Refund 7?"
    assert json.loads(call("questions", "--json"))["items"][0]["people"] == ["ann", "bob"]
    assert "is not JSON" in call("answer", "order-7", "ann", "yes", code=2)
    assert "no open question to 'cy'" in call("answer", "order-7", "cy", "true", code=1)
    assert "approved is missing" in call("answer", "order-7", "ann", "{}", code=1)
    call("answer", "order-7", "ann", '{"approved": true}')
    assert live.result("order-7")["output"] == [True, "", "an operator, for ann"]
    assert "no workflow waits for an answer" in call("questions")


def test_of_a_vote_it_is_shown_who_has_answered(serve: Serve) -> None:
    live = serve(workflows=[merge])
    live.start("merge", id="m-1")
    http = live.client

    def item() -> dict[str, Any]:
        return next(iter(http.get("/api/questions").json()["items"]), {"answered": "nothing is asked"})

    def call(*words: str) -> str:
        done = CliRunner().invoke(main, [*words, "--url", live.url])
        assert done.exit_code == 0, done.output
        return done.output

    eventually(lambda: item()["answered"] == [], 20)
    assert item()["needed"] == 2
    assert re.search(r"for +2 of ann, bob, cy to agree to 'Merge\?'\nanswer ", call("why", "m-1"))
    refused = {"approved": True, "note": "much too long"}
    http.post("/api/instances/m-1/answer", json={"person": "bob", "data": refused})
    http.post("/api/instances/m-1/answer", json={"person": "ann", "data": {"approved": True}})
    eventually(lambda: item()["answered"] == ["ann"], 20)  # that of bob was refused by the workflow
    with SyncClient(live.url) as client:
        assert client.list_questions().items[0].answered == ("ann",)
        assert list(client.list_questions().items) == list(live.on_loop(lambda: live.app.list_questions()).items)
    assert "2 of ann, bob, cy; answered: ann" in call("questions")
    why = call("why", "m-1")
    assert re.search(r"\nanswered +ann\n", why)
    assert "`romancy answer m-1 bob DATA --ask-id ask:1` answers in place of bob" in why
    assert "answered: <bdi>ann</bdi>" in http.get("/viewer/approvals").text
    http.post("/api/instances/m-1/answer", json={"person": "bob", "data": {"approved": True}})
    assert live.result("m-1")["output"] is True
