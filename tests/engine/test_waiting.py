"""Waiting for events: types, models, filters, targets, ids, and what is shown of it."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, Field

from romancy import ReceivedEvent, WaitTimeout, WorkflowContext, sleep, wait_event, workflow
from romancy.testing import Environment


@dataclass
class Paid:
    amount: int


class Declined(BaseModel):
    why: str = Field(alias="reason")


class Shipped(TypedDict):
    parcel: str


# --- types and models -------------------------------------------------------------------------------------------------
async def test_one_model_per_type(env: Environment) -> None:
    @workflow
    async def outcome(ctx: WorkflowContext) -> list[str]:
        seen: list[str] = []
        for _ in range(3):
            event = await wait_event(ctx, "paid", "declined", "shipped", model=(Paid, Declined, Shipped))
            match event.data:
                case Paid(amount):
                    seen.append(f"{event.type} {amount}")
                case Declined():
                    seen.append(f"{event.type} {event.data.why}")
                case _:
                    seen.append(f"{event.type} {event.data['parcel']}")
        return seen

    handle = await env.start(outcome)
    await env.send_event("declined", "bank", {"reason": "poor"})
    await env.send_event("shipped", "post", {"parcel": "P1"})
    await env.restart()
    await env.send_event("paid", "bank", {"amount": 7})
    assert await handle.result() == ["declined poor", "shipped P1", "paid 7"]


async def test_one_model_for_all_types(env: Environment) -> None:
    @workflow
    async def total(ctx: WorkflowContext) -> int:
        return sum([(await wait_event(ctx, "paid", "refunded", model=Paid)).data.amount for _ in range(2)])

    handle = await env.start(total)
    await env.send_event("paid", "bank", Paid(5))  # a dataclass can be sent as it is
    await env.send_event("refunded", "bank", {"amount": -2})
    assert await handle.result() == 3


async def test_a_union_as_model(env: Environment) -> None:
    @workflow
    async def either(ctx: WorkflowContext) -> list[str]:
        return [type((await wait_event(ctx, "news", model=Paid | Declined)).data).__name__ for _ in range(2)]

    handle = await env.start(either)
    await env.send_event("news", "test", {"reason": "poor"})
    await env.send_event("news", "test", {"amount": 1})
    assert await handle.result() == ["Declined", "Paid"]


async def test_without_a_model_data_is_plain_json_and_bytes_are_bytes(env: Environment) -> None:
    @workflow
    async def plain(ctx: WorkflowContext) -> list[Any]:
        return [repr((await wait_event(ctx, "news")).data) for _ in range(3)]

    handle = await env.start(plain)
    await env.send_event("news", "test", {"a": [1, 2.5, None, True, "ü"]})
    await env.send_event("news", "test")
    await env.send_event("news", "test", b"\x00\xff")
    assert await handle.result() == ["{'a': [1, 2.5, None, True, 'ü']}", "None", "b'\\x00\\xff'"]


async def test_a_received_event_has_every_attribute(env: Environment) -> None:
    @workflow
    async def whole(ctx: WorkflowContext) -> list[Any]:
        e: ReceivedEvent[Any] = await wait_event(ctx, "news")
        await sleep(ctx, 1)
        return [e.data, e.type, e.source, e.subject, e.id, e.datacontenttype, e.dataschema, dict(e.extensions)]

    handle = await env.start(whole)
    await env.send_event("news", "test", 1, subject="about", id="e1", extensions={"traceid": "t", "n": 3, "ok": True})
    await env.restart()
    extensions = {"traceid": "t", "n": 3, "ok": True}
    assert await handle.result() == [1, "news", "test", "about", "e1", "application/json", None, extensions]


# --- what does not fit ------------------------------------------------------------------------------------------------
async def test_a_misfit_is_kept_for_a_wait_it_fits(env: Environment) -> None:
    @workflow
    async def strict(ctx: WorkflowContext) -> list[Any]:
        paid = await wait_event(ctx, "news", model=Paid)
        declined = await wait_event(ctx, "news", model=Declined)
        return [paid.data.amount, declined.data.why, (await wait_event(ctx, "news")).data]

    handle = await env.start(strict)
    receipts = [await env.send_event("news", "test", data) for data in ({"reason": "poor"}, "neither", {"amount": 3})]
    assert [(r.mismatched, r.delivered) for r in receipts] == [(1, 0), (1, 0), (0, 1)]
    assert await handle.result() == [3, "poor", "neither"]


async def test_a_misfit_does_not_hide_the_next_event(env: Environment) -> None:
    """Buffered behind ten that do not fit is one that does."""

    @workflow
    async def late(ctx: WorkflowContext) -> int:
        await sleep(ctx, 60)
        return (await wait_event(ctx, "news", model=int)).data

    handle = await env.start(late)
    for n in range(10):
        await env.send_event("news", "test", f"no {n}")
    await env.send_event("news", "test", 7)
    assert await handle.result() == 7


async def test_one_instance_may_be_fit_and_another_not(env: Environment) -> None:
    @workflow
    async def strict(ctx: WorkflowContext) -> int:
        return (await wait_event(ctx, "news", model=int)).data

    @workflow
    async def easy(ctx: WorkflowContext) -> Any:
        return (await wait_event(ctx, "news")).data

    one, two = await env.start(strict), await env.start(easy)
    receipt = await env.send_event("news", "test", "text")
    assert (receipt.delivered, receipt.mismatched) == (1, 1)
    assert await two.result() == "text"
    assert await one.status() == "waiting_for_event"


async def test_a_misfit_counts_also_for_an_instance_that_is_not_in_memory(env: Environment) -> None:
    @workflow
    async def strict(ctx: WorkflowContext) -> int:
        return (await wait_event(ctx, "news", model=int)).data

    handle = await env.start(strict)
    engine = env.app._runtime.engine
    engine.exits.drop(engine.residents[handle.instance_id])
    receipt = await env.send_event("news", "test", "text")
    assert await handle.status() == "waiting_for_event"
    await env.send_event("news", "test", 1)
    assert await handle.result() == 1
    assert (receipt.mismatched, receipt.delivered) == (1, 0)


# --- filters ----------------------------------------------------------------------------------------------------------
@workflow
async def filtered(ctx: WorkflowContext, where: dict[str, Any]) -> Any:
    return (await wait_event(ctx, "news", where=where)).data


@pytest.mark.parametrize(
    ("wanted", "fits", "does_not_fit"),
    [
        (7, [{"x": 7}, {"x": 7.0}], [{"x": "7"}, {"x": 8}, {"x": None}, {}, [7], 7, None]),
        ("7", [{"x": "7"}], [{"x": 7}]),
        (True, [{"x": True}], [{"x": 1}, {"x": "true"}, {"x": False}]),
        (1, [{"x": 1}], [{"x": True}]),
        (None, [{"x": None}], [{}, {"x": 0}, {"x": ""}, {"x": False}]),
        ("", [{"x": ""}], [{}, {"x": None}]),
        (2**53 + 1, [{"x": 2**53 + 1}], [{"x": 2**53}, {"x": float(2**53)}]),
        ("é", [{"x": "é"}], [{"x": "e\u0301"}]),
    ],
)
async def test_where_compares_as_json_with_type(
    env: Environment, wanted: Any, fits: list[Any], does_not_fit: list[Any]
) -> None:
    handle = await env.start(filtered, {"x": wanted})
    for data in does_not_fit:
        assert (await env.send_event("news", "test", data)).delivered == 0, data
    assert await handle.status() == "waiting_for_event"
    for data in fits:
        other = await env.start(filtered, {"x": wanted})
        await env.send_event("news", "test", data)
        assert await other.result() == data


async def test_where_finds_what_came_before_the_wait_too(env: Environment) -> None:
    @workflow
    async def late(ctx: WorkflowContext) -> Any:
        await sleep(ctx, 60)
        return (await wait_event(ctx, "news", where={"order.id": 7, "ok": True})).data["n"]

    handle = await env.start(late)
    for n, data in enumerate(({"order": {"id": 8}, "ok": True}, {"order.id": 7, "ok": True}, {"order": {"id": 7}})):
        await env.send_event("news", "test", {**data, "n": n})
    await env.send_event("news", "test", {"order": {"id": 7}, "ok": True, "n": 3})
    assert await handle.result() == 3


async def test_where_looks_in_the_data_as_sent_before_aliases(env: Environment) -> None:
    @workflow
    async def aliased(ctx: WorkflowContext) -> str:
        return (await wait_event(ctx, "news", model=Declined, where={"reason": "poor"})).data.why

    handle = await env.start(aliased)
    await env.send_event("news", "test", {"reason": "rich"})
    await env.send_event("news", "test", {"reason": "poor"})
    assert await handle.result() == "poor"


async def test_subject_and_source_are_exact(env: Environment) -> None:
    @workflow
    async def narrow(ctx: WorkflowContext) -> Any:
        return (await wait_event(ctx, "news", subject="order/1", source="shop")).data

    handle = await env.start(narrow)
    for subject, source in (("order/10", "shop"), ("order/1", "Shop"), (None, "shop"), ("order/1", "shop2")):
        assert (await env.send_event("news", source, "no", subject=subject)).delivered == 0
    assert (await env.send_event("news", "shop", "yes", subject="order/1")).delivered == 1
    assert await handle.result() == "yes"


async def test_types_are_exact(env: Environment) -> None:
    handle = await env.start(filtered, {})
    for kind in ("News", "news ", "news.x", "new", "%", "news*"):
        assert (await env.send_event(kind, "test")).delivered == 0
    assert await handle.status() == "waiting_for_event"


async def test_more_kinds_of_filters_than_have_an_index(env: Environment) -> None:
    """From the 17th set of fields on a look is slower, and finds the same."""
    handles = [await env.start(filtered, {f"field{n}": n}) for n in range(20)]
    receipts = [await env.send_event("news", "test", {f"field{n}": n}) for n in range(20)]
    assert [r.delivered for r in receipts] == [1] * 20
    assert [await h.result() for h in handles] == [{f"field{n}": n} for n in range(20)]


# --- who gets it ------------------------------------------------------------------------------------------------------
async def test_a_targeted_event_reaches_that_instance_only(env: Environment) -> None:
    one = await env.start(filtered.options(instance_id="one"), {})
    two = await env.start(filtered.options(instance_id="two"), {})
    receipt = await env.send_event("news", "test", "for two", to="two")
    assert receipt.delivered == 1
    assert await two.result() == "for two"
    assert await one.status() == "waiting_for_event"
    await env.send_event("news", "test", "for all")
    assert await one.result() == "for all"


async def test_a_targeted_event_is_buffered_for_its_instance(env: Environment) -> None:
    @workflow
    async def late(ctx: WorkflowContext) -> list[Any]:
        await sleep(ctx, 60)
        return [(await wait_event(ctx, "news", where={"x": 1})).data, (await wait_event(ctx, "news")).data]

    one = await env.start(late.options(instance_id="one"))
    two = await env.start(late.options(instance_id="two"))
    for n, to in ((1, "two"), (2, "one"), (3, "two")):
        await env.send_event("news", "test", {"x": 1, "n": n}, to=to)
    await env.send_event("news", "test", {"x": 1, "n": 4})
    await env.restart()
    assert [e["n"] for e in await one.result()] == [2, 4]
    assert [e["n"] for e in await two.result()] == [1, 3]


async def test_an_event_to_nobody_is_kept(env: Environment) -> None:
    receipt = await env.send_event("news", "test", to="nobody")
    assert (receipt.delivered, receipt.mismatched, receipt.duplicate) == (0, 0, False)
    assert len((await env.app.list_events(unmatched=True)).items) == 1


async def test_two_waits_of_one_instance_get_two_events(env: Environment) -> None:
    @workflow
    async def both(ctx: WorkflowContext) -> list[Any]:
        events = await asyncio.gather(wait_event(ctx, "news"), wait_event(ctx, "news"))
        return [e.data for e in events]

    handle = await env.start(both)
    receipt = await env.send_event("news", "test", 1)
    assert receipt.delivered == 1, "one instance, one delivery"
    assert len(await env.waits(handle)) == 1
    await env.restart()
    await env.send_event("news", "test", 2)
    assert sorted(await handle.result()) == [1, 2]


async def test_two_filtered_waits_never_take_one_event_twice(env: Environment) -> None:
    @workflow
    async def both(ctx: WorkflowContext) -> list[Any]:
        waits = wait_event(ctx, "news", where={"a": 1}), wait_event(ctx, "news", where={"b": 2})
        return sorted([e.data["n"] for e in await asyncio.gather(*waits)])

    handle = await env.start(both)
    await env.send_event("news", "test", {"a": 1, "b": 2, "n": 1})
    assert await handle.status() == "waiting_for_event"
    await env.send_event("news", "test", {"a": 1, "b": 2, "n": 2})
    assert await handle.result() == [1, 2]


# --- timeouts ---------------------------------------------------------------------------------------------------------
async def test_timeout_zero_looks_in_the_buffer_and_gives_up(env: Environment) -> None:
    @workflow
    async def peek(ctx: WorkflowContext) -> list[Any]:
        seen: list[Any] = []
        while True:
            try:
                seen.append((await wait_event(ctx, "news", timeout=0)).data)
            except WaitTimeout as error:
                return [*seen, error.types, error.wait_id, isinstance(error, TimeoutError), str(error)]
            await sleep(ctx, 60)

    handle = await env.start(peek)
    assert await handle.status() == "completed"
    assert (await handle.result())[0] == ["news"]

    @workflow
    async def peek_later(ctx: WorkflowContext) -> Any:
        await sleep(ctx, 60)
        return await peek.fn(ctx)

    later = await env.start(peek_later)
    await env.send_event("news", "test", "buffered")
    seen, types, wait_id, is_timeout, message = await later.result()
    assert (seen, types, wait_id, is_timeout) == ("buffered", ["news"], "news:2", True)
    assert "news" in message
    assert "news:2" in message


async def test_a_wait_with_a_timeout_is_one_row_and_leaves_nothing_behind(env: Environment) -> None:
    @workflow
    async def patient(ctx: WorkflowContext) -> None:
        with pytest.raises(WaitTimeout):
            await wait_event(ctx, "news", timeout=timedelta(minutes=5))
        await wait_event(ctx, "other", timeout=timedelta(minutes=5))

    handle = await env.start(patient)
    (wait,) = await env.waits(handle)
    assert (wait.kind, wait.due_at) == ("event", env.now + timedelta(minutes=5))
    await env.advance(timedelta(minutes=5))
    assert [w.types for w in await env.waits(handle)] == [("other",)]
    await env.send_event("other", "test")
    assert await env.waits() == []


# --- ids --------------------------------------------------------------------------------------------------------------
async def test_ids_are_counted_per_name_or_given(env: Environment) -> None:
    @workflow
    async def named(ctx: WorkflowContext) -> None:
        await asyncio.gather(
            wait_event(ctx, "a"),
            wait_event(ctx, "a"),
            wait_event(ctx, "b", "a"),
            wait_event(ctx, "a", wait_id="mine"),
            wait_event(ctx, "b", wait_id="mine"),
            sleep(ctx, 60),
            sleep(ctx, 60, timer_id="mine"),
            sleep(ctx, 60, timer_id="nap"),
        )

    handle = await env.start(named)
    ids = {w.wait_id for w in await env.waits(handle)}
    assert ids == {"a:1", "a:2", "b:1", "mine", "mine:2", "sleep:1", "mine:3", "nap"}
    await env.restart()
    assert {w.wait_id for w in await env.waits(handle)} == ids


async def test_a_wait_id_never_filters(env: Environment) -> None:
    @workflow
    async def named(ctx: WorkflowContext) -> Any:
        return (await wait_event(ctx, "news", wait_id="mine")).data

    handle = await env.start(named)
    await env.send_event("news", "test", 1, id="another")
    assert await handle.result() == 1


async def test_repeated_ids_in_a_loop(env: Environment) -> None:
    @workflow
    async def loop(ctx: WorkflowContext) -> list[Any]:
        return [(await wait_event(ctx, "news", wait_id="item")).data for _ in range(3)]

    handle = await env.start(loop)
    seen: list[str] = []
    for n in range(3):
        seen += [w.wait_id for w in await env.waits(handle)]
        await env.send_event("news", "test", n)
        await env.restart()
    assert seen == ["item", "item:2", "item:3"]
    assert await handle.result() == [0, 1, 2]


# --- losers -----------------------------------------------------------------------------------------------------------
async def test_a_withdrawn_wait_consumes_nothing(env: Environment) -> None:
    @workflow
    async def first_of(ctx: WorkflowContext) -> list[Any]:
        a, b = asyncio.ensure_future(wait_event(ctx, "a")), asyncio.ensure_future(wait_event(ctx, "b"))
        done, losers = await asyncio.wait({a, b}, return_when=asyncio.FIRST_COMPLETED)
        for loser in losers:
            loser.cancel()
        won = [t.result().data for t in done]
        await sleep(ctx, 60)
        return [*won, (await wait_event(ctx, "b")).data]

    handle = await env.start(first_of)
    await env.send_event("a", "test", "a")
    assert (await env.send_event("b", "test", "b")).delivered == 0
    await env.restart()
    assert await handle.result() == ["a", "b"]


async def test_both_events_in_one_batch_and_only_one_is_wanted(env: Environment) -> None:
    """Both are offered before the code has seen either; the loser's is still there afterwards."""

    @workflow
    async def first_of(ctx: WorkflowContext) -> list[Any]:
        a, b = asyncio.ensure_future(wait_event(ctx, "a")), asyncio.ensure_future(wait_event(ctx, "b"))
        done, losers = await asyncio.wait({a, b}, return_when=asyncio.FIRST_COMPLETED)
        for loser in losers:
            loser.cancel()
        return [[t.result().data for t in done], (await wait_event(ctx, "a", "b")).data]

    handle = await env.start(first_of)
    await asyncio.gather(env.app.send_event("a", "test", "a"), env.app.send_event("b", "test", "b"))
    await env.settle()
    assert await handle.result() == [["a"], "b"]


# --- what is shown ----------------------------------------------------------------------------------------------------
async def test_waits_are_shown_with_everything(env: Environment) -> None:
    @workflow
    async def shown(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "a", "b", where={"order.id": 7}, subject="s", source="src", timeout=60, wait_id="w")

    began = env.now
    handle = await env.start(shown)
    await env.restart()
    (wait,) = await env.waits(handle)
    (listed,) = (await env.app.list_waits()).items
    assert listed == wait
    assert (wait.instance_id, wait.wait_id, wait.kind) == (handle.instance_id, "w", "event")
    assert (wait.types, dict(wait.where)) == (("a", "b"), {"order.id": 7})
    assert (wait.subject, wait.source) == ("s", "src")
    assert (wait.since, wait.due_at) == (began, began + timedelta(seconds=60))
    line = shown.fn.__code__.co_firstlineno + 2
    assert wait.location == f"{__file__}:{line} in shown"


async def test_waits_can_be_listed_by_type_and_instance_in_pages(env: Environment) -> None:
    handles = [await env.start(filtered.options(instance_id=f"i{n}"), {}) for n in range(7)]

    @workflow
    async def other(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "other")

    await env.start(other)
    page = await env.app.list_waits(type="news", limit=3)
    found = [w.instance_id for w in page.items]
    while page.cursor:
        page = await env.app.list_waits(type="news", limit=3, cursor=page.cursor)
        found += [w.instance_id for w in page.items]
    assert found == [h.instance_id for h in handles]
    assert [w.instance_id for w in (await env.app.list_waits(instance_id="i3")).items] == ["i3"]
    assert (await env.app.list_waits(type="nothing")).items == []


async def test_statuses_follow_what_is_open(env: Environment) -> None:
    @workflow
    async def mixed(ctx: WorkflowContext) -> None:
        await sleep(ctx, 60)
        await asyncio.gather(sleep(ctx, 60), wait_event(ctx, "news"))

    handle = await env.start(mixed)
    assert await handle.status() == "waiting_for_timer"
    await env.advance(60)
    assert await handle.status() == "waiting_for_event", "any event wait: waiting_for_event"
    await env.send_event("news", "test")
    assert await handle.status() == "waiting_for_timer"
    await env.advance(60)
    assert await handle.status() == "completed"
