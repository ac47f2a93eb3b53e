"""Values are sealed: nothing in the database shows them, and everything works as without a codec."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from romancy import (
    NO_RETRY,
    ActivityContext,
    App,
    ReceivedEvent,
    RetryPolicy,
    Schedule,
    WorkflowContext,
    WorkflowFailed,
    activity,
    ask,
    emit,
    send_event,
    start_workflow,
    wait_event,
    workflow,
)
from romancy.codecs import Chain, Compressed, Encrypted, Outside, PayloadCodec
from romancy.desk import OperatorsDesk
from romancy.service import runtime_of
from romancy.storage.catalog import EventSearch
from romancy.storage.postgres import PostgresStorage
from romancy.testing import Environment, environment
from tests.engine.test_within import caller
from tests.sealed import KEYS

SECRET = "hunter2-4111111111111111"
BEFORE, AFTER = {"k1": KEYS["k1"]}, KEYS
"""The keys before and after a rotation."""


@activity(retry=RetryPolicy(initial=1, max_attempts=2))
async def look_up(ctx: ActivityContext, card: str) -> str:
    ctx.progress({"of": card})
    await emit(ctx, {"seen": card})
    if ctx.attempt == 1:
        raise ValueError(f"not yet: {card}")
    return f"{card} is fine"


@activity(retry=NO_RETRY)
async def refuse(ctx: ActivityContext, card: str) -> str:
    if tolerant:
        return f"paid {card}"
    raise ValueError(f"refused: {card}")


tolerant: list[bool] = []
"""Not empty: `refuse` does not refuse."""


@workflow
async def child(ctx: WorkflowContext, card: str) -> str:
    return f"child of {card}"


@workflow(on_event="order.created")
async def triggered(ctx: WorkflowContext, event: ReceivedEvent[Any]) -> Any:
    return event.data


@workflow
async def failing(ctx: WorkflowContext, card: str) -> str:
    return await refuse(ctx, card)


class Amount(BaseModel):
    amount: int


@workflow
async def payment(ctx: WorkflowContext, card: str) -> list[Any]:
    ctx.set_view({"card": card})
    found = await look_up(ctx, card)
    await emit(ctx, [card])
    kept = await (await start_workflow(ctx, child, card)).result()
    await send_event(ctx, "order.created", "shop", {"card": card})
    event = await wait_event(ctx, "paid", where={"card": card})
    question = await ask(ctx, bool, title=f"Pay {card}?", people=["ann"])
    answer = await question.answer()
    fitting = await wait_event(ctx, "amount", model=Amount)
    return [found, kept, event.data, answer.data, fitting.data.amount]


@workflow
async def waiter(ctx: WorkflowContext, card: str) -> Any:
    return (await wait_event(ctx, "paid", where={"card": card})).data


@workflow
async def triple(ctx: WorkflowContext) -> None:
    for n in (1, 2, 3):
        await emit(ctx, n)


ALL = [payment, child, triggered, failing, waiter, triple]


class Recorder:
    """A sink that fails once."""

    name, types = "rec", "order.*"

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.is_down = True

    async def deliver(self, event: ReceivedEvent[Any]) -> None:
        if self.is_down:
            raise ConnectionError(f"no {event.data}")
        self.got.append(event.data)


async def tables(app: App, db: str) -> bytes:
    """Everything in the database."""
    storage: Any = runtime_of(app).engine.storage
    if isinstance(getattr(storage, "_inner", storage), PostgresStorage):
        found = "SELECT tablename FROM pg_tables WHERE schemaname = $1"
        async with storage._connections.transaction() as c:
            names = [name for (name,) in await c.fetch(found, storage.schema)]
            rows = [row for name in names for row in await c.fetch(f'SELECT * FROM "{storage.schema}".{name}')]
        return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row)
    return b"".join(file.read_bytes() for file in Path(db).parent.glob("romancy.db*") if file.is_file())


async def write(app: App, sql: str) -> None:
    """Change the database behind the app's back."""
    storage: Any = runtime_of(app).engine.storage
    if isinstance(getattr(storage, "_inner", storage), PostgresStorage):
        async with storage._connections.transaction() as c:
            await c.execute(sql.replace("romancy_", f'"{storage.schema}".'))
        return
    with sqlite3.connect(storage.path, isolation_level=None) as connection:
        connection.execute(sql)
    connection.close()


async def play(env: Environment) -> None:
    """Use everything that stores values."""
    app = env.app
    await app.set_schedule("nightly", Schedule(every=timedelta(hours=1)), waiter, SECRET)
    handle = await env.start(payment, SECRET)
    await env.advance(2)
    emitted = [emission.value for emission in await env.emitted(handle)]
    assert emitted == [{"seen": SECRET}, None, {"seen": SECRET}, [SECRET]]  # None: the second attempt begins
    await env.send_event("paid", "bank", {"card": SECRET, "of": "someone"})
    await env.answer(handle, "ann", True)
    await env.send_event("amount", "bank", {"amount": SECRET})
    await env.send_event("amount", "bank", {"amount": 7})
    assert await handle.result() == [
        f"{SECRET} is fine",
        f"child of {SECRET}",
        {"card": SECRET, "of": "someone"},
        True,
        7,
    ]
    assert await handle.view() == {"card": SECRET}
    assert [i.output for i in (await app.list_instances(workflow="triggered")).items] == [{"card": SECRET}]
    await env.advance(timedelta(hours=1))
    await env.send_event("paid", "bank", {"card": SECRET})
    assert (await app.list_instances(workflow="waiter")).items[-1].output == {"card": SECRET}
    async with caller(app) as me:
        await me.run("BEGIN")
        pending = await app.within(me.connection).start_workflow(waiter, SECRET)
        await app.within(me.connection).send_event("paid", "bank", {"card": SECRET})
        await me.run("COMMIT")
    await env.advance(2)
    assert await pending.handle().result(timeout=5) == {"card": SECRET}


async def play_failures(env: Environment) -> None:
    handle = await env.start(failing, SECRET)
    with pytest.raises(WorkflowFailed, match=f"refused: {SECRET}"):
        await handle.result()
    page = await env.app.list_instances(error_type="ActivityError")
    assert [item.instance_id for item in page.items] == [handle.instance_id]
    [group] = (await OperatorsDesk(runtime_of(env.app).engine.storage, env.clock).failures()).groups
    assert group.error_type == "ActivityError"
    assert SECRET in group.message
    tolerant.append(True)
    try:
        copy = await env.app.fork_workflow(handle.instance_id, at=0)
        await env.app.retry_workflow(handle.instance_id)
        await env.settle()
        assert await handle.result() == await copy.result(timeout=5) == f"paid {SECRET}"
    finally:
        tolerant.clear()
    cancelled = await env.start(waiter, SECRET)
    await env.cancel(cancelled, reason=f"because of {SECRET}")
    assert (await cancelled.status()) == "cancelled"


CODECS: dict[str, PayloadCodec] = {
    "aes": Encrypted(KEYS),
    "chain": Chain(Compressed(over=10), Encrypted(KEYS)),
    "outside": Outside("memory://everything", over=0, codec=Encrypted(KEYS)),
}


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
async def test_nothing_in_the_database_shows_a_secret(db: str, codec: PayloadCodec) -> None:
    sink = Recorder()
    async with environment(database=db, workflows=ALL, codec=codec, sinks=[sink]) as env:
        await play(env)
        assert SECRET.encode() not in await tables(env.app, db)
        sink.is_down = False
        await env.advance(timedelta(hours=1))
        assert {"card": SECRET} in sink.got
        await play_failures(env)
        assert SECRET.encode() not in await tables(env.app, db)


async def test_a_key_is_not_a_codec() -> None:
    with pytest.raises(TypeError, match=r"codec must be a codec, such as Encrypted\(\[key\]\), not bytes"):
        async with App(":memory:", codec=KEYS["k1"]):  # type: ignore[arg-type]
            pass


@pytest.mark.parametrize("text", ["romancy", "aes", "\0"])
async def test_text_is_not_looked_for_in_what_is_sealed(db: str, text: str) -> None:
    """A sealed value names its codec, and by chance it contains any short text."""
    async with App(db, workflows=[triggered, child], codec=Encrypted(KEYS)) as app:
        await (await app.start_workflow(child.options(instance_id="one"), SECRET)).result(timeout=20)
        await app.send_event("order.paid", "shop", SECRET, id="e1")
        assert [i.instance_id for i in (await app.list_instances(text="ONE")).items] == ["one"]
        assert not (await app.list_instances(text=text)).items
        catalog = runtime_of(app).engine.storage.catalog
        for wanted, found in ((text, []), ("PAID", ["e1"])):
            events, _ = await catalog.shown_events(EventSearch(text=wanted), None, 10, None, 1000)
            assert [shown.event.id for shown in events] == found


async def test_the_same_without_a_codec_does_show_it(db: str) -> None:
    """So that the test above can fail."""
    async with environment(database=db, workflows=ALL, sinks=[Recorder()]) as env:
        await play(env)
        assert SECRET.encode() in await tables(env.app, db)
