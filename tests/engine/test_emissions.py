"""What activities and workflows emit: in order, without gaps, stored before it is shown, until the instance ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from romancy import (
    ActivityContext,
    App,
    Emission,
    EmissionsFull,
    InstanceNotFound,
    InvalidInput,
    NonDeterminismError,
    NotStorable,
    Retention,
    RetryPolicy,
    WorkflowContext,
    WorkflowFailed,
    WorkflowHandle,
    activity,
    emit,
    sleep,
    wait_event,
    workflow,
)
from romancy.service import runtime_of
from romancy.testing import activity_context, environment

SOON = RetryPolicy(max_attempts=3, initial=timedelta(milliseconds=10))


@activity
async def words(ctx: ActivityContext, text: str, fails: int = 0) -> str:
    for word in text.split():
        await emit(ctx, word, topic="words")
        await asyncio.sleep(0)
    if ctx.attempt <= fails:
        raise ValueError("once more")
    return text


@activity
def lines(ctx: ActivityContext, count: int) -> int:
    for n in range(count):
        ctx.emit({"line": n}, topic="lines")
    return count


@workflow
async def story(ctx: WorkflowContext, fails: int = 0) -> str:
    await emit(ctx, "begin", topic="words")
    told = await words(ctx, "once upon a time", fails)
    await lines(ctx, 250)
    await emit(ctx, "end", topic="words")
    return told


async def read(emissions: AsyncIterator[Emission[Any]], most: int | None = None) -> list[Emission[Any]]:
    found: list[Emission[Any]] = []
    async with asyncio.timeout(20):
        async for emission in emissions:
            found.append(emission)
            if len(found) == most:
                break
    return found


def fold(emissions: Sequence[Emission[Any]]) -> list[Any]:
    """What a reader keeps, if it drops what was emitted before a restart."""
    kept: list[Emission[Any]] = []
    for emission in emissions:
        if emission.kind == "restart":
            kept = [one for one in kept if (one.activity_id, one.topic) != (emission.activity_id, emission.topic)]
        else:
            kept.append(emission)
    return [one.value for one in kept]


def numbers(emissions: Sequence[Emission[Any]]) -> list[int]:
    return [emission.n for emission in emissions]


async def test_a_reader_gets_everything_in_order_until_the_end(db: str) -> None:
    async with App(db, workflows=[story]) as app:
        handle = await app.start_workflow(story)
        live = await read(handle.emitted("words"))
        assert [(e.value, e.activity_id, e.attempt, e.topic, e.kind) for e in live] == [
            ("begin", None, 1, "words", "data"),
            *((word, "words:1", 1, "words", "data") for word in ("once", "upon", "a", "time")),
            ("end", None, 1, "words", "data"),
        ]
        assert numbers(live) == [1, 2, 3, 4, 5, 6]
        assert await handle.result(1) == "once upon a time"  # the end of the readers is the end of the instance
        assert await read(handle.emitted("words")) == live
        assert await read(handle.emitted("words", after=4)) == live[4:]
        everything = await read(handle.emitted())
        assert numbers(everything) == list(range(1, 257))
        assert [e.value["line"] for e in everything if e.topic == "lines"] == list(range(250))
        assert await read(handle.emitted(after=255)) == everything[255:]
        assert await read(handle.emitted("other")) == await read(handle.emitted("words", after=100)) == []


async def test_a_repeated_activity_begins_with_a_restart(db: str) -> None:
    async with App(db, workflows=[story], retry=SOON) as app:
        handle = await app.start_workflow(story, fails=2)
        found = await read(handle.emitted("words"))
        restarts = [(e.n, e.value, e.activity_id, e.attempt) for e in found if e.kind == "restart"]
        assert restarts == [(6, None, "words:1", 2), (11, None, "words:1", 3)]
        assert fold(found) == ["begin", "once", "upon", "a", "time", "end"]
        assert [e.attempt for e in found if e.value == "time"] == [1, 2, 3]


@activity
async def falter(ctx: ActivityContext, fails: bool) -> str:
    """The first attempt emits something, the second one nothing."""
    if not gone_quiet:
        await emit(ctx, "void", topic="words")
        gone_quiet.append(True)
        if fails:
            raise ValueError("once more")
        await asyncio.sleep(3600)
    return "quiet"


gone_quiet: list[bool] = []


@workflow
async def faltering(ctx: WorkflowContext, fails: bool, waits: bool = False) -> str:
    if waits:
        await sleep(ctx, 1)
    return await falter(ctx, fails)


@pytest.mark.parametrize(("fails", "waits"), [(True, False), (False, True)])
async def test_a_repeated_activity_that_emits_nothing_voids_what_it_emitted(db: str, fails: bool, waits: bool) -> None:
    """Its first attempt fails, or is given up when the worker stops."""
    gone_quiet.clear()
    async with environment(database=db, workflows=[faltering]) as env:
        handle = await env.start(faltering, fails, waits)
        await env.advance(1)
        await read(handle.emitted("words"), most=1)
        if not fails:
            await env.restart()
        await env.advance(10)
        assert await handle.result(timeout=5) == "quiet"
        found = await env.emitted(handle)
        assert [(e.kind, e.value) for e in found] == [("data", "void"), ("restart", None)]


async def test_the_largest_number_that_can_be_asked_for(db: str) -> None:
    async with App(db, workflows=[story]) as app:
        handle = await app.start_workflow(story)
        await handle.result()
        assert await read(handle.emitted("words", after=2**63 - 2)) == []
        with pytest.raises(ValueError, match="after must be"):
            handle.emitted(after=2**63 - 1)


class Word(BaseModel):
    text: str


async def test_values_are_read_as_a_model(db: str) -> None:
    @workflow(name="typed")
    async def typed(ctx: WorkflowContext) -> None:
        await emit(ctx, Word(text="a"))
        await emit(ctx, b"\x00\xff")
        await emit(ctx, {"text": "line\nbreak \u2028 \0"})

    async with App(db, workflows=[typed]) as app:
        handle = await app.start_workflow(typed)
        found = await read(handle.emitted("output"))
        assert [e.value for e in found] == [{"text": "a"}, {"base64": "AP8="}, {"text": "line\nbreak \u2028 \0"}]
        assert (await read(handle.emitted("output", model=Word), 1))[0].value == Word(text="a")
        with pytest.raises(NotStorable, match="does not fit Word"):
            await read(handle.emitted("output", model=Word))


async def test_a_late_reader_in_another_app_misses_nothing(db: str) -> None:
    go = asyncio.Event()

    @activity(name="slow")
    async def slow(ctx: ActivityContext) -> None:
        for n in range(40):
            await emit(ctx, n)
            if n == 20:
                await go.wait()

    @workflow(name="slowly")
    async def slowly(ctx: WorkflowContext) -> None:
        await slow(ctx)

    async with App(db, workflows=[slowly]) as app, App(db, worker=False) as other:
        handle = await app.start_workflow(slowly, instance_id="s")
        elsewhere = asyncio.create_task(read(other.handle("s").emitted("output")))
        await read(handle.emitted("output"), 21)
        late = asyncio.create_task(read(other.handle("s").emitted("output", after=10)))
        async with asyncio.timeout(5):
            while len(runtime_of(other).engine.emissions.readers) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        go.set()
        found = await elsewhere
        assert [e.value for e in found] == list(range(40))
        assert await late == found[10:]
        assert not len(runtime_of(other).engine.emissions.readers)


async def test_a_value_is_shown_to_other_processes_without_a_poll(db: str) -> None:
    """The second app never writes, and still hears of what the first one stores."""
    go = asyncio.Event()

    @activity(name="one")
    async def one(ctx: ActivityContext) -> None:
        await go.wait()
        await emit(ctx, 1)
        await asyncio.sleep(30)

    @workflow(name="ones")
    async def ones(ctx: WorkflowContext) -> None:
        await one(ctx)

    async with App(db, workflows=[ones]) as app, App(db, worker=False) as other:
        handle = await app.start_workflow(ones, instance_id="s")
        reading = asyncio.create_task(read(other.handle("s").emitted("output"), 1))
        readers = runtime_of(other).engine.emissions.readers
        async with asyncio.timeout(5):
            while not (len(readers) and runtime_of(other).engine.storage.emissions.is_heard):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        begin = asyncio.get_running_loop().time()
        go.set()
        await reading
        assert asyncio.get_running_loop().time() - begin < 0.2
        await handle.cancel()


# --- workflows --------------------------------------------------------------------------------------------------------
async def test_a_workflow_emits_once_however_often_it_is_replayed(env: Any) -> None:
    handle = await env.start(waiting)
    await env.restart()
    assert [e.value for e in await env.emitted(handle)] == ["before"]
    await env.send_event("go", "test")
    await env.restart()
    assert await handle.result() == "ok"
    found = await env.emitted(handle, "output")
    assert [(e.n, e.value) for e in found] == [(1, "before"), (2, "after"), (3, "in the loop"), (4, "done")]


@workflow
async def waiting(ctx: WorkflowContext) -> str:
    await emit(ctx, "before")
    await wait_event(ctx, "go")
    await emit(ctx, "after")
    await emit(ctx, "in the loop")
    await sleep(ctx, 3600)
    await emit(ctx, "done")
    return "ok"


async def test_code_that_emits_something_else_no_longer_follows_its_history(env: Any) -> None:
    text = "one"

    @workflow(name="changing")
    async def changing(ctx: WorkflowContext) -> None:
        if text:
            await emit(ctx, text)
        await wait_event(ctx, "go")

    handles = [await env.start(changing.options(instance_id=id)) for id in "ab"]
    text = "two"
    await env.restart()
    await env.send_event("go", "test")
    for handle in handles:
        assert await handle.status() == "blocked"
        error = (await env.app.get_instance(handle.instance_id)).error
        assert error is not None
        assert error["type"] == NonDeterminismError.__name__
        assert "emits" in error["message"]
    reading = asyncio.create_task(read(WorkflowHandle(env.app, runtime_of(env.app), "a").emitted()))
    await asyncio.sleep(0.01)
    assert not reading.done()  # a blocked instance has not ended
    text = ""
    await env.app.resume_workflow("b")
    await env.settle()
    assert "did not emit it; waits for event go:1" in str((await env.app.get_instance("b")).error)
    text = "one"
    await env.app.resume_workflow("a")
    assert [e.value for e in await reading] == ["one"]


async def test_numbers_go_on_with_the_next_run(env: Any) -> None:
    handle = await env.start(again, 1)
    found = await env.emitted(handle)
    assert [(e.n, e.value, e.activity_id, e.attempt) for e in found] == [
        (1, "run 1", None, 1), (2, "a", "words:1", 1), (3, "b", "words:1", 1),
        (4, "run 2", None, 1), (5, "a", "words:1@2", 1), (6, "b", "words:1@2", 1),
    ]  # fmt: skip
    assert numbers(await env.emitted(handle, "words")) == [1, 2, 3, 4]


@workflow
async def again(ctx: WorkflowContext, run: int) -> None:
    await emit(ctx, f"run {run}")
    await words(ctx, "a b")
    if run == 1:
        again.continue_as_new(ctx, 2)


async def test_after_a_retry_emissions_stay_and_repeated_activities_begin_anew(env: Any) -> None:
    is_broken = True

    @activity(name="talk", retry=RetryPolicy(max_attempts=1))
    async def talk(ctx: ActivityContext, text: str) -> str:
        await emit(ctx, text)
        if is_broken and text == "second":
            raise ValueError("broken")
        return text

    @workflow(name="talks")
    async def talks(ctx: WorkflowContext) -> None:
        await emit(ctx, "begin")
        await talk(ctx, "first")
        await emit(ctx, "middle")
        await talk(ctx, "second")
        await emit(ctx, "end")

    handle = await env.start(talks)
    assert await handle.status() == "failed"
    before = await env.emitted(handle)
    assert [e.value for e in before] == ["begin", "first", "middle", "second"]
    is_broken = False
    await env.app.retry_workflow(handle.instance_id)
    found = await env.emitted(handle)
    assert found[:4] == before
    assert [(e.kind, e.value, e.activity_id, e.attempt) for e in found[4:]] == [
        ("restart", None, "talk:2", 2), ("data", "second", "talk:2", 2), ("data", "end", None, 1),
    ]  # fmt: skip
    assert fold(found) == ["begin", "first", "middle", "second", "end"]
    copy = await env.app.fork_workflow(handle.instance_id)
    assert [(e.n, e.value) for e in await env.emitted(copy)] == list(
        enumerate(["begin", "first", "middle", "second", "end"], 1)
    )
    entries = await env.app.get_history(handle.instance_id)
    at = next(entry.n for entry in entries if entry.operation == "talk:1")
    later = await env.app.fork_workflow(handle.instance_id, at=at)
    assert [e.value for e in await env.emitted(later)] == ["middle", "second", "end"]  # it has none of its original


# --- activities -------------------------------------------------------------------------------------------------------
async def test_an_attempt_that_was_given_up_can_not_emit(db: str) -> None:
    ended, seen = threading.Event(), list[BaseException]()

    @activity(name="stubborn", timeout=0.1, retry=RetryPolicy(max_attempts=1))
    def stubborn(ctx: ActivityContext) -> None:
        try:
            while True:
                ctx.emit("x")
                ended.wait(0.005)
        except BaseException as error:
            seen.append(error)
            ended.set()
            raise

    @workflow(name="impatient")
    async def impatient(ctx: WorkflowContext) -> str:
        try:
            await stubborn(ctx)
        except TimeoutError:
            await emit(ctx, "gave up", topic="own")
            await wait_event(ctx, "go")
        return "ok"

    async with App(db, workflows=[impatient]) as app:
        handle = await app.start_workflow(impatient)
        await read(handle.emitted("own"), 1)
        assert await asyncio.to_thread(ended.wait, 5)
        assert isinstance(seen[0], asyncio.CancelledError)
        await app.send_event("go", "test")
        found = await read(handle.emitted())
        assert found[-1].value == "gave up"  # nothing came after the outcome
        assert set(fold(found)) == {"x", "gave up"}


async def test_parallel_activities_and_their_workflow_share_the_numbers(db: str) -> None:
    @activity(name="chat")
    async def chat(ctx: ActivityContext, name: str) -> None:
        for n in range(50):
            await emit(ctx, f"{name}{n}", topic="chat")
            await asyncio.sleep(0.001)

    @workflow(name="chats")
    async def chats(ctx: WorkflowContext) -> None:
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(chat(ctx, name))
            for n in range(10):
                await emit(ctx, f"w{n}", topic="chat")
                await sleep(ctx, 0.005)

    async with App(db, workflows=[chats]) as app:
        handle = await app.start_workflow(chats)
        found = await read(handle.emitted("chat"))
        assert numbers(found) == list(range(1, 161))
        for name, count in (("a", 50), ("b", 50), ("c", 50), ("w", 10)):
            own = [e.value for e in found if e.value.startswith(name)]
            assert own == [f"{name}{n}" for n in range(count)]


async def test_a_fast_activity_waits_for_the_database(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a bounded amount waits to be stored, and nothing is lost."""

    @activity(name="pour")
    async def pour(ctx: ActivityContext) -> None:
        for n in range(100):
            await emit(ctx, f"{n} {'x' * 20_000}")

    @workflow(name="pours")
    async def pours(ctx: WorkflowContext) -> None:
        await pour(ctx)

    async with App(db, workflows=[pours]) as app:
        most, emissions = 0, runtime_of(app).engine.emissions
        write = emissions._storage.emissions.write

        async def slow(*args: Any) -> Any:
            nonlocal most
            most = max(most, max(head.size for head in emissions.heads.values()))
            await asyncio.sleep(0.01)
            return await write(*args)

        monkeypatch.setattr(emissions._storage.emissions, "write", slow)
        handle = await app.start_workflow(pours)
        found = await read(handle.emitted())
        assert [int(e.value.split()[0]) for e in found] == list(range(100))
        assert 100_000 < most < 300_000


async def test_limits(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.engine.emission_head.MAX_SIZE", 5_000)
    monkeypatch.setattr("romancy.engine.emission_head.MAX_TOPICS", 2)

    @activity(name="flood", retry=RetryPolicy(max_attempts=3, initial=timedelta(milliseconds=1)))
    async def flood(ctx: ActivityContext) -> int:
        for _ in range(100):
            await emit(ctx, "x" * 1000, topic="a")
            await asyncio.sleep(0.04)
        return 0

    @activity(name="plain_flood", retry=RetryPolicy(max_attempts=3, initial=timedelta(milliseconds=1)))
    def plain_flood(ctx: ActivityContext) -> None:
        for _ in range(1000):
            ctx.emit("x" * 10_000, topic="b")

    @activity(name="third")
    async def third(ctx: ActivityContext) -> None:
        await emit(ctx, 1, topic="c")

    @workflow(name="floods")
    async def floods(ctx: WorkflowContext) -> list[str]:
        errors: list[str] = []
        for call in (flood, plain_flood, third):
            try:
                await call(ctx)
            except Exception as error:
                errors.append(f"{getattr(error, 'error_type', '')} {getattr(error, 'attempts', '')} {error}")
        await emit(ctx, "the workflow's own are not limited", topic="d")
        return errors

    async with App(db, workflows=[floods]) as app:
        handle = await app.start_workflow(floods)
        errors = await handle.result(20)
        assert len(errors) == 3
        assert all(error.startswith("EmissionsFull 1") for error in errors), errors
        assert "100,000 rows" in errors[0]
        assert "2 topics" in errors[2]
        assert len(await read(handle.emitted("a"))) <= 6
        assert [e.topic for e in await read(handle.emitted("d"))] == ["d"]
    assert issubclass(EmissionsFull, Exception)


@pytest.mark.parametrize(
    ("value", "topic", "error"),
    [
        (object(), "a", "can't be emitted as JSON"),
        (float("nan"), "a", "can't be emitted as JSON"),
        ("x" * 300_000, "a", "more than the 262,144 allowed"),
        (1, "", "non-empty string"),
        (1, "x" * 101, "at most 100 printable"),
        (1, "a\nb", "printable"),
        (1, 5, "non-empty string"),
    ],
)
async def test_what_can_not_be_emitted(env: Any, value: Any, topic: Any, error: str) -> None:
    @activity(name="bad", retry=RetryPolicy(max_attempts=1))
    async def bad(ctx: ActivityContext) -> None:
        await emit(ctx, value, topic=topic)

    @workflow(name="bads")
    async def bads(ctx: WorkflowContext) -> None:
        with pytest.raises(InvalidInput, match=error):
            await emit(ctx, value, topic=topic)
        await bad(ctx)

    handle = await env.start(bads)
    with pytest.raises(WorkflowFailed, match=error):
        await handle.result()
    assert await env.emitted(handle) == []


async def test_what_readers_can_not_ask_for(env: Any) -> None:
    handle = await env.start(waiting)
    for bad in (-1, True, "1", 2**63):
        with pytest.raises(ValueError, match="after must be"):
            handle.emitted(after=bad)
    with pytest.raises(InvalidInput, match="topic"):
        handle.emitted("")
    with pytest.raises(InstanceNotFound):
        await read(env.app.handle("nobody").emitted())
    with pytest.raises(TypeError, match="emit needs the ctx"):
        await emit(env, 1)  # type: ignore[arg-type]


async def test_a_transactional_activity_can_not_emit(env: Any) -> None:
    @activity(name="pay", transactional=True, retry=RetryPolicy(max_attempts=1))
    async def pay(ctx: Any) -> None:
        await emit(ctx, 1)

    @workflow(name="pays")
    async def pays(ctx: WorkflowContext) -> None:
        await pay(ctx)

    handle = await env.start(pays)
    with pytest.raises(WorkflowFailed, match="is transactional, so it can't emit"):
        await handle.result()


# --- retention --------------------------------------------------------------------------------------------------------
async def test_emissions_can_go_before_their_instance() -> None:
    async with environment(retention=Retention(instances=timedelta(days=3), emissions=timedelta(hours=2))) as env:
        handle = await env.start(story)
        await handle.result()
        assert len(await env.emitted(handle)) == 256
        await env.advance(timedelta(hours=1))
        assert len(await env.emitted(handle)) == 256
        await env.advance(timedelta(hours=3))
        assert await env.emitted(handle) == []
        await env.advance(timedelta(hours=3))
        assert await handle.status() == "completed"
        topics = await runtime_of(env.app).engine.storage.emissions.topics(handle.instance_id)
        assert [(topic.topic, topic.count) for topic in topics] == [("lines", 250), ("words", 6)]  # numbers are kept
        await env.advance(timedelta(days=4))
        assert await runtime_of(env.app).engine.storage.emissions.topics(handle.instance_id) == []


async def test_a_plain_context_collects_what_is_emitted() -> None:
    ctx = activity_context()
    assert await words.fn(ctx, "a b") == "a b"
    assert lines.fn(ctx, 1) == 1
    assert ctx.emitted == [("words", "a"), ("words", "b"), ("lines", {"line": 0})]
