"""Conformance: events and waits find each other, whichever comes second, each once per instance, oldest first."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from romancy.core.filters import MAX_ANCHORS, Filter
from romancy.core.model import SECOND
from romancy.core.operations import After
from romancy.storage.batch import Accept, Commit, Misfit
from romancy.storage.catalog import Search
from romancy.storage.postgres import PostgresStorage
from romancy.storage.rows import MAX_SHAPES
from tests.storage.conftest import Database, offers


def where(**fields: Any) -> Filter:
    return Filter.build(where=fields)


# --- the log ---------------------------------------------------------------------------------------------------------
async def test_the_same_source_and_id_is_a_duplicate(db: Database) -> None:
    await db.waiting("a", "me")
    first = await db.send(id="e", source="s")
    again = await db.send(id="e", source="s", type="whatever")
    assert (first.duplicate, len(first.matched)) == (False, 1)
    assert (again.duplicate, again.seq, again.matched) == (True, first.seq, [])
    assert not (await db.send(id="e", source="t")).duplicate
    assert not (await db.send(id="E", source="s")).duplicate, "ids are compared byte by byte"


async def test_types_are_compared_byte_by_byte(db: Database) -> None:
    await db.waiting("a", "me", db.wait("w", "Order.Created"))
    for wrong in ("order.created", "Order.Created ", "Order.Create"):
        assert (await db.send(wrong)).matched == []
    assert len((await db.send("Order.Created")).matched) == 1


async def test_an_event_comes_back_as_it_was(db: Database) -> None:
    sent = db.event(
        "go", {"a": [1.5, None, "ü"]}, subject="s", time=5, dataschema="urn:x", extensions={"tenant": "t", "n": 3}
    )
    await db.waiting("a", "me")
    [offer] = (await db.commit("me", accepts=[sent])).offers
    assert offer.event.seq > 0
    for name in ("id", "source", "type", "data", "subject", "time", "dataschema", "extensions", "accepted_at"):
        assert getattr(offer.event, name) == getattr(sent.event, name), name


# --- whichever comes second ------------------------------------------------------------------------------------------
async def test_an_event_finds_the_waits_of_its_type(db: Database) -> None:
    await db.register("other")
    await db.waiting("mine", "me", db.wait("one"), db.wait("two", since="now"), db.wait("x", "other"))
    await db.waiting("theirs", "other")
    await db.waiting("bystander", "me", db.wait("w", "other"))
    answer = await db.commit("me", accepts=[db.event()])
    matched = {(m.instance, m.op) for m in answer.accepts[0].matched}
    assert matched == {("mine", "one"), ("mine", "two"), ("theirs", "w")}
    seq = answer.accepts[0].seq
    assert offers(answer) == [("mine", "one", seq), ("mine", "two", seq)], "only the owner is offered anything"
    assert (await db.storage.mail("other", 10)).deliveries == [("theirs", seq)]
    assert await db.look("theirs", "other") == [("w", seq)]
    assert await db.look("theirs", "me") == []


async def test_a_wait_finds_earlier_events_oldest_first(db: Database) -> None:
    await db.start("a", "me")
    seqs = [(await db.send()).seq for _ in range(3)]
    wait = db.wait("w0")
    answer = await db.step("a", "me", 0, opened=[wait])
    for n, seq in enumerate(seqs):
        assert offers(answer) == [("a", f"w{n}", seq)]
        following = db.wait(f"w{n + 1}")
        answer = await db.take("a", "me", n + 1, seq, wait, opened=[following])
        wait = following
    assert offers(answer) == []


async def test_event_and_wait_in_one_transaction(db: Database) -> None:
    await db.start("a", "me")
    await db.start("b", "me")
    opens = Commit("a", 0, "waiting_for_event", db.now, opened=[db.wait()])
    sends = Commit("b", 0, "running", db.now, sent=[db.event()])
    answer = await db.commit("me", commits=[opens, sends])
    assert [(i, op) for i, op, _ in offers(answer)] == [("a", "w")]


async def test_every_instance_takes_an_event_once(db: Database) -> None:
    for id in "ab":
        await db.waiting(id, "me")
    seq = (await db.send()).seq
    await db.take("a", "me", 1, seq, db.wait(), opened=[db.wait("again")])
    assert await db.look("a", "me") == []
    assert await db.look("b", "me") == [("w", seq)]
    [stored] = await db.storage.catalog.events()
    assert stored.receivers == [("a", "w")]


async def test_a_filtered_wait_skips_nothing_for_others(db: Database) -> None:
    await db.start("a", "me")
    first = (await db.send("go", {"n": 1})).seq
    second = (await db.send("go", {"n": 2})).seq
    narrow = db.wait("narrow", filter=where(n=2))
    assert offers(await db.step("a", "me", 0, opened=[narrow])) == [("a", "narrow", second)]
    wide = db.wait("wide")
    assert offers(await db.take("a", "me", 1, second, narrow, opened=[wide])) == [("a", "wide", first)]
    last = db.wait("last")
    assert offers(await db.take("a", "me", 2, first, wide, opened=[last])) == []


async def test_the_look_does_not_slow_down_with_what_was_taken(db: Database) -> None:
    """Marks: a loop over one type reads each event once, not all before it again (protocol C3)."""
    work: list[int] = []

    async def steps(count: int) -> int:
        counter = [0]

        def tick() -> int:
            counter[0] += 1
            return 0

        for _ in range(count):
            wait = waits.pop()
            version = await db.version("a")
            following = db.wait(f"w{version}")
            if isinstance(db.storage, PostgresStorage):
                await db.take("a", "me", version, seqs.pop(0), wait, opened=[following])
            else:
                connection = db.storage._batches._looker._run.__self__  # type: ignore[attr-defined]
                connection.set_progress_handler(tick, 10)
                await db.take("a", "me", version, seqs.pop(0), wait, opened=[following])
                connection.set_progress_handler(None, 10)
            waits.append(following)
        return await db.cost_of_look("a", "me") if isinstance(db.storage, PostgresStorage) else counter[0]

    await db.start("a", "me")
    seqs = [a.seq for a in (await db.commit(accepts=[db.event() for _ in range(400)])).accepts]
    waits = [db.wait("w0")]
    await db.step("a", "me", 0, opened=waits)
    work = [await steps(50) for _ in range(4)]
    if isinstance(db.storage, PostgresStorage):
        await db.analyze()  # its statistics come when they come: the work must not depend on them
    work += [await steps(50) for _ in range(3)]
    assert max(work) < 2 * min(work) + 20, f"the work per 50 events grows: {work}"


# --- since, expiry, target -------------------------------------------------------------------------------------------
async def test_what_came_before_the_instance_does_not_count(db: Database) -> None:
    await db.send()
    answer = await db.waiting("a", "me")
    assert offers(answer) == []
    assert await db.look("a", "me") == []


async def test_since_now_begins_with_the_wait(db: Database) -> None:
    await db.start("a", "me")
    await db.send()
    now = db.wait(since="now")
    assert offers(await db.step("a", "me", 0, opened=[now])) == []
    later = (await db.send()).seq
    assert await db.look("a", "me") == [("w", later)]
    both = await db.take("a", "me", 1, later, now, opened=[db.wait("all")])
    assert [seq for _, _, seq in offers(both)] == [later - 1], "the buffer is untouched"


async def test_since_a_time_reaches_behind_the_instance_but_not_behind_the_time(db: Database) -> None:
    seqs: list[int] = []
    moments: list[int] = []
    for _ in range(4):
        moments.append(db.now)
        seqs.append((await db.send()).seq)
        db.clock.turn_to(db.now + SECOND)
    await db.start("a", "me")
    wait = db.wait(since=moments[2])
    assert offers(await db.step("a", "me", 0, opened=[wait])) == [("a", "w", seqs[2])]
    following = db.wait("w2", since=moments[1])
    assert offers(await db.take("a", "me", 1, seqs[2], wait, opened=[following])) == [("a", "w2", seqs[1])]
    beginning = db.wait("w3", since=0)
    assert offers(await db.take("a", "me", 2, seqs[1], following, opened=[beginning])) == [("a", "w3", seqs[0])]


@pytest.mark.parametrize("since", ["now", 0])
async def test_a_wait_goes_on_after_the_event_of_another(db: Database, since: Any) -> None:
    """All events are accepted in the same microsecond: what came before the first wait stays out."""
    before = (await db.send()).seq
    await db.start("a", "me")
    version, wait, taken = 0, db.wait("w0", since=since), []
    await db.step("a", "me", version, opened=[wait])
    sent = [before] if since == 0 else []
    for _ in range(3):
        sent.append((await db.send()).seq)
        sent.append((await db.send()).seq)
    for n in range(1, len(sent) + 1):
        [offer] = (await db.commit("me", looks=[("a", None)])).offers
        taken.append(offer.event.seq)
        assert offer.place is not None
        version, following = version + 1, db.wait(f"w{n}", since=After(offer.place))
        await db.take("a", "me", version, taken[-1], wait, opened=[following])
        wait = following
    assert taken == sent
    assert (await db.commit("me", looks=[("a", None)])).offers == []


async def test_an_event_stored_late_hides_none_that_a_wait_since_a_time_may_take(db: Database) -> None:
    """Two processes accept at the same time: what was stamped first may be stored last, after an outage."""
    moment = db.now
    wanted = (await db.send(accepted_at=moment + SECOND)).seq
    await db.send(accepted_at=moment - SECOND)
    await db.start("a", "me")
    assert offers(await db.step("a", "me", 0, opened=[db.wait(since=moment)])) == [("a", "w", wanted)]


async def test_an_expired_event_is_kept_but_not_delivered(db: Database) -> None:
    await db.start("a", "me")
    short = (await db.send(expires_at=db.now + SECOND)).seq
    long = (await db.send(expires_at=db.now + 100 * SECOND)).seq
    db.clock.turn_to(db.now + 2 * SECOND)
    assert offers(await db.step("a", "me", 0, opened=[db.wait()])) == [("a", "w", long)]
    dead = await db.send(id="dead", expires_at=db.now)
    assert dead.matched == []
    assert {stored.event.seq for stored in await db.storage.catalog.events()} == {short, long, dead.seq}


async def test_a_targeted_event_is_for_one_instance_only(db: Database) -> None:
    for id in "abc":
        await db.start(id, "me")
    early = (await db.send(target="a")).seq
    for id in "ab":
        answer = await db.step(id, "me", 0, opened=[db.wait(), db.wait("f", filter=where(n=1))])
        assert offers(answer) == ([("a", "w", early)] if id == "a" else [])
    late = await db.send("go", {"n": 1}, target="b")
    assert {(m.instance, m.op) for m in late.matched} == {("b", "w"), ("b", "f")}
    assert sorted(await db.look("b", "me")) == [("f", late.seq), ("w", late.seq)]
    assert await db.look("a", "me", "f") == []
    common = (await db.send("go", {"n": 1})).seq
    assert await db.look("a", "me", "f") == [("f", common)]
    assert offers(await db.step("c", "me", 0, opened=[db.wait("f", filter=where(n=1))])) == [("c", "f", common)]


# --- several types ---------------------------------------------------------------------------------------------------
async def test_several_types_one_wait_oldest_first(db: Database) -> None:
    await db.start("a", "me")
    no = (await db.send("no")).seq
    yes = (await db.send("yes")).seq
    both = db.wait("w", "yes", "no")
    assert offers(await db.step("a", "me", 0, opened=[both])) == [("a", "w", no)]
    await db.take("a", "me", 1, no, db.wait("w", "no", "yes"))
    assert (await db.send("yes")).matched == [], "the wait is gone, with all its types"
    assert await db.rows("SELECT * FROM romancy.wait_keys") == []
    again = db.wait("w2", "yes", "no")
    assert offers(await db.step("a", "me", 2, opened=[again])) == [("a", "w2", yes)]


# --- filters ---------------------------------------------------------------------------------------------------------
FITTING: list[tuple[Filter, dict[str, Any], dict[str, Any]]] = [
    (Filter.build(subject="S"), {"subject": "S"}, {"subject": "s"}),
    (Filter.build(subject="S"), {"subject": "S"}, {}),
    (Filter.build(source="shop"), {"source": "shop"}, {}),
    (where(n=7), {"data": {"n": 7}}, {"data": {"n": "7"}}),
    (where(n=1), {"data": {"n": 1.0}}, {"data": {"n": True}}),
    (where(n=None), {"data": {"n": None}}, {"data": {}}),
    (where(n=2**53 + 1), {"data": {"n": 2**53 + 1}}, {"data": {"n": 2**53}}),
    (Filter.build(where={"a.b": "x"}), {"data": {"a": {"b": "x"}}}, {"data": {"a.b": "x"}}),
    (Filter.build(where={("a", 0): "x"}), {"data": {"a": ["x"]}}, {"data": {"a": {"0": "x"}}}),
    (
        Filter.build("S", "shop", {"n": 1, "m": "y"}),
        {"subject": "S", "source": "shop", "data": {"m": "y", "n": 1}},
        {"subject": "S", "source": "shop", "data": {"m": "y", "n": 2}},
    ),
]


@pytest.mark.parametrize(("narrow", "right", "wrong"), FITTING, ids=lambda x: x.fields if isinstance(x, Filter) else "")
async def test_a_filter_finds_what_comes_later_and_what_was_there(
    db: Database, narrow: Filter, right: dict[str, Any], wrong: dict[str, Any]
) -> None:
    await db.waiting("early", "me", db.wait(filter=narrow))
    await db.start("late", "me")
    assert (await db.send(**wrong)).matched == []
    accepted = await db.send(**right)
    assert [m.instance for m in accepted.matched] == ["early"]
    assert await db.look("early", "me") == [("w", accepted.seq)]
    assert offers(await db.step("late", "me", 0, opened=[db.wait(filter=narrow)])) == [("late", "w", accepted.seq)]


async def test_a_shape_nobody_used_before_is_filled_from_the_log(db: Database) -> None:
    await db.start("a", "me")
    events = [db.event("go", {"n": n % 10, "k": n}) for n in range(50)]
    seqs = [accept.seq for accept in (await db.commit(accepts=events)).accepts]
    assert await db.rows("SELECT count(*) FROM romancy.event_keys") == [(0,)], "nobody filters: nothing is written"
    assert offers(await db.step("a", "me", 0, opened=[db.wait(filter=where(n=7))])) == [("a", "w", seqs[7])]
    assert await db.rows("SELECT count(*) FROM romancy.event_keys") == [(50,)]
    await db.waiting("b", "me", db.wait(filter=where(n=3)))
    assert await db.rows("SELECT count(*) FROM romancy.shapes") == [(1,)]
    await db.send("other", {"n": 1})
    assert await db.rows("SELECT count(*) FROM romancy.event_keys") == [(50,)], "another type has shapes of its own"


async def test_more_shapes_than_are_indexed_still_match(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    count = 20
    await db.start("a", "me")
    old = (await db.send("go", {f"f{n}": 1 for n in range(count)})).seq
    with caplog.at_level(logging.WARNING, "romancy"):
        waits = [db.wait(f"w{n}", filter=where(**{f"f{n}": 1})) for n in range(count)]
        answer = await db.step("a", "me", 0, opened=waits)
    assert len(offers(answer)) == count, "the buffer is searched for all of them"
    assert await db.rows("SELECT count(*) FROM romancy.shapes") == [(16,)]
    assert "16 sets" in caplog.text
    await db.take("a", "me", 1, old, waits[-1])
    accepted = await db.send("go", {"f18": 1})
    assert [m.op for m in accepted.matched] == ["w18"], "the receipt counts waits it can't go to"
    seq = accepted.seq
    assert ("w18", seq) in await db.look("a", "me")
    assert offers_of(await db.look("a", "me"), seq) == ["w18"], "the others are not taken in"
    taken = await db.take("a", "me", 2, seq, waits[18])
    assert offers(taken) == []


# --- more shapes than are indexed ------------------------------------------------------------------------------------
async def crowd(db: Database, *filters: Filter) -> None:
    """So many shapes that these filters get none of their own: instance `f0` waits by the first of them, and so on."""
    await db.waiting("crowd", "me", *(db.wait(f"c{n}", filter=where(**{f"c{n}": 1})) for n in range(MAX_SHAPES)))
    for n, narrow in enumerate(filters):
        await db.waiting(f"f{n}", "me", db.wait(filter=narrow))
    assert await db.rows("SELECT count(*) FROM romancy.shapes") == [(MAX_SHAPES,)]


WIDE = {"many": list(range(MAX_ANCHORS))}


@pytest.mark.parametrize("more", [{}, WIDE], ids=["few values", "very many values"])
@pytest.mark.parametrize(("narrow", "right", "wrong"), FITTING, ids=lambda x: x.fields if isinstance(x, Filter) else "")
async def test_a_filter_without_an_index_finds_what_comes_later(
    db: Database, narrow: Filter, right: dict[str, Any], wrong: dict[str, Any], more: dict[str, Any]
) -> None:
    await crowd(db, narrow)
    for fields, fits in ((wrong, []), (right, ["f0"])):
        accepted = await db.send(**fields | {"data": {**fields.get("data", {}), **more}})
        assert [m.instance for m in accepted.matched] == fits
    assert await db.look("f0", "me") == [("w", accepted.seq)]
    assert [m.instance for m in (await db.send(**right, target="f0")).matched] == ["f0"]
    assert (await db.send(**right, target="crowd")).matched == []


async def test_an_event_is_compared_with_few_of_very_many_filters(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await crowd(db, *(where(kind="a", **{f"f{n}": 1}) for n in range(100)))
    compared = 0
    from_json = Filter.from_json

    def count(stored: dict[str, Any]) -> Filter:
        nonlocal compared
        compared += 1
        return from_json(stored)

    monkeypatch.setattr(Filter, "from_json", count)
    assert (await db.send(data={"kind": "a", "f100": 1})).matched == []
    assert compared == 0
    assert [m.instance for m in (await db.send(data={"kind": "a", "f57": 1})).matched] == ["f57"]
    assert compared == 1
    assert await db.rows("SELECT count(*) FROM romancy.deliveries") == [(1,)], "nobody else is bothered"


async def test_waits_that_were_stored_before_there_were_anchors_still_match(db: Database) -> None:
    await crowd(db, where(f=1), where(g=1))
    former = "key = ''" if isinstance(db.storage, PostgresStorage) else "shape = 0, key = x''"
    await db.rows(f"UPDATE romancy.wait_keys SET {former} WHERE shape = -1")
    accepted = await db.send(data={"g": 1})
    assert [m.instance for m in accepted.matched] == ["f1"]
    assert await db.look("f1", "me") == [("w", accepted.seq)]
    assert await db.look("f0", "me") == []


def offers_of(found: list[tuple[str, int]], seq: int) -> list[str]:
    return [op for op, event in found if event == seq]


async def test_data_that_is_not_json_has_no_fields(db: Database) -> None:
    await db.waiting("f", "me", db.wait(filter=where(n=1)))
    await db.waiting("all", "me")
    item = db.event()
    for raw, kind in ((b"\xff\x00", "application/octet-stream"), (b"{broken", "application/json")):
        event = replace(item.event, id=kind, data=raw, datacontenttype=kind)
        [answer] = (await db.commit(accepts=[Accept(event, b"")])).accepts
        assert [m.instance for m in answer.matched] == ["all"]


# --- models ----------------------------------------------------------------------------------------------------------
async def test_a_misfit_is_kept_for_other_models(db: Database) -> None:
    await db.start("a", "me")
    wrong = (await db.send("go", {"n": "x"})).seq
    right = (await db.send("go", {"n": 1})).seq
    strict = db.wait("strict", model="M")
    assert offers(await db.step("a", "me", 0, opened=[strict])) == [("a", "strict", wrong)]
    misfit = Misfit("strict", "M", wrong, "n is not a number")
    answer = await db.step("a", "me", 1, misfits=[misfit], seen_deliveries=[wrong], looks=["strict"])
    assert offers(answer) == [("a", "strict", right)], "the next one is looked for at once"
    again = db.wait("strict2", model="M")
    assert offers(await db.take("a", "me", 2, right, strict, opened=[again])) == [], "judged once per model"
    wider = db.wait("wider", model="M2")
    assert offers(await db.step("a", "me", 3, opened=[wider])) == [("a", "wider", wrong)]
    await db.waiting("b", "me", db.wait("w", since=0, model="M"))
    assert await db.look("b", "me") == [("w", wrong)], "and per instance"


# --- hints -----------------------------------------------------------------------------------------------------------
async def test_a_hint_stays_until_the_owner_saw_to_it(db: Database) -> None:
    await db.waiting("a", "me")
    seq = (await db.send()).seq
    assert (await db.storage.mail("me", 10)).deliveries == [("a", seq)]
    snapshot = await db.storage.load("a")
    assert snapshot is not None
    assert snapshot.deliveries == [seq]
    await db.take("a", "me", 1, seq, db.wait())
    assert (await db.storage.mail("me", 10)).deliveries == []


async def test_an_offer_leaves_a_hint_for_whoever_comes_after(db: Database) -> None:
    """The owner may die with the offer in its hands."""
    await db.start("a", "me")
    seq = (await db.send()).seq
    assert (await db.storage.mail("me", 10)).deliveries == []
    await db.step("a", "me", 0, opened=[db.wait()])
    await db.register("heir")
    await db.storage.take_over("heir", ["me"])
    assert list(await db.claim("heir")) == ["a"]
    assert await db.look("a", "heir") == [("w", seq)]


# --- starts by events ------------------------------------------------------------------------------------------------
async def triggers(db: Database, **deadline: Any) -> None:
    await db.register(
        "svc",
        workflows=("ship", "bill"),
        triggers=[("placed", "ship", None), ("placed", "bill", deadline.get("timeout"))],
    )


async def test_an_event_starts_each_workflow_once(db: Database) -> None:
    await triggers(db, timeout=int(timedelta(hours=1) / timedelta(microseconds=1)))
    batch = db.batch("svc", workflows=("ship",), accepts=[db.event("placed", {"n": 1}, id="p")])
    [answer] = (await db.submit(batch)).accepts
    assert {(s.workflow, s.owner) for s in answer.started} == {("ship", "svc"), ("bill", None)}
    again = await db.send("placed", {"n": 1}, id="p")
    assert (again.duplicate, again.started) == (True, [])
    rows = {row.workflow: row for row in await db.storage.catalog.instances()}
    assert set(rows) == {"ship", "bill"}
    assert rows["ship"].deadline is None
    assert rows["bill"].deadline == db.now + 3600 * SECOND
    assert (await db.send("placed", {"n": 1}, id="q")).started != []


async def test_the_starting_event_counts_as_read(db: Database) -> None:
    await triggers(db)
    batch = db.batch("svc", workflows=("ship", "bill"), accepts=[db.event("placed"), db.event("placed")])
    answer = await db.submit(batch)
    first = next(s for s in answer.accepts[0].started if s.workflow == "ship")
    opened = await db.step(first.id, "svc", 0, opened=[db.wait("w", "placed")])
    assert offers(opened) == [(first.id, "w", answer.accepts[1].seq)]


async def test_unfit_and_targeted_events_start_nothing(db: Database) -> None:
    await triggers(db)
    unfit = db.event("placed")
    unfit.unfit = ["ship"]
    answer = await db.commit(accepts=[unfit, db.event("placed", target="somebody")])
    assert [[s.workflow for s in a.started] for a in answer.accepts] == [["bill"], []]


async def test_registering_replaces_only_the_triggers_of_ones_own_workflows(db: Database) -> None:
    await triggers(db)
    await db.register("other service", workflows=("mail",), triggers=[("placed", "mail", None)])
    await db.register("new release", workflows=("ship", "bill"), triggers=[("placed", "ship", None)])
    assert {s.workflow for s in (await db.send("placed")).started} == {"ship", "mail"}


async def test_proposing_adds_what_is_missing_and_replaces_nothing(db: Database) -> None:
    await db.storage.propose([("placed", "ship@2", None), ("placed", "bill", 60 * SECOND)])
    assert {s.workflow for s in (await db.send("placed")).started} == {"ship@2", "bill"}, "no worker has announced them"
    await db.register("worker", workflows=("ship", "bill"), triggers=[("placed", "ship", None)])
    await db.storage.propose([("placed", "ship@2", None), ("moved", "ship@2", None)])
    assert {s.workflow for s in (await db.send("placed")).started} == {"ship"}, "the worker has chosen a version"
    assert {s.workflow for s in (await db.send("moved")).started} == {"ship@2"}
    await db.register("worker 2", workflows=("ship",), triggers=[("placed", "ship", None)])
    assert (await db.send("moved")).started == [], "the worker has the last word"


async def started_by(db: Database, type: str) -> set[str]:
    return {s.workflow for s in (await db.send(type)).started}


async def test_what_a_worker_has_taken_back_is_not_proposed_again(db: Database) -> None:
    await db.register("old", workflows=("ship", "bill"), triggers=[("placed", "ship", None), ("placed", "bill", None)])
    await db.register("new", workflows=("ship",), triggers=[("paid", "ship@2", None)])
    old = [("placed", "ship", None), ("placed", "bill", None), ("returned", "ship", None)]
    for n in range(2):
        await db.storage.propose(old)  # a pod of an old server starts
        assert await started_by(db, "placed") == {"bill"}
        await db.register(f"another {n}", workflows=("ship",), triggers=[("paid", "ship@2", None)])
    await db.storage.propose(old)
    assert await started_by(db, "returned") == set(), "taken back as well, though no worker had announced it"
    await db.storage.propose([("paid", "ship", None), ("lost", "ship@2", None)])
    assert await started_by(db, "paid") == {"ship@2"}
    assert await started_by(db, "lost") == {"ship@2"}, "no worker has taken this back"


async def test_a_worker_announces_again_what_was_taken_back(db: Database) -> None:
    placed, paid = ("placed", "ship", None), ("paid", "ship@2", None)
    await db.register("old", workflows=("ship",), triggers=[placed])
    await db.register("new", workflows=("ship",), triggers=[paid])
    await db.register("old again", workflows=("ship",), triggers=[placed])
    await db.storage.propose([paid])
    assert await started_by(db, "placed") == {"ship"}
    assert await started_by(db, "paid") == set()
    await db.register("both", workflows=("ship",), triggers=[placed, ("placed", "ship@2", None), paid])
    assert await started_by(db, "placed") == {"ship@2"}
    await db.register("higher", workflows=("ship",), triggers=[("placed", "ship@2", None)])
    assert await started_by(db, "placed") == {"ship@2"}
    await db.storage.propose([placed, paid])
    assert await started_by(db, "placed") == {"ship@2"}
    assert await started_by(db, "paid") == set()
    await db.register("none", workflows=("ship",))
    await db.storage.propose([placed, paid])
    assert await started_by(db, "placed") == set()


async def test_what_was_taken_back_is_no_trigger(db: Database) -> None:
    types = ["order.paid", "order.*", "*"]
    await db.register("old", workflows=("ship",), triggers=[(type, "ship", None) for type in types])
    assert await db.storage.catalog.triggers(["order.paid"]) == {"order.paid": ["ship"]}
    await db.register("new", workflows=("ship",))
    assert await db.storage.catalog.triggers(["order.paid", "a"]) == {"order.paid": [], "a": []}
    assert await started_by(db, "order.paid") == set()
    for type in types:
        await db.storage.propose([(type, "ship@3", None)])
        assert await started_by(db, "order.paid") == set()
    await db.register("newer", workflows=("ship",), triggers=[("order.*", "ship", None)])
    assert await db.storage.catalog.triggers(["order.paid", "a"]) == {"order.paid": ["ship"], "a": []}


async def test_sent_events_start_and_match_like_any_other(db: Database) -> None:
    await triggers(db)
    await db.waiting("a", "me", db.wait("w", "placed"))
    await db.start("b", "me")
    answer = await db.step("b", "me", 0, status="completed", sent=[db.event("placed", id="s")])
    assert [m.instance for m in answer.sent[0].matched] == ["a"]
    assert len(answer.sent[0].started) == 2
    assert [instance for instance, _, _ in offers(answer)] == ["a"]


# --- reading ---------------------------------------------------------------------------------------------------------
async def test_waits_are_listed_in_pages(db: Database) -> None:
    for n in range(5):
        await db.waiting(f"i{n}", "me", db.wait("e", "go"), db.wait("t", due=db.now + n))
    listed = await db.storage.catalog.waits(limit=100)
    assert [(w.instance, w.op, w.kind) for w in listed][:2] == [("i0", "e", "event"), ("i0", "t", "timer")]
    pages: list[tuple[str, str]] = []
    cursor = None
    while page := await db.storage.catalog.waits(limit=3, cursor=cursor):
        pages += [(w.instance, w.op) for w in page]
        cursor = (page[-1].instance, page[-1].op)
    assert pages == [(w.instance, w.op) for w in listed]
    assert [w.instance for w in await db.storage.catalog.waits(type="go")] == [f"i{n}" for n in range(5)]
    assert json.loads(listed[0].spec)["types"] == ["go"]


async def test_events_are_listed_newest_first(db: Database) -> None:
    await db.waiting("a", "me")
    seqs = [(await db.send("go" if n % 2 else "other")).seq for n in range(6)]
    await db.take("a", "me", 1, seqs[1], db.wait())
    assert [s.event.seq for s in await db.storage.catalog.events(limit=4)] == seqs[::-1][:4]
    assert [s.event.seq for s in await db.storage.catalog.events(before=seqs[2])] == [seqs[1], seqs[0]]
    assert [s.event.seq for s in await db.storage.catalog.events(type="go")] == [seqs[5], seqs[3], seqs[1]]
    assert [s.event.seq for s in await db.storage.catalog.events(instance="a")] == [seqs[1]]
    assert seqs[1] not in [s.event.seq for s in await db.storage.catalog.events(unmatched=True)]


async def test_instances_are_listed_newest_first_in_pages(db: Database) -> None:
    for n in range(7):
        await db.start(f"i{n}", "me", "wf" if n % 2 else "other")
        db.clock.turn_to(db.now + (n % 2))
    seen: list[str] = []
    cursor = None
    while page := await db.storage.catalog.instances(limit=2, cursor=cursor):
        seen += [row.id for row in page]
        cursor = (page[-1].created_at, page[-1].id)
    assert len(seen) == len(set(seen)) == 7
    assert seen == [row.id for row in await db.storage.catalog.instances(limit=100)]
    assert {row.id for row in await db.storage.catalog.instances(Search(workflow="wf"))} == {"i1", "i3", "i5"}
    assert [row.id for row in await db.storage.catalog.instances(Search(text="i4"))] == ["i4"]
    assert await db.storage.catalog.instances(Search(status=["completed"])) == []


async def test_an_event_without_data_is_found_by_the_first_wait_that_filters_its_type(db: Database) -> None:
    """A shape that nobody used before is back-filled from all events of the type, not only from those with data."""
    await db.start("a", "me")
    seq = (await db.send(subject="S")).seq
    await db.step("a", "me", 0, opened=[db.wait(filter=Filter.build(subject="S"))])
    assert await db.look("a", "me") == [("w", seq)]
