"""Steps: any function as a recorded activity, on the loop or in a thread, and again after a crash."""

import asyncio
import functools
import gc
import threading
import weakref
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from romancy import (
    NO_RETRY,
    ActivityContext,
    ActivityError,
    ActivityTimeout,
    RetryPolicy,
    WorkerOptions,
    WorkflowBlocked,
    WorkflowContext,
    WorkflowFailed,
    activity,
    sleep,
    step,
    wait_event,
    workflow,
)
from romancy.testing import Environment, environment
from tests.engine.helpers import down_for, kinds, until

EXACT = RetryPolicy(max_attempts=3, initial=10, backoff=1, jitter=0)


@dataclass
class Reply:
    text: str
    words: int


async def ask(prompt: str) -> Reply:
    await asyncio.sleep(0)
    return Reply(prompt.upper(), len(prompt.split()))


# --- where the function runs ------------------------------------------------------------------------------------------
def is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


async def test_async_on_the_loop_and_plain_in_a_thread(env: Environment) -> None:
    async def on_loop() -> bool:
        return is_main()

    def in_thread() -> bool:
        return not is_main()

    @workflow
    async def both(ctx: WorkflowContext) -> list[bool]:
        return [
            await step(ctx, "a", on_loop),
            await step(ctx, "b", in_thread),
            await step(ctx, "c", lambda: not is_main(), result=bool),
        ]

    assert await (await env.start(both)).result() == [True, True, True]


async def test_a_lambda_can_return_a_coroutine_which_runs_on_the_loop(env: Environment) -> None:
    async def where() -> tuple[bool, str]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        return is_main() and loop is main, ActivityContext.current().activity_id

    main = asyncio.get_running_loop()

    @workflow
    async def wf(ctx: WorkflowContext, prompt: str) -> tuple[Reply, tuple[bool, str]]:
        reply = await step(ctx, "model", lambda: ask(prompt), result=Reply)
        return reply, await step(ctx, "where", lambda: where(), result=tuple[bool, str])

    assert await (await env.start(wf, "hi there")).result() == (Reply("HI THERE", 2), (True, "where:1"))


async def test_the_id_is_counted_like_that_of_an_activity(env: Environment) -> None:
    @activity
    async def model(ctx: ActivityContext) -> str:
        return ctx.activity_id

    async def same() -> str:
        return ActivityContext.current().idempotency_key

    @workflow
    async def wf(ctx: WorkflowContext) -> list[str]:
        return [await step(ctx, "model", same), await model(ctx), await step(ctx, "model", same)]

    handle = await env.start(wf)
    id = handle.instance_id
    assert await handle.result() == [f"{id}/model:1", "model:2", f"{id}/model:3"]


class Model:
    async def ask(self) -> int:
        return 7

    def __call__(self, more: int = 1) -> Coroutine[Any, Any, int]:
        return self.ask()


async def test_methods_partials_and_objects_are_functions(env: Environment) -> None:
    def later(n: int) -> Awaitable[int]:
        return Model().ask()

    @workflow
    async def wf(ctx: WorkflowContext) -> list[int]:
        return [
            await step(ctx, "method", Model().ask),
            await step(ctx, "object", Model()),
            await step(ctx, "partial", functools.partial(later, 3)),  # type: ignore[arg-type]
            await step(ctx, "builtin", dict, result=dict) or 0,  # type: ignore[list-item]
        ]

    assert await (await env.start(wf)).result() == [7, 7, 7, 0]


# --- what is recorded -------------------------------------------------------------------------------------------------
async def test_a_recorded_result_is_not_computed_again(env: Environment) -> None:
    runs: list[str] = []

    @workflow
    async def wf(ctx: WorkflowContext) -> list[Reply]:
        replies: list[Reply] = []
        for prompt in ("a", "b c"):

            async def model(prompt: str = prompt) -> Reply:
                runs.append(prompt)
                return await ask(prompt)

            replies.append(await step(ctx, "model", model, input=prompt))
            await sleep(ctx, 60)
        return replies

    handle = await env.start(wf)
    for _ in range(2):
        await env.restart()
        await env.advance(60)
    assert await handle.result() == [Reply("A", 1), Reply("B C", 2)]
    assert runs == ["a", "b c"]


async def test_a_step_that_was_interrupted_gets_its_function_again() -> None:
    """The closure is made again by replay, from recorded values, in a process that has nothing in memory."""
    seen: list[str] = []
    gate = asyncio.Event()

    @workflow
    async def wf(ctx: WorkflowContext) -> str:
        secret = str(ctx.uuid4())
        got = (await wait_event(ctx, "go")).data

        async def run() -> str:
            seen.append(f"{secret} {got}")
            await gate.wait()
            return got

        return await step(ctx, "run", run)

    async with environment(worker=WorkerOptions(max_resident=1, grace=0.1)) as env:
        handle = await env.start(wf)
        await env.start(wf)  # evicts the first
        await env.send_event("go", "test", "now", to=handle.instance_id)
        assert len(seen) == 1
        await env.restart()
        assert len(seen) == 2
        gate.set()
        assert await handle.result() == "now"
        assert seen[0] == seen[1]


async def test_attempts_go_on_after_eviction() -> None:
    tries: list[int] = []

    @workflow
    async def wf(ctx: WorkflowContext, name: str) -> str:
        async def flaky() -> str:
            tries.append(ActivityContext.current().attempt)
            if len(tries) < 3:
                raise ConnectionError(name)
            return name

        return await step(ctx, "flaky", flaky, retry=EXACT)

    @workflow
    async def other(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "never")

    async with environment(worker=WorkerOptions(max_resident=1, grace=0.1)) as env:
        handle = await env.start(wf, "ada")
        await env.start(other)
        await down_for(env, timedelta(seconds=5))
        assert await handle.result() == "ada"
        assert tries == [1, 2, 3]


async def test_the_input_is_shown_and_compared(env: Environment) -> None:
    wanted: list[Any] = [{"b": [1], "a": {"x", "y", "z"}}]

    @workflow
    async def wf(ctx: WorkflowContext) -> str:
        text = await step(ctx, "model", lambda: "yes", result=str, input=wanted[0])
        for _ in range(3):
            await wait_event(ctx, "go")
        return text

    handle = await env.start(wf)
    entry = (await env.app.get_history(handle.instance_id))[1]
    assert (entry.operation, entry.input) == ("model:1", {"b": [1], "a": ["x", "y", "z"]})
    wanted[0] = {"a": {"z", "y", "x"}, "b": [1]}
    await env.restart()
    await env.send_event("go", "test")  # it is replayed now
    assert await handle.status() == "waiting_for_event"
    wanted[0] = {"a": ["x"], "b": [1]}
    await env.restart()
    await env.send_event("go", "test")
    with pytest.raises(WorkflowBlocked, match=r'model:1 .*\["x"\]'):
        await handle.result()
    wanted[0] = None
    await env.app.resume_workflow(handle.instance_id)
    await env.settle()
    await env.send_event("go", "test")
    assert await handle.result() == "yes"


async def test_without_input_nothing_is_compared(env: Environment) -> None:
    class Prompt(BaseModel):
        text: str

    wanted: list[Any] = [None]

    @workflow
    async def wf(ctx: WorkflowContext) -> str:
        text = await step(ctx, "model", lambda: "yes", result=str, input=wanted[0])
        await wait_event(ctx, "go")
        return text

    handle = await env.start(wf)
    assert (await env.app.get_history(handle.instance_id))[1].input is None
    wanted[0] = Prompt(text="since added")
    await env.restart()
    await env.send_event("go", "test")
    assert await handle.result() == "yes"


async def test_the_function_is_forgotten_when_its_step_ends(env: Environment) -> None:
    class Big:
        """Something heavy that a closure holds."""

    alive: list[weakref.ref[Big]] = []

    @workflow
    async def wf(ctx: WorkflowContext) -> int:
        async def once(big: Big) -> int:
            async def use() -> int:
                return 1 if big else 0

            return await step(ctx, "big", lambda: 1 if big else 0, result=int) + await step(ctx, "big", use)

        for _ in range(3):
            big = Big()
            alive.append(weakref.ref(big))
            await once(big)
            del big
        await wait_event(ctx, "go")
        return 3

    await env.start(wf)
    assert len(alive) == 3
    await until(lambda: gc.collect() + 1 and not any(ref() for ref in alive))  # a thread lets go a moment later


# --- failures ---------------------------------------------------------------------------------------------------------
class Declined(Exception):
    pass


async def test_retries_timeouts_and_answers(env: Environment) -> None:
    tries: list[str] = []

    async def hang() -> None:
        tries.append("hang")
        await asyncio.Event().wait()

    def broken() -> None:
        tries.append("broken")
        raise ValueError("no")

    async def declined() -> None:
        raise Declined("too much")

    @workflow
    async def wf(ctx: WorkflowContext) -> list[str]:
        said: list[str] = []
        for name, fn in (("hang", hang), ("lambda", lambda: hang()), ("broken", broken), ("declined", declined)):
            try:
                await step(ctx, name, fn, result=type(None), retry=EXACT, timeout=5, raises=Declined)
            except ActivityTimeout as error:
                said.append(f"timeout after {error.attempts}")
            except ActivityError as error:
                said.append(f"{error.error_type} after {error.attempts}")
            except Declined as error:
                said.append(str(error))
        return said

    handle = await env.start(wf)
    said = ["timeout after 3", "timeout after 3", "ValueError after 3", "too much"]
    assert await handle.result() == said
    assert tries == ["hang"] * 6 + ["broken"] * 3


async def test_withdrawn_in_the_thread_its_coroutine_never_begins(env: Environment, impatient: None) -> None:
    began: list[str] = []
    gate, contexts = threading.Event(), list[ActivityContext]()

    async def second_half() -> None:
        began.append("too late")

    def first_half() -> Coroutine[Any, Any, None]:
        contexts.append(ActivityContext.current())
        gate.wait(30)
        return second_half()

    @workflow
    async def wf(ctx: WorkflowContext) -> str:
        try:
            async with asyncio.timeout(5):
                await step(ctx, "halves", first_half)
        except TimeoutError:
            return "gave up"
        return "done"

    handle = await env.start(wf)
    await env.advance(6)
    assert contexts[0].is_cancelled
    gate.set()
    assert await handle.result() == "gave up"
    await env.settle()
    assert began == []


async def test_cancelling_reaches_the_coroutine_of_a_lambda(env: Environment, impatient: None) -> None:
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    @workflow
    async def wf(ctx: WorkflowContext) -> None:
        await step(ctx, "hang", lambda: hang(), result=type(None))

    handle = await env.start(wf)
    await until(lambda: env.app._runtime.engine.activities.running)
    await env.cancel(handle)
    await until(lambda: ended)
    assert await handle.status() == "cancelled"


async def test_a_result_that_does_not_fit_fails_the_step(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> None:
        await step(ctx, "odd", lambda: object(), result=int)  # type: ignore[arg-type]

    with pytest.raises(WorkflowFailed, match="the result of step 'odd' can't be stored"):
        await (await env.start(wf)).result()


# --- mistakes ---------------------------------------------------------------------------------------------------------
@activity
async def charge(ctx: ActivityContext) -> int:
    return 1


async def needs(prompt: str, *, model: str) -> str:
    return prompt


def unannotated():  # type: ignore[no-untyped-def]
    return 1


@pytest.mark.parametrize(
    ("name", "fn", "more", "message"),
    [
        ("", ask, {}, r"the name of a step must have 1 to 200 printable characters, got ''"),
        ("a\nb", ask, {}, r"the name of a step must have 1 to 200 printable characters"),
        ("x" * 201, ask, {}, r"the name of a step must have 1 to 200 printable characters"),
        (7, ask, {}, r"the name of a step must be a string, got 7"),
        ("m", 7, {}, r"step 'm' takes a function, not 7; to run an expression, write lambda: \.\.\."),
        ("m", charge, {}, r"step 'm' takes a plain function, not <activity charge>, which you call itself"),
        ("m", needs, {}, r"without arguments, but .*needs.* 'prompt'; wrap it: lambda: fn\(\.\.\.\)"),
        ("m", lambda *, a: a, {"result": int}, r"without arguments, but .*'a'"),
        ("m", functools.partial(needs, "x"), {}, r"without arguments, but .*'model'"),
        ("m", lambda: 1, {}, r"step 'm' does not know how to read its result .* pass result=, e\.g\. result=str"),
        ("m", unannotated, {}, r"step 'm' does not know how to read its result"),
        ("m", lambda: 1, {"result": int, "input": object()}, r"the input of step 'm' can't be written as JSON: "),
        ("m", lambda: 1, {"result": threading.Lock}, r"the result of step 'm' is annotated .* can't be stored"),
        ("m", lambda: 1, {"result": int, "retry": 3}, r"step 'm': retry must be a RetryPolicy"),
        ("m", lambda: 1, {"result": int, "timeout": -1}, r"timeout must not be negative"),
    ],
)
async def test_mistakes_are_explained(env: Environment, name: Any, fn: Any, more: Any, message: str) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> None:
        await step(ctx, name, fn, **more)

    with pytest.raises(WorkflowFailed, match=message):
        await (await env.start(wf)).result()


async def test_a_coroutine_is_no_function(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> None:
        await step(ctx, "m", ask("x"))  # type: ignore[call-overload]

    with pytest.raises(
        WorkflowFailed, match=r"step 'm' takes a function, not its coroutine: write lambda: ask\(\.\.\."
    ):
        await (await env.start(wf)).result()


async def test_only_in_workflows(env: Environment) -> None:
    @activity(retry=NO_RETRY)
    async def inside(ctx: ActivityContext) -> None:
        await step(ctx, "m", lambda: ask("x"))  # type: ignore[call-overload]

    @workflow
    async def wf(ctx: WorkflowContext) -> None:
        await inside(ctx)

    with pytest.raises(WorkflowFailed, match="step must be called from a workflow, not from an activity"):
        await (await env.start(wf)).result()


async def test_random_values_of_the_workflow_are_refused_inside(env: Environment) -> None:
    """The function does not run on replay, so the numbers after it would be different ones."""

    @workflow
    async def wf(ctx: WorkflowContext) -> None:
        await step(ctx, "m", lambda: str(ctx.uuid4()), result=str, retry=NO_RETRY)

    with pytest.raises(WorkflowFailed, match=r"read it before the step"):
        await (await env.start(wf)).result()


async def test_primitives_are_refused_inside(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> None:
        async def nested() -> None:
            await sleep(ctx, 1)

        await step(ctx, "m", nested, retry=NO_RETRY)

    with pytest.raises(WorkflowFailed, match="was used outside its workflow function"):
        await (await env.start(wf)).result()


# --- with others ------------------------------------------------------------------------------------------------------
async def test_many_at_once(env: Environment) -> None:
    @workflow
    async def wf(ctx: WorkflowContext) -> list[int]:
        async def square(n: int) -> int:
            return await step(ctx, "square", lambda: n * n, result=int)

        return await asyncio.gather(*map(square, range(20)))

    handle = await env.start(wf)
    assert await handle.result() == [n * n for n in range(20)]
    assert (await kinds(env, handle.instance_id)).count("activity_completed") == 20
