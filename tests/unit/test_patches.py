"""`ctx.patched`: which way a run takes where its code was changed, live and on replay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from romancy import ActivityContext, WorkflowContext, activity, sleep, wait_event, workflow
from romancy.core.eviction import Halted
from romancy.core.history import Entry, Kind
from romancy.core.instance import Instance
from romancy.errors import InvalidInput, NonDeterminismError

T0 = 1_800_000_000_000_000
Code = Callable[[WorkflowContext], Awaitable[Any]]


@activity
async def charge(ctx: ActivityContext) -> int:
    raise AssertionError("activities don't run here")


@activity
async def check(ctx: ActivityContext) -> int:
    raise AssertionError("activities don't run here")


class Run:
    """One instance, answered by hand; it can be replayed with other code, and go on with it."""

    alive: list[Instance] = []  # noqa: RUF012

    def __init__(self, code: Code) -> None:
        self.history: list[Entry] = []
        self.instance = self._new(code)
        self.instance.begin()
        self._take()

    def _new(self, code: Code) -> Instance:
        instance = Instance(workflow(name="wf")(code)._definition, "i", b"{}", T0)  # type: ignore[arg-type]
        self.alive.append(instance)
        return instance

    def _take(self) -> None:
        self.history += self.instance.take().entries

    def done(self, op: str) -> Run:
        self.instance.feed(self.instance.record(Kind.ACTIVITY_COMPLETED, op, T0, b"1"))
        self._take()
        return self

    def fire(self, op: str) -> Run:
        self.instance.feed(self.instance.record(Kind.TIMER_FIRED, op, T0))
        self._take()
        return self

    def reloaded(self, code: Code) -> Run:
        """It leaves memory and comes back, with this code."""
        self.instance.evict()
        self.instance = self._new(code)
        self.instance.replay(self.history)
        return self

    @property
    def open(self) -> list[str]:
        return list(self.instance.ops)

    @property
    def marks(self) -> list[tuple[int, str]]:
        """(number, change) of each mark."""
        return [(entry.n, entry.op) for entry in self.history if entry.kind == Kind.PATCHED]

    @property
    def output(self) -> Any:
        outcome = self.instance.outcome
        assert outcome is not None, self.open
        return outcome.output if outcome.error is None else outcome.error.error_type


@pytest.fixture(autouse=True)
def evicted() -> Iterator[None]:
    yield
    for instance in Run.alive:
        instance.evict()
    Run.alive.clear()


async def old(ctx: WorkflowContext) -> str:
    await charge(ctx)
    await sleep(ctx, 1)
    return "old"


async def new(ctx: WorkflowContext) -> str:
    await charge(ctx)
    if ctx.patched("fraud-check"):
        await check(ctx)
        return "new"
    await sleep(ctx, 1)
    return "old"


async def newest(ctx: WorkflowContext) -> str:
    """The question is deleted."""
    await charge(ctx)
    await check(ctx)
    return "new"


def test_a_new_run_takes_the_new_way_and_keeps_to_it() -> None:
    run = Run(new).done("charge:1")
    assert run.marks == [(2, "fraud-check")]
    assert run.history[-1].input is None
    assert run.reloaded(new).open == ["check:1"]
    assert run.done("check:1").output == b'"new"'
    assert run.marks == [(2, "fraud-check")]


def test_a_run_that_is_past_the_question_keeps_to_the_old_way() -> None:
    run = Run(old).done("charge:1").reloaded(new)
    assert run.open == ["sleep:1"]
    assert run.fire("sleep:1").output == b'"old"'
    assert run.marks == []


def test_an_old_run_that_has_not_reached_the_question_takes_the_new_way() -> None:
    run = Run(old).reloaded(new)
    assert run.done("charge:1").open == ["check:1"]
    assert run.reloaded(new).open == ["check:1"]


def test_the_question_is_deleted_when_no_old_run_is_left() -> None:
    run = Run(new).done("charge:1").reloaded(newest)
    assert run.open == ["check:1"]
    assert run.done("check:1").output == b'"new"'


def test_a_question_that_is_deleted_too_early_blocks_the_old_run_and_shows_both_sides() -> None:
    run = Run(old).done("charge:1").fire("sleep:1")
    with pytest.raises(NonDeterminismError) as caught:
        run.reloaded(newest)
    assert (caught.value.recorded, caught.value.asked) == (
        "timer_fired sleep:1",
        "waits for activity check:1 check({})",
    )
    assert "ctx.patched(" in str(caught.value)


async def asks_first(ctx: WorkflowContext) -> bool:
    way = ctx.patched("change")
    await sleep(ctx, 1)
    return way


async def sleeps(ctx: WorkflowContext) -> None:
    await sleep(ctx, 1)


def test_before_the_first_entry() -> None:
    run = Run(asks_first)
    assert run.marks == [(1, "change")]
    assert run.reloaded(asks_first).fire("sleep:1").output == b"true"
    assert run.marks == [(1, "change")]
    assert Run(sleeps).reloaded(asks_first).fire("sleep:1").output == b"false"


async def asks_twice(ctx: WorkflowContext) -> list[bool]:
    first = ctx.patched("change")
    await sleep(ctx, 1)
    second = ctx.patched("change")
    await sleep(ctx, 1)
    return [first, second, ctx.patched("change")]


async def asks_late(ctx: WorkflowContext) -> list[bool]:
    await sleep(ctx, 1)
    second = ctx.patched("change")
    await sleep(ctx, 1)
    return [second, ctx.patched("change")]


async def sleeps_twice(ctx: WorkflowContext) -> None:
    await sleep(ctx, 1)
    await sleep(ctx, 1)


def test_the_first_answer_stands_for_the_run() -> None:
    run = Run(asks_twice).fire("sleep:1")
    assert run.reloaded(asks_twice).fire("sleep:2").output == b"[true,true,true]"
    assert run.marks == [(1, "change")]
    late = Run(sleeps_twice).reloaded(asks_twice).fire("sleep:1")
    assert late.reloaded(asks_twice).fire("sleep:2").output == b"[false,false,false]"
    assert late.marks == []


def test_the_answer_stands_where_its_first_question_was_deleted() -> None:
    run = Run(asks_twice).fire("sleep:1")
    assert run.reloaded(asks_late).fire("sleep:2").output == b"[true,true]"


def test_the_record_counts_where_a_question_was_added_before_it() -> None:
    run = Run(asks_late).fire("sleep:1")
    assert run.marks == [(2, "change")]
    assert run.reloaded(asks_twice).fire("sleep:2").output == b"[false,true,true]"


async def branches(ctx: WorkflowContext) -> list[bool]:
    async def branch(seconds: float) -> bool:
        await sleep(ctx, seconds)
        return ctx.patched("change")

    return await asyncio.gather(branch(1), branch(2))


async def plain_branches(ctx: WorkflowContext) -> None:
    await asyncio.gather(sleep(ctx, 1), sleep(ctx, 2))


@pytest.mark.parametrize("first", ["sleep:1", "sleep:2"])
def test_in_a_branch(first: str) -> None:
    second = "sleep:2" if first == "sleep:1" else "sleep:1"
    assert Run(branches).fire(first).reloaded(branches).fire(second).output == b"[true,true]"
    assert Run(plain_branches).fire(first).reloaded(branches).fire(second).output == b"[false,false]"
    run = Run(plain_branches).reloaded(branches).fire(first)
    assert run.marks == [(2, "change")]
    assert run.reloaded(branches).fire(second).output == b"[true,true]"


async def one_name_for_all(ctx: WorkflowContext) -> None:
    from romancy import send_event

    await send_event(ctx, "t", "s", id="x")
    assert ctx.patched("send t:1")
    await wait_event(ctx, "t")


def test_a_change_may_be_named_like_an_operation() -> None:
    run = Run(one_name_for_all)
    assert {entry.kind for entry in run.history} == {Kind.EVENT_SENT, Kind.PATCHED}
    assert {entry.op for entry in run.history} == {"send t:1"}
    assert run.reloaded(one_name_for_all).open == ["t:1"]


@pytest.mark.parametrize("name", ["", 7, None, "x" * 256, "a\nb", "a\0b"])
def test_bad_names(name: Any) -> None:
    async def asks(ctx: WorkflowContext) -> None:
        ctx.patched(name)

    assert Run(asks).output == InvalidInput.__name__


def test_code_that_only_asks_is_stopped() -> None:
    async def endless(ctx: WorkflowContext) -> None:
        n = 0
        while True:
            ctx.patched(f"{n}")
            n += 1

    run = Run(endless)
    assert run.output == "WorkflowStuck"
    assert run.history == []


def test_outside_the_workflow() -> None:
    run = Run(asks_first)
    with pytest.raises(RuntimeError, match="outside its workflow"):
        run.instance.patched("change")
    run.instance.evict()
    with pytest.raises(Halted):
        run.instance.patched("change")


def test_nothing_is_kept_for_those_that_do_not_ask() -> None:
    assert Run(old).instance.patches is None


def test_an_entry_of_a_newer_library_is_refused() -> None:
    """As a library that has no patches refuses their marks."""
    run = Run(sleeps)
    run.history.append(Entry(1, 99, "mystery", T0))
    with pytest.raises(NonDeterminismError, match="an entry of kind 99, which this version does not know"):
        run.reloaded(sleeps)
