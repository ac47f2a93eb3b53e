"""A fork and its original are apart: what was copied belongs to the original, everything else to the fork."""

import asyncio
from typing import Any

import pytest

from romancy import (
    NO_RETRY,
    ActivityContext,
    ActivityError,
    NotRetryable,
    WaitTimeout,
    WorkflowCancelled,
    WorkflowContext,
    WorkflowFailed,
    activity,
    compensate,
    saga,
    wait_event,
    workflow,
)
from romancy.testing import Environment, replay

log: list[str] = []


@pytest.fixture(autouse=True)
def _anew() -> None:
    log.clear()


@activity
async def charge(ctx: ActivityContext, what: str) -> str:
    log.append(f"charge {what}")
    return what


@charge.compensate
async def refund(ctx: ActivityContext, what: str) -> None:
    log.append(f"refund {what}")


@activity
async def void(ctx: ActivityContext, what: str) -> None:
    log.append(f"void {what}")


async def forked(env: Environment, at: int, new_id: str = "f", origin: str = "i") -> Any:
    fork = await env.app.fork_workflow(origin, at=at, new_id=new_id)
    await env.settle()
    return fork


# --- undos ----------------------------------------------------------------------------------------------------------
@workflow
async def purchase(ctx: WorkflowContext) -> str:
    await charge(ctx, "a")
    compensate(ctx, void, "a")
    await charge(ctx, "b")
    compensate(ctx, void, "b")
    await charge(ctx, "c")
    await wait_event(ctx, "go")
    return "bought"


@pytest.mark.parametrize(
    ("at", "undone"),
    [
        (0, ["refund c", "void b", "refund b", "void a", "refund a"]),
        (1, ["refund c", "void b", "refund b", "void a"]),
        (2, ["refund c", "void b"]),
        (3, []),
    ],
)
@pytest.mark.parametrize("is_evicted", [False, True])
async def test_only_what_a_fork_did_itself_is_undone(
    env: Environment, at: int, undone: list[str], is_evicted: bool
) -> None:
    env.app.register(purchase)
    original = await env.start(purchase, instance_id="i")
    await forked(env, at)
    log.clear()
    if is_evicted:
        await env.restart()
    await env.app.cancel_workflow("f")
    with pytest.raises(WorkflowCancelled):
        await env.app.handle("f").result()
    assert log == undone
    assert replay(purchase, await env.app.get_history("f")) == "cancelled"
    await env.send_event("go", "test")
    assert await env.app.handle(original.instance_id).result() == "bought"


async def test_a_fork_of_a_fork_undoes_nothing_of_either(env: Environment) -> None:
    env.app.register(purchase)
    await env.start(purchase, instance_id="i")
    await forked(env, 1)
    last = [e.n for e in await env.app.get_history("f") if e.kind == "activity_completed"][-2]
    await forked(env, last, "g", origin="f")
    log.clear()
    await env.app.cancel_workflow("g")
    with pytest.raises(WorkflowCancelled):
        await env.app.handle("g").result()
    assert log == ["refund c", "void b"]


@activity
async def pay(ctx: ActivityContext, payment: str) -> str:
    log.append(f"pay {payment}")
    return payment


@activity
async def look(ctx: ActivityContext) -> None:
    log.append("look")


@workflow
async def paying(ctx: WorkflowContext) -> str:
    """Asks for the undo before the call, as the guide says, and knows the payment by a random id."""
    await look(ctx)
    for _ in range(2):
        payment = str(ctx.uuid4())
        compensate(ctx, void, payment)
        await pay(ctx, payment)
    await wait_event(ctx, "go")
    return "paid"


@pytest.mark.parametrize(("at", "own"), [(0, 2), (1, 2), (2, 1), (3, 0)])
@pytest.mark.parametrize("is_evicted", [False, True])
async def test_an_undo_that_is_asked_for_at_the_cut_is_for_the_call_after_it(
    env: Environment, at: int, own: int, is_evicted: bool
) -> None:
    """The code after entry `at` runs in the fork. So what it asks for there is the fork's, as is the random id."""
    env.app.register(paying)
    await env.start(paying, instance_id="i")
    of_original = [line for line in log if line.startswith("pay")]
    log.clear()
    await forked(env, at)
    of_fork = [line.removeprefix("pay ") for line in log if line.startswith("pay")]
    assert len(of_fork) == own
    assert not {f"pay {payment}" for payment in of_fork} & {*of_original}
    log.clear()
    if is_evicted:
        await env.restart()
    await env.app.cancel_workflow("f")
    with pytest.raises(WorkflowCancelled):
        await env.app.handle("f").result()
    assert log == [f"void {payment}" for payment in reversed(of_fork)]
    assert replay(paying, await env.app.get_history("f")) == "cancelled"
    log.clear()
    await env.app.cancel_workflow("i")
    await env.settle()
    assert log == [f"void {line.removeprefix('pay ')}" for line in reversed(of_original)], "the original undoes its own"


@workflow
async def side_by_side(ctx: WorkflowContext) -> None:
    async def one() -> None:
        compensate(ctx, void, "x")
        await wait_event(ctx, "late")
        await charge(ctx, "x")

    async with asyncio.TaskGroup() as group:
        group.create_task(one())
        await charge(ctx, "y")


async def test_an_undo_that_was_asked_for_before_the_cut_is_the_original_s(env: Environment) -> None:
    """Even if the call that it is for comes after the cut."""
    env.app.register(side_by_side)
    await env.start(side_by_side, instance_id="i")
    fork = await forked(env, 1)
    await env.app.cancel_workflow("f")
    with pytest.raises(WorkflowCancelled):
        await fork.result()
    assert log == ["charge y"]


@workflow
async def in_block(ctx: WorkflowContext) -> str:
    try:
        async with saga(ctx):
            await charge(ctx, "a")
            await charge(ctx, "b")
            raise ValueError((await wait_event(ctx, "go")).data)
    except ValueError:
        return "handled"


async def test_a_block_that_began_in_the_copied_part(env: Environment) -> None:
    env.app.register(in_block)
    await env.start(in_block, instance_id="i")
    fork = await forked(env, 1)
    log.clear()
    await env.app.cancel_workflow("i")
    await env.settle()
    assert log == ["refund b", "refund a"]
    log.clear()
    await env.send_event("go", "test", 1)
    assert await fork.result() == "handled"
    assert log == ["refund b"]


@workflow
async def failing(ctx: WorkflowContext) -> None:
    await charge(ctx, "a")
    await charge(ctx, "b")
    if log.count("charge a") == 1:
        raise ValueError("no")


async def test_what_has_undone_its_steps_is_forked_from_its_beginning_only(env: Environment) -> None:
    env.app.register(failing)
    handle = await env.start(failing, instance_id="i")
    with pytest.raises(WorkflowFailed):
        await handle.result()
    numbers = [e.n for e in (await env.app.get_history("i"))[1:]]
    assert len(numbers) == 4
    for at in numbers:
        with pytest.raises(NotRetryable, match=f"'i' can't be forked at entry {at}: it has undone.* at=0") as caught:
            await env.app.fork_workflow("i", at=at, new_id="f")
        assert (caught.value.instance_id, caught.value.status) == ("i", "failed")
    await (await env.app.fork_workflow("i", new_id="f")).result()


# --- events ---------------------------------------------------------------------------------------------------------
@workflow
async def laps(ctx: WorkflowContext, taken: list[int]) -> list[int]:
    taken.append((await wait_event(ctx, "go")).data)
    if len(taken) < 3:
        laps.continue_as_new(ctx, taken)
    taken.append((await wait_event(ctx, "go")).data)
    taken.append((await wait_event(ctx, "go")).data)
    return taken


async def test_a_fork_does_not_take_what_earlier_runs_took(env: Environment) -> None:
    env.app.register(laps)
    handle = await env.start(laps, [], instance_id="i")
    for n in range(5):
        await env.send_event("go", "test", n)
    assert await handle.result() == [0, 1, 2, 3, 4]
    numbers = [e.n for e in (await env.app.get_history("i"))[1:]]
    for at in (0, *numbers):
        fork = await env.app.fork_workflow("i", at=at)
        assert await fork.result() == [0, 1, 2, 3, 4]


# --- what it shows of itself ----------------------------------------------------------------------------------------
@activity(retry=NO_RETRY)
async def ask(ctx: ActivityContext) -> None:
    if "down" in log:
        raise ConnectionError("down")


@workflow(attributes={"customer": "customer"})
async def shown(ctx: WorkflowContext, customer: str) -> None:
    publish(ctx, "first")
    await void(ctx, "a")
    await void(ctx, "b")
    try:
        await ask(ctx)
    except ActivityError:
        publish(ctx, "failed")
        raise
    await wait_event(ctx, "go")


def publish(ctx: WorkflowContext, place: str) -> None:
    ctx.set_view({"at": place})
    ctx.describe(place)
    ctx.set_attributes({"place": place})


async def shows(env: Environment, id: str) -> tuple[Any, Any, Any]:
    found = await env.app.get_instance(id)
    return dict(found.attributes), await env.app.handle(id).view(), found.description


FIRST = ({"customer": "c", "place": "first"}, {"at": "first"}, "first")


@pytest.mark.parametrize("at", [0, 1, 3])
async def test_a_fork_shows_what_its_code_published(env: Environment, at: int) -> None:
    env.app.register(shown)
    await env.start(shown, "c", instance_id="i")
    await env.advance(60)
    await forked(env, at)
    assert await shows(env, "f") == FIRST
    found = await env.app.list_instances(where={"place": "first"})
    assert [item.instance_id for item in found.items] == ["f", "i"], "newest first"


async def test_a_retry_shows_what_its_code_published(env: Environment) -> None:
    env.app.register(shown)
    log.append("down")
    handle = await env.start(shown, "c", instance_id="i")
    with pytest.raises(WorkflowFailed):
        await handle.result()
    assert (await shows(env, "i"))[2] == "failed"
    log.clear()
    await env.app.retry_workflow("i")
    await env.settle()
    assert await shows(env, "i") == FIRST


# --- times ----------------------------------------------------------------------------------------------------------
@workflow
async def patient(ctx: WorkflowContext) -> str:
    await void(ctx, "a")
    try:
        return (await wait_event(ctx, "go", timeout=5)).data
    except WaitTimeout:
        return "late"


async def test_waits_that_a_fork_opens_have_their_whole_length(env: Environment) -> None:
    env.app.register(patient)
    await env.start(patient, instance_id="i")
    await env.advance(60)
    assert await env.app.handle("i").result() == "late"
    fork = await forked(env, 1)
    await env.advance(4)
    assert await fork.status() == "waiting_for_event"
    await env.restart()
    await env.advance(2)
    assert await env.app.handle("f").result() == "late"
    assert replay(patient, await env.app.get_history("f")) == "completed"
