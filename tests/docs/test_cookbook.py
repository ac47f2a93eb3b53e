"""The cookbook: each recipe prints what its page shows, and holds what the page says of crashes and duplicates."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import aiosqlite
import httpx2
import pytest

from romancy import App, ReceivedEvent
from romancy.testing import environment, replay
from tests.docs.test_docs import DOCS, Block, blocks, run

RECIPES = sorted(page for page in (DOCS / "cookbook").glob("*.md") if page.stem != "index")
PARTS = ["Why it is right", "Variations and pitfalls"]
DAY = timedelta(days=1)


def program(page: Path) -> Block:
    [block] = [block for block in blocks(page) if not block.is_fragment]
    return block


@pytest.fixture
def load() -> Iterator[Any]:
    """Load the program of a page as a module of its own."""
    loaded: list[str] = []

    def load(name: str) -> Any:
        module = ModuleType(f"recipe_{name.replace('-', '_')}")
        sys.modules[module.__name__] = module
        loaded.append(module.__name__)
        exec(compile(program(DOCS / "cookbook" / f"{name}.md").code, f"{name}.py", "exec"), vars(module))
        return module

    yield load
    for name in loaded:
        del sys.modules[name]


@pytest.mark.play
@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_the_program_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    run(program(page), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["block.py"], "a recipe leaves nothing behind"


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_page_has_all_its_parts(page: Path) -> None:
    text, block = page.read_text(encoding="utf-8"), program(page)
    assert block.output, "the output is shown"
    lines = [line for line in block.code.splitlines() if line.strip()]
    assert 30 <= len(lines) <= 70
    assert max(map(len, lines)) <= 120
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS
    assert re.search(r"^See \[.+\]\(\.\./[\w-]+\.md", text, re.MULTILINE), "it leads to the guide"
    problem = text.split("\n\n")[1]
    assert len(re.findall(r"[.?](?=\s|$)", problem)) == 2, "the problem has two sentences"


def test_the_index_lists_every_recipe() -> None:
    index = (DOCS / "cookbook" / "index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\|.*\]\(([\w-]+\.md)\) \|$", index, re.MULTILINE)) == [page.name for page in RECIPES]


# --- what the pages say of crashes, duplicates and late messages ------------------------------------------------------
@pytest.mark.play
async def test_stripe_early_twice_and_after_a_crash(load: Any) -> None:
    recipe = load("stripe-webhook")
    paid = {"data": {"object": {"id": "cs_tea", "amount_total": 4200}}}

    async with environment(workflows=[recipe.purchase]) as env:

        async def open_checkout(order: str, cents: int) -> dict[str, str]:
            await env.app.send_event(recipe.PAID, "/webhooks/stripe", paid, subject="cs_tea", id="evt_1")  # too early
            return {"id": "cs_tea", "url": "https://checkout.stripe.com/cs_tea"}

        env.replace(recipe.open_checkout, open_checkout)
        handle = await env.start(recipe.purchase, "tea", 4200)
        assert await handle.result() == "paid 4200"
        again = await env.send_event(recipe.PAID, "/webhooks/stripe", paid, subject="cs_tea", id="evt_1")
        assert again.duplicate
        await env.restart()
        assert replay(recipe.purchase, await env.app.get_history(handle.instance_id)) == "completed"
    assert recipe.shipped == ["tea"]


@pytest.mark.play
async def test_slack_repeats_only_the_reply(load: Any) -> None:
    recipe = load("slack-approval")
    answers = iter([200, 503, 200])  # the question, the reply, the reply again
    texts: list[str] = []

    def slack(request: httpx2.Request) -> httpx2.Response:
        texts.append(recipe.json.loads(request.content)["text"])
        return httpx2.Response(next(answers))

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(slack))
    options = {"public_url": recipe.HOME, "signing_keys": recipe.KEYS, "state": client}
    async with client, environment(workflows=[recipe.refund, recipe.on_click], **options) as env:
        recipe.app = env.app
        handle = await env.start(recipe.refund, "ORD-1")
        await env.restart()
        click = {
            "user": {"id": "U07"},
            "actions": [{"action_id": "Approve", "value": handle.instance_id}],
            "response_url": "https://hooks.slack.com/actions/T0/1",
        }
        await env.send_event("slack.block_actions", "/webhooks/slack", click, id="trigger-1")
        assert (await env.send_event("slack.block_actions", "/webhooks/slack", click, id="trigger-1")).duplicate
        await env.restart()
        await env.advance(2)
        assert await handle.result() == "ORD-1 is approved by Ann"
        late = recipe.pass_on.fn(None, click | {"user": {"id": "U08"}})
        assert await late == "This is already decided."
    assert texts == ["Refund ORD-1?", "Thank you, Ann.", "Thank you, Ann."]


@pytest.mark.play
async def test_quorum_ends_after_a_week(load: Any) -> None:
    recipe = load("quorum")
    mails: list[tuple[str, str]] = []
    async with environment(workflows=[recipe.resolution]) as env:
        env.replace(recipe.send_mail, lambda subject, invitation: mails.append((invitation.person, subject)))
        handle = await env.start(recipe.resolution, "Move")
        await env.answer(handle, "eve", recipe.Ballot(agree=True))
        for _ in range(6):
            await env.restart()
            await env.advance(DAY)
        assert await handle.status() == "waiting_for_event"
        await env.advance(DAY)
        assert await handle.status() == "completed"
        assert await handle.result() == "not decided in a week"
    reminded = [(person, f"{when}: Move") for when in ("reminder", "last call") for person in ("ann", "bob")]
    assert mails == [("ann", "Move"), ("bob", "Move"), ("eve", "Move"), *reminded]


@pytest.mark.play
async def test_subscription_keeps_events_for_the_next_month(load: Any) -> None:
    recipe = load("subscription")
    bank = recipe.Bank(is_declining=True)
    async with environment(workflows=[recipe.subscription], state=bank) as env:
        handle = await env.start(
            recipe.subscription, recipe.Subscription("ann", "basic", paid_until=env.now + recipe.MONTH)
        )
        await env.advance(recipe.MONTH)
        await env.send_event("plan.changed", "shop", "team", subject="ann")  # while the card is declined
        await env.restart()
        bank.is_declining = False
        await env.send_event("card.changed", "shop", subject="ann")
        assert bank.received == recipe.PRICES["basic"], "this month is charged as it was"
        await env.advance(recipe.MONTH)
        assert bank.received == recipe.PRICES["basic"] + recipe.PRICES["team"]
        bank.is_declining = True
        await env.advance(recipe.MONTH + 13 * DAY)
        assert await handle.view() == "team, unpaid"
        await env.advance(DAY)
        assert await handle.result() == "closed after 2 payments"


@pytest.mark.play
async def test_a_fan_out_repeats_only_what_was_under_way(load: Any) -> None:
    recipe = load("fan-out")
    calls: list[str] = []

    def call_converter(customer: str, document: str) -> int:
        calls.append(document)
        if document == "b" and calls.count("b") == 1:
            raise ConnectionError("try again")
        return 1

    async with environment(workflows=[recipe.archive, recipe.convert]) as env:
        env.replace(recipe.call_converter, call_converter)
        handle = await env.start(recipe.archive, "ann", ["a", "b", "c", "d", "e"])
        await env.restart()
        assert await handle.result() == recipe.Report(5, {})
        assert [queue.running + queue.waiting for queue in await env.app.list_queues()] == [0]
    assert sorted(calls) == ["a", "b", "b", "c", "d", "e"]


@pytest.mark.play
async def test_a_night_goes_on_from_its_progress(load: Any, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = load("nightly-batch")
    async with environment(workflows=[recipe.nightly]) as env:
        handle = await env.app.trigger_schedule("nightly")
        await env.settle()
        await env.restart()
        recipe.broken.clear()
        await env.advance(timedelta(minutes=12))
        assert (await env.app.get_instance(handle.instance_id)).output == 12
    begun = [f"{region}: attempt 1 begins with row 0" for region in ("north", "south", "west")]
    assert capsys.readouterr().out.splitlines() == [*begun, "south: attempt 2 begins with row 1"]


@pytest.mark.play
async def test_a_saga_goes_on_undoing_after_a_crash(load: Any) -> None:
    recipe = load("saga")
    world, tries = recipe.World(), []

    def void(payment: str) -> None:
        tries.append(payment)
        if len(tries) == 1:
            raise ConnectionError("the bank is down")
        del world.payments[payment]

    async with environment(workflows=[recipe.fulfil], state=world) as env:
        env.replace(recipe.void, void)
        handle = await env.start(recipe.fulfil, "car", 90_000)
        assert await handle.status() == "compensating"
        assert world != recipe.World()
        await env.restart()
        await env.advance(timedelta(minutes=5))
        assert await handle.status() == "failed"
    assert world == recipe.World()
    assert len(tries) == 2


@pytest.mark.play
async def test_an_agent_asks_the_model_once_and_denies_in_time(load: Any) -> None:
    recipe = load("agent")
    requests: list[int] = []
    model = recipe.model

    def counted(messages: Any, info: Any) -> Any:
        requests.append(len(messages))
        return model(messages, info)

    recipe.agent.model.function = counted
    async with environment(workflows=[recipe.support]) as env:
        handle = await env.start(recipe.support, "My phone broke")
        await env.restart()
        await env.answer(handle, "ann@shop.example", {"approved": True})
        assert await handle.result() == "Dear customer: 30000 cents are on their way."
        assert (recipe.paid, len(requests)) == ([30_000], 3)
        late = await env.start(recipe.support, "My phone broke")
        await env.advance(2 * DAY)
        assert await late.result() == "Dear customer: Nobody approved this call in time."
    assert recipe.paid == [30_000]


class Kept:
    """A sink that keeps what it gets."""

    name = "crm"
    types = ("order.*",)

    def __init__(self) -> None:
        self.events: list[tuple[str, str | None]] = []

    async def deliver(self, event: ReceivedEvent[Any]) -> None:
        self.events.append((event.type, event.subject))


@pytest.mark.play
async def test_an_outbox_waits_for_a_worker(load: Any, tmp_path: Path) -> None:
    recipe = load("outbox")
    path, sink = str(tmp_path / "shop.db"), Kept()
    async with App(path, workflows=[recipe.fulfil], sinks=[sink]):
        pass  # the tables and the sink are there, and the worker is gone
    async with App(path, worker=False, workflows=[recipe.fulfil]) as app, aiosqlite.connect(path) as db:
        await db.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT)")
        await recipe.place_order(app, db, "tea", 500)
        with pytest.raises(aiosqlite.IntegrityError):
            await recipe.place_order(app, db, "tea", 500)
        with pytest.raises(ValueError, match="no price"):
            await recipe.place_order(app, db, "air", 0)
    async with App(path, workflows=[recipe.fulfil], sinks=[sink]) as app:
        await app.handle("tea").result(timeout=30)
        while len(sink.events) < 2:
            await recipe.asyncio.sleep(0.01)
        assert await app.count_instances(workflow="fulfil") == 1
    assert sink.events == [("order.placed", "tea"), ("order.shipped", "tea")]
    async with aiosqlite.connect(path) as db:
        assert list(await db.execute_fetchall("SELECT * FROM orders")) == [("tea", "shipped")]
