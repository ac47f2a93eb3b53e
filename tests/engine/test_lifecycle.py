"""An instance's life: how it is started, cancelled, blocked, resumed, and carried over changes of its code."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from romancy import (
    ActivityContext,
    App,
    InstanceExists,
    InstanceNotFound,
    InvalidInput,
    ReceivedEvent,
    RomancyError,
    WorkflowBlocked,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    activity,
    current_context,
    sleep,
    wait_event,
    workflow,
)
from romancy.testing import Environment, environment
from tests.engine.helpers import kinds


@activity
async def echo(ctx: ActivityContext, value: Any) -> Any:
    return value


@workflow
async def greet(ctx: WorkflowContext, name: str, greeting: str = "Hello") -> str:
    return f"{greeting}, {name}"


@workflow
async def waiter(ctx: WorkflowContext, name: str = "x") -> Any:
    return (await wait_event(ctx, "go")).data


# --- starting ---------------------------------------------------------------------------------------------------------
async def test_the_same_start_again_is_the_same_instance(env: Environment) -> None:
    env.app.register(waiter)
    first = await env.app.start_workflow(waiter, "a", instance_id="one")
    again = await env.app.start_workflow(waiter, "a", instance_id="one")
    assert (first.created, again.created) == (True, False)
    await env.send_event("go", "test", 1)
    after = await env.app.start_workflow(waiter.options(instance_id="one"), name="a")
    assert (after.created, await after.result()) == (False, 1), "also when it has ended, and however it is written"


async def test_another_input_or_workflow_under_the_same_id_is_refused(env: Environment) -> None:
    env.app.register(waiter, greet)
    await env.app.start_workflow(waiter, "a", instance_id="one")
    with pytest.raises(InstanceExists, match=r"'one'.*input.*another instance_id") as error:
        await env.app.start_workflow(waiter, "b", instance_id="one")
    assert error.value.instance_id == "one"
    with pytest.raises(InstanceExists, match=r"'one'.*waiter"):
        await env.app.start_workflow(greet, "a", instance_id="one")
    assert (await env.app.get_instance("one")).input == {"name": "a"}


async def test_concurrent_starts_of_one_id_make_one_instance(env: Environment) -> None:
    env.app.register(greet)
    names = ["Ada"] * 5 + ["Bob"] * 5
    starts = [env.app.start_workflow(greet, name, instance_id="one") for name in names]
    handles = await asyncio.gather(*starts, return_exceptions=True)
    await env.settle()
    assert sum(getattr(h, "created", False) for h in handles) == 1
    assert [type(h).__name__ for h in handles] == ["WorkflowHandle"] * 5 + ["InstanceExists"] * 5
    assert await env.app.handle("one").result() == "Hello, Ada"
    assert (await env.app.get_instance("one")).input == {"name": "Ada", "greeting": "Hello"}


async def test_ids_are_made_up_when_none_is_given(env: Environment) -> None:
    handles = [await env.start(greet, "x") for _ in range(3)]
    assert len({h.instance_id for h in handles}) == 3


async def test_start_by_name_is_checked_by_the_worker_that_has_it(db: str) -> None:
    async with App(db, worker=False) as outside, App(db, workflows=[greet]) as worker:
        handle = await outside.start_workflow("greet", "Ada", greeting="Hi", instance_id="one")
        assert await handle.result(timeout=5) == "Hi, Ada"
        bad = await outside.start_workflow("greet", instance_id="two")
        with pytest.raises(RomancyError, match="name"):
            await bad.result(timeout=5)
        assert (await worker.get_instance("two")).status in ("failed", "blocked")


async def test_a_start_by_name_waits_for_a_worker(db: str) -> None:
    async with App(db, worker=False) as outside:
        await outside.start_workflow("greet", "Ada", instance_id="one")
    async with App(db, workflows=[waiter]) as wrong_worker:
        await wrong_worker._runtime.engine.sweep.round()
        assert (await wrong_worker.get_instance("one")).status == "running"
    async with App(db, workflows=[greet]) as worker:
        assert await worker.handle("one", greet).result(timeout=5) == "Hello, Ada"


@dataclass
class Point:
    x: int
    y: int = 0


@workflow(timeout=timedelta(hours=1))
async def mirror(ctx: WorkflowContext, point: Point) -> Point:
    return Point(point.y, point.x)


async def test_who_only_starts_need_not_register(db: str) -> None:
    """The workflow itself says all there is to know: its name, how its input is read and how its result is."""
    async with App(db, worker=False) as outside:
        handle = await outside.start_workflow(mirror, Point(1), instance_id="one")
        again = await outside.start_workflow(mirror.options(instance_id="one"), point=Point(1, 0))
        assert (handle.created, again.created) == (True, False)
        assert (await outside.get_instance("one")).input == {"point": {"x": 1, "y": 0}}
        with pytest.raises(InvalidInput, match="point"):
            await outside.start_workflow(mirror, "nonsense", instance_id="two")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="point"):
            await outside.start_workflow(mirror)  # type: ignore[call-arg]
        assert outside.workflows == {}
        async with App(db, workflows=[mirror]):
            assert await handle.result(timeout=5) == Point(0, 1)


async def test_another_workflow_of_that_name_is_registered(db: str) -> None:
    @workflow(name="greet")
    async def impostor(ctx: WorkflowContext) -> None: ...

    for worker in (True, False):
        async with App(db, workflows=[greet], worker=worker) as app:
            with pytest.raises(ValueError, match=r"two different workflows are named 'greet'"):
                await app.start_workflow(impostor)
            assert (await app.list_instances()).items == []


async def test_start_by_name_where_it_is_registered_binds_at_once(env: Environment) -> None:
    env.app.register(greet)
    handle = await env.app.start_workflow("greet", "Ada")
    assert await handle.result() == "Hello, Ada"
    with pytest.raises(InvalidInput, match=r"greet.*signature"):
        await env.app.start_workflow("greet")


async def test_arguments_are_bound_at_the_start_with_their_defaults(env: Environment) -> None:
    handle = await env.start(greet, "Ada")
    assert (await env.app.get_instance(handle.instance_id)).input == {"name": "Ada", "greeting": "Hello"}


async def test_options_make_typed_variants(env: Environment) -> None:
    variant = greet.options(instance_id="one", timeout=60)
    assert (variant.name, variant._instance_id, greet._instance_id) == ("greet", "one", None)
    assert await (await env.start(variant, "Ada", greeting="Hi")).result() == "Hi, Ada"


def test_run_for_scripts() -> None:
    assert App(":memory:").run(greet, "Ada", greeting="Bye") == "Bye, Ada"


def test_run_raises_what_the_workflow_raised() -> None:
    @workflow
    async def breaks(ctx: WorkflowContext) -> None:
        raise ValueError("broken")

    with pytest.raises(WorkflowFailed, match="broken"):
        App(":memory:").run(breaks)


async def test_the_context_of_a_workflow() -> None:
    @workflow(name="stored")
    async def shows(ctx: WorkflowContext) -> tuple[str, str, Any, datetime, UUID, float, datetime]:
        assert WorkflowContext.current() is ctx
        assert current_context() is ctx
        id, number = ctx.uuid4(), ctx.random.random()
        seen.append((id, number))
        await sleep(ctx, 60)
        return ctx.instance_id, ctx.workflow_name, ctx.state, ctx.started_at, id, number, ctx.now()

    seen: list[tuple[UUID, float]] = []
    async with environment(workflows=[shows], state={"pool": 1}) as env:
        began = env.now
        handle = await env.start(shows.options(instance_id="one"))
        await env.restart()
        result = await handle.result()
        assert result[:4] == ("one", "stored", {"pool": 1}, began)
        assert result[6] == began + timedelta(seconds=60)
        assert seen == [result[4:6]] * 2, "the same on every replay"


async def test_state_is_at_hand_in_activities() -> None:
    class Pool:
        def query(self) -> str:
            return "row"

    @activity
    async def read(ctx: ActivityContext) -> str:
        return ctx.state.query()

    @workflow
    async def reads(ctx: WorkflowContext) -> str:
        return await read(ctx)

    async with environment(workflows=[reads], state=Pool()) as env:
        assert await (await env.start(reads)).result() == "row"


# --- started by events ------------------------------------------------------------------------------------------------
@dataclass
class Order:
    id: int


def started_by_orders() -> Any:
    @workflow(on_event="order.placed")
    async def on_order(ctx: WorkflowContext, event: ReceivedEvent[Order]) -> list[Any]:
        assert isinstance(event.data, Order)
        if event.data.id == 0:
            await wait_event(ctx, "order.placed")
        return [event.data.id, event.type, event.source, event.subject, event.id]

    return on_order


async def test_an_event_starts_a_workflow_once() -> None:
    on_order = started_by_orders()
    async with environment(workflows=[on_order]) as env:
        receipt = await env.send_event("order.placed", "shop", {"id": 7}, id="e1", subject="s")
        again = await env.send_event("order.placed", "shop", {"id": 7}, id="e1", subject="s")
        assert (receipt.started, again.started, again.duplicate) == (1, 0, True)
        (instance,) = (await env.app.list_instances(workflow="on_order")).items
        assert instance.output == [7, "order.placed", "shop", "s", "e1"]
        assert instance.input["data"] == {"id": 7}


async def test_the_event_that_started_it_counts_as_read() -> None:
    async with environment(workflows=[started_by_orders()]) as env:
        await env.send_event("order.placed", "shop", {"id": 0})
        (instance,) = (await env.app.list_instances()).items
        assert instance.status == "waiting_for_event"


async def test_data_that_does_not_fit_the_model_starts_nothing() -> None:
    async with environment(workflows=[started_by_orders()]) as env:
        receipt = await env.send_event("order.placed", "shop", {"id": "many"})
        assert (receipt.started, receipt.mismatched) == (0, 1)
        assert (await env.app.list_instances()).items == []


async def test_an_event_sent_elsewhere_starts_it_too_and_after_a_crash(db: str) -> None:
    on_order = started_by_orders()
    async with App(db, workflows=[on_order]):
        pass
    async with App(db, worker=False) as outside:  # nobody is working now, but the trigger is known
        receipt = await outside.send_event("order.placed", "shop", {"id": 3}, id="e1")
        assert receipt.started == 1
    async with App(db, workflows=[on_order]) as worker:
        (instance,) = (await worker.list_instances()).items
        assert (await worker.handle(instance.instance_id).result(timeout=5))[0] == 3


async def test_a_server_that_is_deployed_before_its_workers_loses_no_event(db: str) -> None:
    on_order = started_by_orders()
    async with App(db, workflows=[on_order], worker=False) as server:
        receipt = await server.send_event("order.placed", "shop", {"id": 3}, id="e1")
        assert receipt.started == 1
    async with App(db, workflows=[on_order]) as worker:
        (instance,) = (await worker.list_instances()).items
        assert (await worker.handle(instance.instance_id).result(timeout=5))[0] == 3


async def test_a_new_workflow_of_a_server_starts_while_old_workers_run(db: str) -> None:
    on_order = started_by_orders()
    async with App(db, workflows=[waiter]), App(db, workflows=[waiter], worker=False) as server:
        assert (await server.send_event("order.placed", "shop", {"id": 3})).started == 0
        server.register(on_order)
        assert (await server.send_event("order.placed", "shop", {"id": 4})).started == 1
        async with App(db, workflows=[waiter, on_order]) as new:
            (instance,) = (await new.list_instances()).items
            assert (await new.handle(instance.instance_id).result(timeout=30))[0] == 4


async def test_an_old_server_that_starts_again_does_not_bring_back_what_starts_a_workflow(db: str) -> None:
    def build(type: str) -> Any:
        @workflow(on_event=type)
        async def orders(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> str:
            return event.type

        return orders

    old, new = build("order.created"), build("order.paid")
    async with App(db, workflows=[old]), App(db, workflows=[new]):
        pass
    async with App(db, workflows=[old], worker=False), App(db, workflows=[new], worker=False) as server:
        assert (await server.send_event("order.created", "shop")).started == 0
        assert (await server.send_event("order.paid", "shop")).started == 1
    async with App(db, workflows=[new]) as worker:
        (instance,) = (await worker.list_instances()).items
        assert await worker.handle(instance.instance_id).result(timeout=30) == "order.paid"


async def test_who_only_looks_does_not_say_what_starts_a_workflow(db: str) -> None:
    async with App(db, workflows=[waiter]):
        looker = App(db, workflows=[started_by_orders()], worker=False)
        looker._runtime.creates = False
        async with looker:
            assert (await looker.send_event("order.placed", "shop", {"id": 3})).started == 0


@pytest.mark.parametrize("given", [[{"id": 3}], [], [1, 2]], ids=str)
async def test_a_workflow_that_events_start_is_started_with_an_event(given: list[Any]) -> None:
    on_order = started_by_orders()
    async with environment(workflows=[on_order]) as env:
        for wf in (on_order, "on_order"):
            with pytest.raises(
                InvalidInput, match=r"is started by events; send one of type order\.placed with app\.send"
            ):
                await env.app.start_workflow(wf, *given)
        own = ReceivedEvent(
            Order(5), "order.placed", "test", "e5", datetime(2026, 1, 1, tzinfo=UTC), None, None, None, {}
        )
        assert (await (await env.start(on_order, own)).result())[0] == 5


async def test_several_types_and_no_model() -> None:
    @workflow(on_event=["a", "b"])
    async def on_both(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> list[Any]:
        return [event.type, event.data]

    async with environment(workflows=[on_both]) as env:
        for kind in ("a", "b", "c"):
            await env.send_event(kind, "test", {"any": kind})
        found = (await env.app.list_instances()).items
        assert sorted(i.output for i in found) == [["a", {"any": "a"}], ["b", {"any": "b"}]]


async def test_a_workflow_timeout_holds_for_those_started_by_events() -> None:
    @workflow(on_event="a", timeout=60)
    async def on_a(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> None:
        await wait_event(ctx, "never")

    async with environment(workflows=[on_a]) as env:
        await env.send_event("a", "test")
        await env.advance(61)
        (instance,) = (await env.app.list_instances()).items
        assert instance.status == "failed"


# --- timeouts ---------------------------------------------------------------------------------------------------------
async def test_a_workflow_that_takes_too_long_fails_after_its_cleanup(env: Environment) -> None:
    cleaned: list[str] = []

    @activity
    async def clean_up(ctx: ActivityContext) -> None:
        cleaned.append(ctx.instance_id)

    @workflow(timeout=timedelta(hours=1))
    async def slow(ctx: WorkflowContext) -> None:
        try:
            await wait_event(ctx, "never")
        finally:
            await clean_up(ctx)

    one = await env.start(slow.options(instance_id="one"))
    two = await env.start(slow.options(instance_id="two", timeout=60))
    await env.restart()
    await env.advance(60)
    assert (await one.status(), await two.status()) == ("waiting_for_event", "failed")
    await env.advance(3600)
    assert cleaned == ["two", "one"]
    with pytest.raises(WorkflowFailed, match=r"'one'.*time") as failed:
        await one.result()
    assert failed.value.error_type == "WorkflowTimeout"


async def test_a_workflow_in_time_leaves_no_timer(env: Environment) -> None:
    handle = await env.start(waiter.options(timeout=60))
    await env.send_event("go", "test", 1)
    await env.advance(120)
    assert await handle.result() == 1
    assert await env.waits() == []


# --- cancelling -------------------------------------------------------------------------------------------------------
async def test_cancel_lets_the_code_clean_up_across_a_crash(env: Environment) -> None:
    steps: list[str] = []

    @activity
    async def undo(ctx: ActivityContext, what: str) -> None:
        steps.append(what)

    @workflow
    async def booking(ctx: WorkflowContext) -> None:
        try:
            await wait_event(ctx, "never")
        except asyncio.CancelledError:
            await undo(ctx, "hotel")
            await sleep(ctx, 60)
            await undo(ctx, "flight")
            raise

    handle = await env.start(booking)
    await env.cancel(handle, "changed my mind")
    assert await handle.status() == "waiting_for_timer"
    await env.restart()
    await env.cancel(handle, "again")  # a second time changes nothing
    with pytest.raises(WorkflowCancelled, match="changed my mind") as cancelled:
        await handle.result()
    assert (cancelled.value.reason, cancelled.value.instance_id) == ("changed my mind", handle.instance_id)
    assert steps == ["hotel", "flight"]
    assert await handle.status() == "cancelled"


async def test_cancel_right_after_the_start(env: Environment) -> None:
    env.app.register(waiter)
    handle = await env.app.start_workflow(waiter)
    await handle.cancel("at once")
    await env.settle()
    assert await handle.status() == "cancelled"


async def test_cancel_by_another_process_and_while_down(db: str) -> None:
    async with environment(database=db, workflows=[waiter]) as env, App(db, worker=False) as outside:
        await env.start(waiter.options(instance_id="one"))
        await outside.cancel_workflow("one")
        with pytest.raises(WorkflowCancelled):
            await outside.handle("one").result(timeout=5)


async def test_cancel_of_the_finished_changes_nothing(env: Environment) -> None:
    handle = await env.start(greet, "Ada")
    await env.cancel(handle)
    assert await handle.result() == "Hello, Ada"


async def test_cancel_and_resume_of_the_unknown(env: Environment) -> None:
    with pytest.raises(InstanceNotFound, match="'nobody'"):
        await env.app.cancel_workflow("nobody")
    with pytest.raises(InstanceNotFound, match="'nobody'"):
        await env.app.resume_workflow("nobody")
    with pytest.raises(InstanceNotFound, match="'nobody'"):
        await env.app.handle("nobody").result()


# --- changed code -----------------------------------------------------------------------------------------------------
def version(fn: Any) -> Any:
    """Another version of the workflow `job`."""
    return workflow(name="job")(fn)


async def first(ctx: WorkflowContext, n: int) -> Any:
    a = await echo(ctx, "a")
    await wait_event(ctx, "go")
    return a


async def reordered(ctx: WorkflowContext, n: int) -> Any:
    await wait_event(ctx, "go")
    return await echo(ctx, "a")


async def other_arguments(ctx: WorkflowContext, n: int) -> Any:
    a = await echo(ctx, "b")
    await wait_event(ctx, "go")
    return a


async def other_types(ctx: WorkflowContext, n: int) -> Any:
    await echo(ctx, "a")
    await wait_event(ctx, "went")


async def test_code_that_left_its_history_is_blocked_and_resumes_when_mended(db: str) -> None:
    async with environment(database=db, workflows=[version(first)]) as env:
        await env.start(version(first).options(instance_id="one"), 1)
    for broken in (reordered, other_arguments):
        async with environment(database=db, workflows=[version(broken)]) as env:
            await env.send_event("go", "test")
            assert (await env.app.get_instance("one")).status == "blocked"
            with pytest.raises(WorkflowBlocked) as blocked:
                await env.app.handle("one").result(timeout=5)
            message = str(blocked.value)
            for part in ("'one'", "job", "recorded:", "echo:1", "the code:", "resume"):
                assert part in message, message
            assert await env.app.resume_workflow("one") is True  # still broken: blocked again, nothing lost
            await env.settle()
            assert (await env.app.get_instance("one")).status == "blocked"
            await env.app._runtime.engine.storage.resume("one")  # for the next version
    async with environment(database=db, workflows=[version(first)]) as env:
        await env.app.resume_workflow("one")
        await env.settle()
        assert await env.app.handle("one").result(timeout=5) == "a"


async def test_a_blocked_instance_can_be_cancelled(db: str) -> None:
    async with environment(database=db, workflows=[version(first)]) as env:
        await env.start(version(first).options(instance_id="one"), 1)
    async with environment(database=db, workflows=[version(reordered)]) as env:
        await env.send_event("go", "test")
        assert (await env.app.get_instance("one")).status == "blocked"
        assert await env.app.cancel_workflow("one", reason="hopeless") is True
        assert (await env.app.get_instance("one")).status == "cancelled"
        with pytest.raises(WorkflowCancelled, match="hopeless"):
            await env.app.handle("one").result(timeout=5)
        assert await env.app.resume_workflow("one") is False
        assert (await env.app.get_instance("one")).status == "cancelled"
        assert await env.waits() == []


async def test_events_reach_a_blocked_instance_when_it_is_resumed(db: str) -> None:
    async with environment(database=db, workflows=[version(first)]) as env:
        await env.start(version(first).options(instance_id="one"), 1)
    async with environment(database=db, workflows=[version(reordered)]) as env:
        await env.send_event("go", "test", "kept for later")
        assert (await env.app.get_instance("one")).status == "blocked"
    async with environment(database=db, workflows=[version(first)]) as env:
        await env.app.resume_workflow("one")
        await env.settle()
        assert await env.app.handle("one").result(timeout=5) == "a"


async def new_default(ctx: WorkflowContext, n: int = 99) -> Any:
    await echo(ctx, "a")
    await wait_event(ctx, "go")
    return n


async def new_parameter(ctx: WorkflowContext, n: int, extra: str = "new") -> Any:
    await echo(ctx, "a")
    await wait_event(ctx, "go")
    return [n, extra]


async def new_parameter_without_default(ctx: WorkflowContext, n: int, extra: str) -> Any:
    await echo(ctx, "a")
    await wait_event(ctx, "go")
    return [n, extra]


async def renamed(ctx: WorkflowContext, number: int) -> Any:
    await echo(ctx, "a")
    await wait_event(ctx, "go")
    return number


async def removed(ctx: WorkflowContext) -> Any:
    await echo(ctx, "a")
    await wait_event(ctx, "go")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (new_default, 1),
        (new_parameter, [1, "new"]),
        (new_parameter_without_default, "extra"),
        (renamed, "number"),
        (removed, "n"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_signature_changes_with_running_instances(db: str, changed: Any, expected: Any) -> None:
    async with environment(database=db, workflows=[version(first)]) as env:
        await env.start(version(first).options(instance_id="one"), 1)
    async with environment(database=db, workflows=[version(changed)]) as env:
        await env.send_event("go", "test")
        instance = await env.app.get_instance("one")
        if isinstance(expected, str):
            assert instance.status == "blocked"
            assert f"'{expected}'" in instance.error["message"]
        else:
            assert instance.output == expected
    async with environment(database=db, workflows=[version(first)]) as env:
        await env.app.resume_workflow("one")
        await env.settle()
        assert (await env.app.get_instance("one")).status == "completed", "nothing was lost"


async def test_a_deadline_that_was_recorded_stands_though_the_code_says_another_today(db: str) -> None:
    async def an_hour(ctx: WorkflowContext) -> None:
        await sleep(ctx, 3600)

    async def a_minute(ctx: WorkflowContext) -> None:
        await sleep(ctx, 60)

    async with environment(database=db, workflows=[version(an_hour)]) as env:
        handle = await env.start(version(an_hour).options(instance_id="one"))
        (wait,) = await env.waits(handle)
    async with environment(database=db, workflows=[version(a_minute)]) as env:
        await env.advance(60)
        assert [w.due_at for w in await env.waits()] == [wait.due_at]
        await env.advance(3540)
        assert (await env.app.get_instance("one")).status == "completed"


async def test_a_moved_function_goes_on(db: str) -> None:
    """The stored name counts, not the module or the Python name."""
    async with environment(database=db, workflows=[version(first)]) as env:
        await env.start(version(first).options(instance_id="one"), 1)

    async def moved_elsewhere(ctx: WorkflowContext, n: int) -> Any:
        return await first(ctx, n)

    async with environment(database=db, workflows=[version(moved_elsewhere)]) as env:
        await env.send_event("go", "test")
        assert await env.app.handle("one").result(timeout=5) == "a"


# --- outside and inside -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("verb", ["start_workflow", "send_event", "cancel_workflow", "get_instance", "list_waits"])
async def test_the_app_may_not_be_used_inside_a_workflow(env: Environment, verb: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {
        "start_workflow": ("waiter",),
        "send_event": ("a", "b"),
        "cancel_workflow": ("x",),
        "get_instance": ("x",),
        "list_waits": (),
    }

    @workflow
    async def reaches_out(ctx: WorkflowContext) -> None:
        await getattr(env.app, verb)(*arguments[verb])

    handle = await env.start(reaches_out)
    with pytest.raises(WorkflowFailed, match=r"app\.\* was called inside a workflow.*activity"):
        await handle.result()
    assert (await env.app.list_events()).items == []


async def test_result_times_out_and_the_instance_goes_on(db: str) -> None:
    async with App(db, workflows=[waiter]) as app:
        handle = await app.start_workflow(waiter, instance_id="one")
        with pytest.raises(TimeoutError, match=r"'one'.*keeps running"):
            await handle.result(timeout=0.01)
        await app.send_event("go", "test", 1)
        assert await handle.result(timeout=5) == 1


async def test_the_testing_handle_says_when_nothing_can_happen_any_more(env: Environment) -> None:
    handle = await env.start(waiter)
    with pytest.raises(RomancyError, match=r"go:1.*send_event"):
        await handle.result()


async def test_a_failure_of_the_workflow_itself(env: Environment) -> None:
    @workflow
    async def breaks(ctx: WorkflowContext) -> None:
        await sleep(ctx, 60)
        raise LookupError("not there")

    handle = await env.start(breaks)
    with pytest.raises(WorkflowFailed) as failed:
        await handle.result()
    assert (failed.value.error_type, failed.value.message) == ("LookupError", "not there")
    assert handle.instance_id in str(failed.value)
    assert "breaks" in failed.value.traceback
    assert await kinds(env, handle.instance_id) == ["started", "timer_fired"]
