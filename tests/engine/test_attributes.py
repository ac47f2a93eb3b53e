"""Attributes: declared for the arguments, set by the code, and found again by lists, counts and verbs for many."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from romancy import (
    App,
    InvalidInput,
    ReceivedEvent,
    Scalar,
    WorkflowContext,
    sleep,
    start_workflow,
    wait_event,
    workflow,
)
from romancy.core import declared_attributes
from romancy.storage import catalog
from romancy.testing import Environment, environment
from tests.engine.helpers import down, intercept, until, watch


class Tier(Enum):
    GOLD = "gold"


@dataclass
class Order:
    customer_id: str
    amount: int = 1
    vip: bool = False
    tier: Tier | None = None
    extra: Any = None


ATTRIBUTES = {"customer": "order.customer_id", "amount": "order.amount", "vip": "order.vip", "tier": "order.tier"}


@workflow(attributes=ATTRIBUTES)
async def order_of(ctx: WorkflowContext, order: Order) -> None:
    event = await wait_event(ctx, "change")
    ctx.set_attributes(event.data)
    await wait_event(ctx, "change")


async def ids(app: App, **which: Any) -> list[str]:
    found = (await app.list_instances(**which)).items
    assert await app.count_instances(**which) == len(found)
    return sorted(item.instance_id for item in found)


async def attributes(app: App, id: str) -> dict[str, Any]:
    return dict((await app.get_instance(id)).attributes)


# --- declared -------------------------------------------------------------------------------------------------------
async def test_an_instance_is_found_by_its_arguments_as_soon_as_it_is_stored(env: Environment) -> None:
    env.app.register(order_of)
    held: list[Callable[[], None]] = []
    undo = intercept(env, lambda batch, submit: held.append(submit) if batch.commits else submit())
    await env.app.start_workflow(order_of.options(instance_id="a"), Order("c-7", 3, True, Tier.GOLD))
    await until(lambda: held)
    assert await ids(env.app, where={"customer": "c-7"}) == ["a"], "its first step is not stored yet"
    assert await attributes(env.app, "a") == {"customer": "c-7", "amount": 3, "vip": True, "tier": "gold"}
    undo()
    held[0]()
    await env.settle()
    await env.start(order_of.options(instance_id="b"), Order("c-8"))
    assert await attributes(env.app, "b") == {"customer": "c-8", "amount": 1, "vip": False}


async def test_a_start_by_name_without_the_code_gets_them_with_its_first_step(db: str) -> None:
    async with environment(database=db, worker=False) as env:
        await env.app.start_workflow("order_of", {"customer_id": "c-7"}, instance_id="a")
        assert await ids(env.app, where={"customer": "c-7"}) == []
    async with environment(database=db, workflows=[order_of]) as env:
        await env.settle()
        assert await ids(env.app, where={"customer": "c-7"}) == ["a"]


async def test_a_start_without_a_worker_has_them(db: str) -> None:
    async with environment(database=db, worker=False, workflows=[order_of]) as env:
        await env.app.start_workflow(order_of.options(instance_id="a"), Order("c-7"))
        assert await ids(env.app, where={"customer": "c-7"}) == ["a"]


@workflow(on_event="placed", attributes={"customer": "event.data.customer_id", "from": "event.source"})
async def placed(ctx: WorkflowContext, event: ReceivedEvent[Order]) -> None:
    await sleep(ctx, 1)


async def test_an_event_that_starts_a_workflow_gives_attributes(env: Environment) -> None:
    env.app.register(placed)
    await env.send_event("placed", "shop", {"customer_id": "c-7"})
    [found] = (await env.app.list_instances(where={"customer": "c-7"})).items
    assert found.attributes == {"customer": "c-7", "from": "shop"}


@workflow
async def shop(ctx: WorkflowContext) -> None:
    await start_workflow(ctx, order_of, Order("free"))
    await start_workflow(ctx, "order_of", {"customer_id": "by name"})
    await order_of(ctx, Order("called"))


@workflow
async def leaving(ctx: WorkflowContext) -> None:
    """Its child is stored with its own end."""
    await start_workflow(ctx, order_of, Order("left"))


async def test_children_have_them(env: Environment) -> None:
    env.app.register(order_of)
    await env.start(shop.options(instance_id="p"))
    await env.start(leaving.options(instance_id="l"))
    for customer in ("free", "by name", "called", "left"):
        assert len(await ids(env.app, where={"customer": customer})) == 1, customer


async def test_a_second_start_of_the_same_id_changes_nothing(env: Environment) -> None:
    handle = await env.start(order_of.options(instance_id="a"), Order("c-7"))
    await env.send_event("change", "test", {"customer": "c-9"})
    again = await env.start(order_of.options(instance_id="a"), Order("c-7"))
    assert (handle.created, again.created) == (True, False)
    assert (await attributes(env.app, "a"))["customer"] == "c-9"


class Item(TypedDict):
    sku: str
    price: float


class Cart(BaseModel):
    owner: Order
    items: list[Item]
    notes: dict[str, Any]


@pytest.mark.parametrize(
    ("paths", "problem"),
    [
        ({"a": ""}, "has the path ''; a path is the name of a parameter"),
        ({"a": "cart..owner"}, "has the path 'cart..owner'"),
        ({"a": 1}, "has the path 1"),
        ({"a b": "cart"}, "the name of an attribute"),
        ({"a" * 65: "cart"}, "the name of an attribute"),
        ([("a", "cart")], "takes a mapping of names to paths"),
        ({f"a{n}": "cart" for n in range(17)}, "declares 17 attributes, more than the 16 allowed"),
    ],
)
def test_the_form_of_a_path_is_checked_at_the_definition(paths: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):

        @workflow(attributes=paths)
        async def shopping(ctx: WorkflowContext, cart: Cart) -> None: ...


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("basket", "begins at 'basket', which is not one of its parameters .cart, times."),
        ("ctx", "begins at 'ctx'"),
        ("cart.owner.name", "Order has no field 'name'"),
        ("cart.owner", "that is a Order; an attribute is a string, an integer or a boolean"),
        ("cart.items", "that is a list"),
        ("times.real.nothing", ""),
        ("times.nothing", "int has no field 'nothing'"),
    ],
)
async def test_a_path_that_the_signature_refutes_is_an_error_at_registration(
    env: Environment, path: str, problem: str
) -> None:
    @workflow(attributes={"a": path})
    async def shopping(ctx: WorkflowContext, cart: Cart, times: int = 1) -> None: ...

    if not problem:
        env.app.register(shopping)
        return
    with pytest.raises(TypeError, match=problem):
        env.app.register(shopping)


@workflow(attributes={"sku": "cart.items.0.sku", "note": "cart.notes.note", "customer": "cart.owner.customer_id"})
async def shopping(ctx: WorkflowContext, cart: Cart) -> None: ...


async def test_what_the_arguments_do_not_have_is_left_out_with_one_warning(
    env: Environment, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared_attributes, "_warned", set())
    whole = Cart(owner=Order("c"), items=[Item(sku="s", price=1.5)], notes={"note": "n"})
    for id, cart in {
        "whole": whole,
        "empty": Cart(owner=Order("c"), items=[], notes={}),
        "list": Cart(owner=Order("c"), items=[], notes={"note": [1]}),
    }.items():
        await env.start(shopping.options(instance_id=id), cart)
    assert await attributes(env.app, "whole") == {"sku": "s", "note": "n", "customer": "c"}
    assert await attributes(env.app, "empty") == {"customer": "c"}
    assert await attributes(env.app, "list") == {"customer": "c"}
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert [text.partition(" is left out")[0] for text in warned] == [
        "workflow 'shopping': attribute 'sku'",
        "workflow 'shopping': attribute 'note'",
    ]


class Moody:
    """Has no form that the annotation of a workflow shows; its property fails."""

    @property
    def name(self) -> str:
        raise RuntimeError("not today")


async def test_a_property_that_fails_is_left_out() -> None:
    @workflow(attributes={"name": "it.name"})
    async def moody(ctx: WorkflowContext, it: Any) -> None: ...

    definition = moody._definition
    assert definition.attributes is not None
    assert declared_attributes.declared(definition.attributes, definition.signature, (Moody(),), {}) == {}


# --- set by the code ------------------------------------------------------------------------------------------------
async def test_the_code_sets_changes_and_removes_them(env: Environment) -> None:
    await env.start(order_of.options(instance_id="a"), Order("c-7"))
    await env.send_event("change", "test", {"customer": "c-9", "amount": None, "new": "ä", "never": None})
    assert await attributes(env.app, "a") == {"customer": "c-9", "vip": False, "new": "ä"}
    assert await ids(env.app, where={"customer": "c-7"}) == []
    assert await ids(env.app, where={"customer": "c-9", "new": "ä"}) == ["a"]
    await env.send_event("change", "test")
    assert await ids(env.app, where={"customer": "c-9"}, status="completed") == ["a"], "they stay after the end"


async def test_they_survive_a_crash_and_an_equal_one_is_not_written(env: Environment) -> None:
    @workflow(attributes={"n": "n"})
    async def steady(ctx: WorkflowContext, n: int) -> None:
        while True:
            ctx.set_attributes({"n": n, "state": "steady", "no": None})
            await wait_event(ctx, "go")

    await env.start(steady.options(instance_id="s"), 1)
    await env.send_event("go", "test")
    async with down(env):
        pass
    seen = watch(env)
    await env.send_event("go", "test")
    assert {commit.publication for batch in seen for commit in batch.commits} == {None}
    assert await attributes(env.app, "s") == {"n": 1, "state": "steady"}


async def test_the_next_run_keeps_them_and_declares_its_own(env: Environment) -> None:
    @workflow(attributes={"month": "month"})
    async def monthly(ctx: WorkflowContext, month: int) -> None:
        if month == 1:
            ctx.set_attributes({"tier": "gold"})
        await wait_event(ctx, "next")
        monthly.continue_as_new(ctx, month + 1)

    await env.start(monthly.options(instance_id="m"), 1)
    assert await attributes(env.app, "m") == {"month": 1, "tier": "gold"}
    await env.send_event("next", "test")
    assert await attributes(env.app, "m") == {"month": 2, "tier": "gold"}
    await env.restart()
    await env.send_event("next", "test")
    assert await attributes(env.app, "m") == {"month": 3, "tier": "gold"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"a": 1.5}, "instance 'x': attribute 'a' must be a string, an integer or a boolean, got 1.5"),
        ({"a": ["b"]}, "attribute 'a' must be a string"),
        ({"a": "x" * 256}, "attribute 'a' has 256 characters, more than the 255 allowed"),
        ({"a": 2**63}, "attribute 'a' must be a 64-bit integer"),
        ({"a": "\ud800"}, "attribute 'a' is not valid text"),
        ({"a=b": 1}, "the name of an attribute"),
        ({"": 1}, "the name of an attribute"),
        ({"a" * 65: 1}, "the name of an attribute"),
        ({f"a{n}": n for n in range(17)}, "instance 'x' would have 17 attributes, more than the 16 allowed"),
        ("ab", "a mapping"),
    ],
)
async def test_what_cannot_be_an_attribute_is_an_error_and_changes_nothing(
    env: Environment, given: Any, problem: str
) -> None:
    caught: list[str] = []

    @workflow
    async def setting(ctx: WorkflowContext) -> None:
        try:
            ctx.set_attributes(given)
        except InvalidInput as error:
            caught.append(str(error))
        await wait_event(ctx, "go")

    await env.start(setting.options(instance_id="x"))
    assert problem in caught[0]
    assert await attributes(env.app, "x") == {}
    await env.restart()


async def test_the_longest_of_everything_fits_the_index(env: Environment) -> None:
    longest: dict[str, Scalar] = {f"{'ä' * 62}{n:02}": "\U0001f600" * 255 for n in range(15)}
    longest["nul"] = "\0" * 255

    @workflow
    async def long(ctx: WorkflowContext) -> None:
        ctx.set_attributes(longest)
        await wait_event(ctx, "go")

    await env.start(long.options(instance_id="\U0001f600" * 255))
    assert await ids(env.app, where=longest) == ["\U0001f600" * 255]


# --- finding --------------------------------------------------------------------------------------------------------
@workflow
async def tagged(ctx: WorkflowContext, tags: dict[str, Any], fails: bool = False) -> None:
    ctx.set_attributes(tags)
    if fails:
        raise ValueError("no")
    await wait_event(ctx, "go")


@pytest.fixture
async def many(env: Environment) -> Environment:
    for id, tags in {
        "text": {"x": "1", "all": "yes"},
        "int": {"x": 1, "all": "yes"},
        "bool": {"x": True, "all": "yes"},
        "false": {"x": False, "all": "yes"},
        "zero": {"x": 0, "all": "yes", "y": "="},
        "none": {"all": "yes"},
        "bare": {},
    }.items():
        await env.start(tagged.options(instance_id=id), tags)
        await env.advance(1)
    await env.start(tagged.options(instance_id="failed"), {"x": 1, "all": "yes"}, fails=True)
    return env


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"x": "1"}, ["text"]),
        ({"x": 1}, ["failed", "int"]),
        ({"x": True}, ["bool"]),
        ({"x": False}, ["false"]),
        ({"x": 0}, ["zero"]),
        ({"x": 2}, []),
        ({"x": 1, "all": "yes"}, ["failed", "int"]),
        ({"all": "yes", "x": 0, "y": "="}, ["zero"]),
        ({"all": "yes", "x": None}, ["none"]),
        ({"all": None}, ["bare"]),
        ({"x": None, "all": None}, ["bare"]),
        ({"x": None}, ["bare", "none"]),
        ({}, ["bare", "bool", "failed", "false", "int", "none", "text", "zero"]),
    ],
)
async def test_all_given_must_hold_exactly(many: Environment, where: Any, found: list[str]) -> None:
    assert await ids(many.app, where=where) == found


async def test_they_go_together_with_other_filters(many: Environment) -> None:
    app = many.app
    assert await ids(app, where={"x": 1}, status="failed") == ["failed"]
    assert await ids(app, where={"x": 1}, status=["failed", "waiting_for_event"]) == ["failed", "int"]
    assert await ids(app, where={"x": 1}, error_type="ValueError") == ["failed"]
    assert await ids(app, where={"x": 1}, text="int") == ["int"]
    assert await ids(app, where={"x": 1}, workflow="other") == []
    assert await ids(app, where={"x": 1}, parent="p") == []
    started = (await app.get_instance("int")).started_at
    assert await ids(app, where={"x": 1}, started_after=started) == ["failed"]


@pytest.mark.parametrize(
    ("which", "statement"),
    [
        ({"where": {"all": "yes"}}, "instances_of_attribute"),
        ({"where": {"all": "yes"}, "status": "failed"}, "instances_of_status"),
        ({"where": {"all": "yes"}, "error_type": "ValueError"}, "instances_of_status"),
        ({"where": {"all": "yes"}, "status": "waiting_for_event"}, "instances_of_attribute"),
        ({"where": {"all": "yes", "y": "="}, "status": "waiting_for_event"}, "instances_of_attribute"),
        ({"where": {"all": "yes"}, "parent": "p"}, "instances_of_parent"),
        ({"where": {"all": None}}, "instances"),
    ],
)
async def test_what_the_fewest_have_is_read(
    many: Environment, which: Any, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "FEW", 5)
    stored: Any = many.app._runtime.engine.storage.catalog
    asked: list[str] = []
    ask = stored._ask

    async def spy(name: str, /, **given: Any) -> list[Any]:
        asked.append(name)
        return await ask(name, **given)

    monkeypatch.setattr(stored, "_ask", spy)
    found = (await many.app.list_instances(**which)).items
    assert {name for name in asked if name.startswith("instances")} == {statement}
    everything = {item.instance_id: item for item in (await many.app.list_instances()).items}
    wanted = which["where"].items()
    status = which.get("status") or ("failed" if "error_type" in which else None)
    assert {item.instance_id for item in found} == {
        id
        for id, item in everything.items()
        if all(item.attributes.get(name) == value for name, value in wanted)
        and status in (None, item.status)
        and "parent" not in which
    }


async def test_pages_by_attribute(many: Environment) -> None:
    listed: list[str] = []
    cursor: str | None = None
    while True:
        page = await many.app.list_instances(where={"all": "yes"}, limit=2, cursor=cursor)
        listed += [item.instance_id for item in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    assert listed == ["failed", "none", "zero", "false", "bool", "int", "text"]


async def test_children_by_attribute(env: Environment) -> None:
    env.app.register(order_of)
    await env.start(shop.options(instance_id="p"))
    [child] = await ids(env.app, parent="p", where={"customer": "called"})
    assert child == "p/order_of:3"


async def test_verbs_for_many_take_them(many: Environment) -> None:
    done = await many.app.cancel_workflows(where={"all": "yes", "x": 1})
    assert (done.matched, done.changed) == (2, 1)
    await many.settle()
    assert (await many.app.get_instance("int")).status == "cancelled"
    assert (await many.app.get_instance("bool")).status == "waiting_for_event"
    with pytest.raises(ValueError, match="at least one filter"):
        await many.app.cancel_workflows(where={})
    assert (await many.app.resume_workflows(where={"x": 1})).changed == 0


@pytest.mark.parametrize("where", [{"x": 1.5}, {"": 1}, {"x": b"1"}, "x=1", ["x"], {f"x{n}": n for n in range(17)}])
async def test_a_filter_that_no_attribute_can_match_is_an_error(env: Environment, where: Any) -> None:
    for verb in (env.app.list_instances, env.app.count_instances, env.app.cancel_workflows):
        with pytest.raises(ValueError, match="attribute"):
            await verb(where=where)


async def test_pruning_removes_them_with_the_instance(env: Environment) -> None:
    storage = env.app._runtime.engine.storage
    await env.start(tagged.options(instance_id="f"), {"x": 1}, fails=True)
    await env.start(tagged.options(instance_id="open"), {"x": 1})
    now = env.clock.now()
    await storage.prune(now + 1, now, 100)
    assert await ids(env.app, where={"x": 1}) == ["open"]
    assert await storage.catalog.shown(["f", "open"]) == await storage.catalog.shown(["open"]) != {}


async def test_a_filter_of_another_type_is_explained(env: Environment) -> None:
    with pytest.raises(InvalidInput, match=r"got 1\.5; convert it$"):
        await env.app.list_instances(where={"n": 1.5})  # type: ignore[dict-item]
