"""Sinks: what is passed on, in which order, and what becomes of it if that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from romancy import (
    NO_RETRY,
    App,
    Event,
    InvalidInput,
    ReceivedEvent,
    Retention,
    Webhook,
    WorkerOptions,
    WorkflowContext,
    activity,
    send_event,
    workflow,
)
from romancy.engine.breaker import STRIKES
from romancy.engine.relay_window import Arrivals
from romancy.service import runtime_of
from romancy.storage.sinks import Sinks
from romancy.testing import Environment, environment
from tests.sinks.receiver import gave_up, until


class Recorder:
    """A sink that remembers what it got, and refuses what it is told to."""

    def __init__(self, name: str = "rec", types: str | Sequence[str] = "order.*", **settings: Any) -> None:
        self.name, self.types = name, types
        self.got: list[ReceivedEvent[Any]] = []
        self.refuses: Callable[[ReceivedEvent[Any]], bool] = lambda event: False
        self.tried = 0
        for setting, value in settings.items():
            setattr(self, setting, value)

    async def deliver(self, event: ReceivedEvent[Any]) -> None:
        self.tried += 1
        if self.refuses(event):
            raise ConnectionError(f"no {event.id}")
        self.got.append(event)

    @property
    def ids(self) -> list[str]:
        return [event.id for event in self.got]


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "romancy")  # whatever tests before this one have set


@pytest.fixture
def env_with() -> Callable[..., AbstractAsyncContextManager[Environment]]:
    return lambda *sinks, **options: environment(sinks=list(sinks), **options)


@workflow
async def ship(ctx: WorkflowContext, order: str) -> None:
    await send_event(ctx, "order.shipped", "shop", {"order": order}, subject=order)


# --- what is passed on ------------------------------------------------------------------------------------------------
async def test_what_the_app_and_its_workflows_send(db: str) -> None:
    sink = Recorder()
    async with App(db, workflows=[ship], sinks=[sink]) as app:
        await app.send_event("order.paid", "shop", {"order": "1"}, subject="1", id="a", extensions={"tenant": "x"})
        await app.send_event("cart.filled", "shop", id="b")
        await app.send_events([Event("order.paid", "shop", id="c"), Event("order", "shop", id="d")])
        await (await app.start_workflow(ship, "7")).result(10)
        await until(lambda: len(sink.got) == 3)
    first, _, last = sink.got
    assert (first.id, first.type, first.source, first.subject, first.data) == (
        "a",
        "order.paid",
        "shop",
        "1",
        {"order": "1"},
    )
    assert first.extensions == {"tenant": "x"}
    assert (last.type, last.subject, last.data) == ("order.shipped", "7", {"order": "7"})


async def test_a_new_sink_begins_with_what_is_sent_from_then_on(db: str) -> None:
    async with App(db) as app:
        await app.send_event("order.paid", "shop", id="before")
    sink = Recorder()
    async with App(db, sinks=[sink]) as app:
        await app.send_event("order.paid", "shop", id="after")
        await until(lambda: bool(sink.got))
    assert sink.ids == ["after"]


async def test_a_process_without_a_worker_declares_it_too(db: str) -> None:
    async with App(db, worker=False, sinks=[Recorder()]) as app:
        await app.send_event("order.paid", "shop", id="early")
    sink = Recorder()
    async with App(db, sinks=[sink]):
        await until(lambda: sink.ids == ["early"])


async def test_nothing_that_came_from_outside_is_passed_on(db: str) -> None:
    """Otherwise two systems that pass events on to each other would do so for ever."""
    sink = Recorder(types="*")
    hook = Webhook("crm", verify=lambda request: True, to_event=lambda request: Event("crm.x", "crm", id="hooked"))
    app = App(db, sinks=[sink], webhooks=[hook])
    async with app, httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://app") as client:
        for n in range(2):
            headers = {"ce-specversion": "1.0", "ce-id": f"in-{n}", "ce-source": "x", "ce-type": "order.paid"}
            assert (await client.post("/", headers=headers)).status_code == 202
            assert (await client.post("/webhooks/crm", content=b"{}")).status_code == 200
            await app.send_event("order.paid", "shop", id=f"own-{n}")
            await until(lambda count=n + 1: len(sink.got) == count)
    assert sink.ids == ["own-0", "own-1"]


async def test_nothing_that_is_addressed_or_our_own_is_passed_on(env_with: Any) -> None:
    sink = Recorder(types="*")
    async with env_with(sink, workflows=[ship]) as env:
        handle = await env.start(ship, "1")
        await env.send_event("order.paid", "shop", to=handle.instance_id)
        await handle.result()
        assert [event.type for event in sink.got] == ["order.shipped"]


async def test_expired_events_are_left_out(env_with: Any) -> None:
    sink = Recorder()
    async with env_with(sink) as env:
        sink.refuses = lambda event: event.id == "first"
        await env.send_event("order.paid", "shop", id="first", subject="1")
        later = env.app.send_event(
            "order.paid", "shop", id="second", subject="1", extensions={"expirytime": "2000-01-01T00:00:00Z"}
        )
        await later
        await env.advance(timedelta(minutes=5))
        sink.refuses = lambda event: False
        await env.advance(timedelta(hours=2))
        assert sink.ids == ["first"]


# --- order and failures -----------------------------------------------------------------------------------------------
async def test_a_failing_subject_holds_nobody_else_and_stays_in_order(env_with: Any) -> None:
    sink = Recorder()
    sink.refuses = lambda event: event.subject == "bad"
    async with env_with(sink) as env:
        for n in range(3):
            for subject in ("bad", "good"):
                await env.send_event("order.paid", "shop", n, subject=subject, id=f"{subject}-{n}")
        assert sink.ids == ["good-0", "good-1", "good-2"]
        [record] = await env.app.list_sinks()
        assert (record.name, record.types, record.parked, record.dead) == ("rec", ("order.*",), 3, 0)
        assert record.last_error
        assert record.worker_id is not None
        sink.refuses = lambda event: False
        await env.advance(timedelta(hours=1))
        assert sink.ids[3:] == ["bad-0", "bad-1", "bad-2"]
        await env.send_event("order.paid", "shop", subject="bad", id="bad-3")
        assert sink.ids[-1] == "bad-3"
        assert (await env.app.list_sinks())[0].parked == 0


async def test_events_without_a_subject_wait_for_none(env_with: Any) -> None:
    sink = Recorder()
    sink.refuses = lambda event: event.id == "0"
    async with env_with(sink) as env:
        for n in range(3):
            await env.send_event("order.paid", "shop", id=str(n))
        assert sink.ids == ["1", "2"]


async def test_the_pauses_grow(env_with: Any) -> None:
    sink = Recorder()
    sink.refuses = lambda event: True
    async with env_with(sink) as env:
        await env.send_event("order.paid", "shop", subject="1")
        for _ in range(24 * 2):
            await env.advance(timedelta(minutes=30))
        assert 20 <= sink.tried <= 60, "hourly in the end"


async def test_what_is_given_up_is_listed_and_can_be_retried(env_with: Any, caplog: pytest.LogCaptureFixture) -> None:
    sink = Recorder(give_up_after=timedelta(hours=5))
    sink.refuses = lambda event: event.id == "1"
    async with env_with(sink) as env:
        for n in range(1, 4):
            await env.send_event("order.paid", "shop", n, subject="s", id=str(n))
        assert (await env.app.list_dead_letters()).items == []
        for _ in range(12):
            await env.advance(timedelta(minutes=30))
        assert sink.ids == ["2", "3"], "the others go on"
        [letter] = (await env.app.list_dead_letters("rec")).items
        assert (letter.sink, letter.event.event.id, letter.error) == ("rec", "1", "ConnectionError: no 1")
        assert letter.attempts > 5
        assert "sink 'rec' gave up event '1'" in caplog.text
        assert (await env.app.list_dead_letters("other")).items == []
        assert (await env.app.list_sinks())[0].dead == 1

        assert await env.app.retry_dead_letters("rec") == 1
        await env.advance(1)
        assert sink.ids == ["2", "3"], "it still fails"
        sink.refuses = lambda event: False
        await env.advance(timedelta(hours=1))
        assert sink.ids == ["2", "3", "1"]
        assert (await env.app.list_dead_letters()).items == []
        assert await env.app.retry_dead_letters("rec") == 0
        with pytest.raises(InvalidInput, match="there is no sink named 'crm'"):
            await env.app.retry_dead_letters("crm")


async def test_one_that_is_given_up_can_hold_its_subject(env_with: Any) -> None:
    sink = Recorder(give_up_after=timedelta(hours=1), on_dead="hold")
    sink.refuses = lambda event: event.id == "1"
    async with env_with(sink) as env:
        for n in range(1, 4):
            await env.send_event("order.paid", "shop", n, subject="s", id=str(n))
        for _ in range(6):
            await env.advance(timedelta(hours=1))
        await env.send_event("order.paid", "shop", 4, subject="s", id="4")
        await env.send_event("order.paid", "shop", 4, subject="t", id="t")
        assert sink.ids == ["t"]
        assert len((await env.app.list_dead_letters()).items) == 1
        sink.refuses = lambda event: False
        assert await env.app.retry_dead_letters("rec") == 1
        await env.advance(1)
        assert sink.ids == ["t", "1", "2", "3", "4"]


async def test_pages_of_dead_letters(env_with: Any) -> None:
    sinks = [Recorder(name, give_up_after=0) for name in ("a", "b")]
    for sink in sinks:
        sink.refuses = lambda event: True
    async with env_with(*sinks) as env:
        for n in range(3):
            await env.send_event("order.paid", "shop", id=str(n))
        found, cursor = [], None
        while True:
            page = await env.app.list_dead_letters(limit=2, cursor=cursor)
            found += [(letter.sink, letter.event.event.id) for letter in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        assert found == [(sink, str(n)) for sink in "ab" for n in range(3)]
        assert await env.app.retry_dead_letters("a", limit=2) == 2


async def test_a_receiver_that_is_down_is_left_alone(env_with: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The sink stands still then, and tries an event from time to time."""
    sink = Recorder()
    sink.refuses = lambda event: True
    async with env_with(sink) as env:
        for n in range(200):
            await env.app.send_event("order.paid", "shop", n, subject=f"s{n}", id=str(n))
        await env.advance(0)
        assert sink.tried < STRIKES + 10
        for _ in range(24):
            await env.advance(timedelta(hours=1))
        assert STRIKES <= sink.tried < 200
        assert caplog.text.count("nothing can be delivered") == 1
        sink.refuses = lambda event: False
        await env.advance(timedelta(hours=2))
        assert sorted(sink.ids, key=int) == [str(n) for n in range(200)]
        assert "sink 'rec' delivers again" in caplog.text


async def test_a_poisonous_subject_alone_does_not_stop_the_sink(env_with: Any) -> None:
    """However often it fails, others are delivered at once."""
    sink = Recorder()
    sink.refuses = lambda event: event.subject == "bad"
    async with env_with(sink) as env:
        await env.send_event("order.paid", "shop", subject="bad", id="bad")
        for _ in range(10):
            await env.advance(timedelta(hours=1))
        await env.send_event("order.paid", "shop", subject="good", id="good")
        assert sink.ids == ["good"]


async def test_a_slow_subject_holds_nobody_else(db: str) -> None:
    sink = Recorder(max_concurrent=2)
    slow = asyncio.Event()
    deliver = sink.deliver

    async def slowly(event: ReceivedEvent[Any]) -> None:
        if event.subject == "slow":
            await slow.wait()
        await deliver(event)

    sink.deliver = slowly  # type: ignore[method-assign]
    async with App(db, sinks=[sink]) as app:
        await app.send_event("order.paid", "shop", subject="slow", id="slow")
        for n in range(1200):
            await app.send_event("order.paid", "shop", subject=f"s{n % 7}", id=str(n))
        await until(lambda: len(sink.got) >= 400)
        slow.set()
        await until(lambda: len(sink.got) == 1201)
    for n in range(7):
        own = [int(event.id) for event in sink.got if event.subject == f"s{n}"]
        assert own == sorted(own)


async def test_time_limits(db: str) -> None:
    sink = Recorder(timeout=0.05, give_up_after=0)

    async def never(event: ReceivedEvent[Any]) -> None:
        await asyncio.sleep(3600)

    sink.deliver = never  # type: ignore[method-assign]
    async with App(db, sinks=[sink]) as app:
        await app.send_event("order.paid", "shop")
        letters = await gave_up(app)
    assert letters[0].error == "no answer within 0.05 seconds"


# --- life -------------------------------------------------------------------------------------------------------------
async def test_it_goes_on_where_it_stopped(db: str) -> None:
    sink = Recorder()
    async with App(db, sinks=[sink]) as app:
        for n in range(50):
            await app.send_event("order.paid", "shop", subject=str(n % 3), id=str(n))
        await until(lambda: len(sink.got) > 5)
    async with App(db, sinks=[sink]):
        await until(lambda: len(set(sink.ids)) == 50)
    assert len(sink.ids) < 75, "only what was under way is repeated"


async def test_one_worker_has_it_and_another_takes_over(db: str) -> None:
    first, second = Recorder(), Recorder()
    one, two = App(db, sinks=[first], lease=2.0), App(db, sinks=[second], lease=2.0)
    async with one:
        await one.send_event("order.paid", "shop", id="0")
        await until(lambda: first.ids == ["0"])
        async with two:
            for n in range(1, 6):
                await two.send_event("order.paid", "shop", id=str(n))
            await until(lambda: len(first.ids) == 6)
            assert second.ids == []
            await runtime_of(one).crash()
            await two.send_event("order.paid", "shop", id="6")
            await until(lambda: "6" in second.ids)
    assert [*dict.fromkeys(first.ids + second.ids)] == [str(n) for n in range(7)]


async def test_a_delivery_under_way_ends_before_the_app_stops(db: str) -> None:
    sink = Recorder()
    begun, deliver = asyncio.Event(), sink.deliver

    async def slowly(event: ReceivedEvent[Any]) -> None:
        begun.set()
        await asyncio.sleep(0.2)
        await deliver(event)

    sink.deliver = slowly  # type: ignore[method-assign]
    async with App(db, sinks=[sink]) as app:
        await app.send_event("order.paid", "shop", id="1")
        await asyncio.wait_for(begun.wait(), 10)
    assert sink.ids == ["1"]
    async with App(db, sinks=[sink]) as app:
        await app.send_event("order.paid", "shop", id="2")
        await until(lambda: "2" in sink.ids)
    assert sink.ids == ["1", "2"], "its end was stored"


async def test_retention_passes_no_event_that_is_not_delivered(env_with: Any) -> None:
    sink = Recorder(give_up_after=timedelta(days=90))
    sink.refuses = lambda event: True
    async with env_with(sink, retention=Retention(instances=timedelta(days=1), events=timedelta(days=2))) as env:
        for n in range(20):
            await env.app.send_event("order.paid", "shop", n, subject=str(n), id=str(n))
        await env.app.send_event("cart.filled", "shop", id="other")
        for _ in range(10):
            await env.advance(timedelta(days=1))
        kept = {record.event.id for record in (await env.app.list_events(limit=100)).items}
        assert kept == {str(n) for n in range(20)}
        sink.refuses = lambda event: False
        for _ in range(4):
            await env.advance(timedelta(days=1))
        assert sorted(sink.ids, key=int) == [str(n) for n in range(20)]
        for _ in range(3):
            await env.advance(timedelta(days=1))
        assert (await env.app.list_events()).items == []


async def test_old_dead_letters_and_sinks_that_are_gone_are_forgotten(
    db: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Recorder(give_up_after=0)
    sink.refuses = lambda event: True
    async with environment(database=db, sinks=[sink]) as env:
        await env.send_event("order.paid", "shop", id="1")
        await env.advance(timedelta(days=5))
        assert len((await env.app.list_dead_letters()).items) == 1
        await env.advance(timedelta(days=4))
        assert (await env.app.list_dead_letters()).items == []
        await env.advance(timedelta(days=60))
        assert [record.name for record in await env.app.list_sinks()] == ["rec"], "it is still declared"


async def test_a_retried_instance_does_not_send_twice(env_with: Any) -> None:
    broken = True

    @activity
    async def charge(ctx: Any) -> None:
        if broken:
            raise RuntimeError

    @workflow(name="flaky")
    async def flaky(ctx: WorkflowContext) -> None:
        await send_event(ctx, "order.begun", "shop")
        await charge(ctx)

    sink = Recorder()
    async with env_with(sink, retry=NO_RETRY) as env:
        env.app.register(flaky)
        handle = await env.start(flaky)
        with pytest.raises(Exception, match="flaky"):
            await handle.result()
        broken = False
        await (await env.app.retry_workflow(handle.instance_id)).result(10)
        await env.advance(1)
        assert [event.type for event in sink.got] == ["order.begun"]


# --- found by attacks -------------------------------------------------------------------------------------------------
async def test_a_type_that_comes_up_between_two_reads_is_not_passed(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Types are read before events: one of a new type must not be overtaken by later ones of a known type."""
    sink = Recorder()
    find, sent = Sinks._types, 0

    async def slow(self: Sinks, prefix: str) -> set[str]:
        nonlocal sent
        found = await find(self, prefix)
        if 0 < sent < 20:
            await other.send_event(f"order.new{sent}", "shop", id=f"new-{sent}")
            await other.send_event("order.paid", "shop", id=f"known-{sent}")
            sent += 1
        return found

    async with App(db, worker=False) as other, App(db, sinks=[sink]) as app:
        await app.send_event("order.paid", "shop", id="first")
        await until(lambda: bool(sink.got))
        monkeypatch.setattr(Sinks, "_types", slow)
        sent = 1
        await until(lambda: sent == 20 and len(sink.got) >= 39, 60)
    assert set(sink.ids) == {"first", *(f"{kind}-{n}" for n in range(1, 20) for kind in ("new", "known"))}


class Odd(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), Odd(), OSError("a \0 and \udcff")], ids=["cancelled", "odd", "unstorable"]
)
async def test_whatever_a_delivery_raises_is_a_failure(env_with: Any, error: BaseException) -> None:
    sink = Recorder(give_up_after=timedelta(minutes=30))
    deliver = sink.deliver

    async def oddly(event: ReceivedEvent[Any]) -> None:
        if event.subject == "bad":
            raise error
        await deliver(event)

    sink.deliver = oddly  # type: ignore[method-assign]
    async with env_with(sink) as env:
        await env.send_event("order.paid", "shop", subject="bad", id="bad")
        await env.send_event("order.paid", "shop", subject="good", id="good")
        assert sink.ids == ["good"]
        for _ in range(4):
            await env.advance(timedelta(minutes=30))
        assert len((await env.app.list_dead_letters()).items) == 1


async def test_retried_letters_of_one_subject_wait_for_the_first(db: str) -> None:
    sink = Recorder(give_up_after=0)
    sink.refuses = lambda event: event.subject == "s"
    async with environment(database=db, sinks=[sink]) as env:
        for n in range(60):
            await env.send_event("order.paid", "shop", n, subject="s", id=str(n))
        assert len((await env.app.list_dead_letters(limit=100)).items) == 60
    patient = Recorder()
    patient.refuses = sink.refuses
    async with environment(database=db, sinks=[patient]) as env:
        assert await env.app.retry_dead_letters("rec") == 60
        await env.advance(10)
        assert patient.tried < 10
        patient.refuses = lambda event: False
        await env.advance(timedelta(hours=1))
        assert patient.ids == [str(n) for n in range(60)]


async def test_a_long_slow_line_holds_nobody_else(db: str) -> None:
    sink = Recorder()
    deliver = sink.deliver

    async def slowly(event: ReceivedEvent[Any]) -> None:
        if event.subject == "slow":
            await asyncio.sleep(0.2)
        await deliver(event)

    sink.deliver = slowly  # type: ignore[method-assign]
    async with App(db, sinks=[sink], worker=WorkerOptions(grace=0.5)) as app:
        await app.send_events([Event("order.paid", "shop", subject="slow", id=str(n)) for n in range(500)])
        await until(lambda: len(sink.got) > 2)
        await app.send_event("order.paid", "shop", subject="fast", id="fast")
        await until(lambda: "fast" in sink.ids)
        assert len(sink.got) < 200


async def test_subjects_that_always_fail_keep_nobody_waiting(env_with: Any) -> None:
    sink = Recorder(give_up_after=timedelta(days=30))
    sink.refuses = lambda event: str(event.subject).startswith("bad")
    async with env_with(sink) as env:
        for n in range(40):
            await env.app.send_event("order.paid", "shop", subject=f"bad-{n}")
        await env.advance(timedelta(hours=1))
        for n in range(10):
            await env.send_event("order.paid", "shop", subject="good", id=str(n))
            await env.advance(timedelta(minutes=11))
            assert len(sink.got) == n + 1


async def test_a_dead_letter_that_holds_others_is_kept(env_with: Any) -> None:
    sink = Recorder(give_up_after=0, on_dead="hold")
    sink.refuses = lambda event: event.id == "1"
    async with env_with(sink) as env:
        for n in (1, 2):
            await env.send_event("order.paid", "shop", subject="s", id=str(n))
        await env.advance(timedelta(days=60))
        assert len((await env.app.list_dead_letters()).items) == 1
        sink.refuses = lambda event: False
        await env.app.retry_dead_letters("rec")
        await env.advance(1)
        assert sink.ids == ["1", "2"]


async def test_newer_code_adds_a_type_while_older_code_runs_the_sink(db: str) -> None:
    old, new = Recorder(types=["order.paid"]), Recorder(types=["order.paid", "cart.filled"])
    async with App(db, sinks=[old], lease=0.5) as first:
        await first.send_event("order.paid", "shop", id="0")
        await until(lambda: old.ids == ["0"])
        async with App(db, sinks=[new], lease=0.5) as second:
            for n in range(5):
                await second.send_event("cart.filled", "shop", id=f"cart-{n}")
                await second.send_event("order.paid", "shop", id=f"paid-{n}")
            await until(lambda: len({*old.ids, *new.ids}) == 11)
    assert {*old.ids, *new.ids} == {"0", *(f"{kind}-{n}" for kind in ("cart", "paid") for n in range(5))}


async def test_a_delivery_that_can_not_be_cancelled_does_not_keep_the_app(db: str) -> None:
    sink, release = Recorder(), asyncio.Event()

    async def stubborn(event: ReceivedEvent[Any]) -> None:
        sink.tried += 1
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    sink.deliver = stubborn  # type: ignore[method-assign]
    app = App(db, sinks=[sink], worker=WorkerOptions(grace=0.1))
    await app.start()
    await app.send_event("order.paid", "shop")
    await until(lambda: sink.tried == 1)
    async with asyncio.timeout(10):
        await app.stop()
    release.set()
    await asyncio.sleep(0)


def test_waiting_for_what_is_hidden_becomes_rare() -> None:
    arrivals = Arrivals()
    for seq in range(2000):
        arrivals.stored(seq)
    arrivals.read([], is_end=True)
    assert arrivals.are_hidden
    rests: list[float] = []
    for _ in range(8):
        rests.append(arrivals.rest)
        arrivals.read([], is_end=True)
    assert rests[0] < 0.1
    assert rests[-1] == 1.0
    arrivals.pause()
    assert not arrivals.are_hidden


# --- bad input --------------------------------------------------------------------------------------------------------
class NoDeliver:
    name, types = "x", ["a"]

    def deliver(self, event: object) -> None: ...


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        ([object()], "a sink has a name, types and `async def deliver"),
        ([NoDeliver()], "a sink has a name, types and `async def deliver"),
        ([Recorder("a b")], "the name of a sink consists of"),
        ([Recorder(types=[])], "types must name 1 to 100"),
        ([Recorder(types=["or*der"])], "a pattern is a type"),
        ([Recorder(types="romancy.asked")], "Romancy's own"),
        ([Recorder(), Recorder()], "two sinks have the name 'rec'"),
        ([Recorder(timeout=0)], "timeout must not be 0"),
        ([Recorder(max_concurrent=0)], "max_concurrent must be at least 1"),
        ([Recorder(on_dead="drop")], 'on_dead must be "skip" or "hold"'),
        ([Recorder(give_up_after=-1)], "give_up_after of sink 'rec' must not be negative"),
        (Recorder(), "sinks must be a list"),
    ],
)
def test_what_is_no_sink(sinks: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        App(":memory:", sinks=sinks)
