"""Keys of sealed values: turning a codec on, rotating keys, keys that are missing or wrong, values that were moved."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from romancy import (
    App,
    CodecError,
    InstanceExists,
    ReceivedEvent,
    Schedule,
    StorageError,
    WorkflowBlocked,
    WorkflowCancelled,
)
from romancy.cli.database_target import DatabaseTarget
from romancy.cli.why import explain
from romancy.codecs import Encrypted
from romancy.core.history import Entry, Kind
from romancy.service import runtime_of
from romancy.storage import postgres, sqlite
from romancy.storage.batch import Batch, BatchResult, Commit
from romancy.testing import Environment, environment
from tests.engine.test_sealed import AFTER, ALL, BEFORE, SECRET, payment, triple, waiter, write

OTHER = {"card": "another"}


def sealed(db: str, keys: Any, **options: Any) -> App:
    return App(db, workflows=ALL, codec=None if keys is None else Encrypted(keys), **options)


async def until(check: Callable[[], Awaitable[Any]]) -> None:
    """Wait for something that no event tells."""
    async with asyncio.timeout(20):
        while not await check():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def until_waiting(app: App, id: str) -> None:
    async def waits() -> Any:
        return (await app.get_instance(id)).waits

    await until(waits)


@pytest.mark.parametrize("before", [None, BEFORE], ids=["plain", "k1"])
async def test_what_was_stored_before_goes_on(db: str, before: Any) -> None:
    """Waits and events that were filed without the index key are found with it."""
    async with sealed(db, before) as app:
        await app.start_workflow(waiter.options(instance_id="early"), SECRET)
        await app.start_workflow(payment.options(instance_id="late"), SECRET)
        await until_waiting(app, "early")
        await app.send_event("paid", "bank", {"card": SECRET}, to="late")  # it does not wait for it yet
        await app.send_event("paid", "bank", OTHER)
    async with sealed(db, AFTER) as app:
        again = await app.start_workflow(waiter.options(instance_id="early"), SECRET)
        assert not again.created
        with pytest.raises(InstanceExists):
            await app.start_workflow(waiter.options(instance_id="early"), "something else")
        await app.send_event("paid", "bank", {"card": SECRET})
        handles = app.handle("early"), app.handle("late")
        assert await handles[0].result(timeout=10) == {"card": SECRET}

        async def has_taken_it() -> bool:
            return any(entry.kind == "event_received" for entry in await app.get_history("late"))

        await until(has_taken_it)
    async with sealed(db, AFTER) as app:
        assert await app.handle("early").result(timeout=10) == {"card": SECRET}


async def test_a_process_without_a_codec_is_shut_out(db: str) -> None:
    async with sealed(db, None) as plain:
        await plain.start_workflow(waiter.options(instance_id="mine"), SECRET)
        await until_waiting(plain, "mine")
        async with sealed(db, AFTER) as app:
            with pytest.raises(StorageError, match="codec"):
                await plain.send_event("paid", "bank", {"card": SECRET})
            await app.send_event("paid", "bank", {"card": SECRET})
            assert await app.handle("mine").result(timeout=15) == {"card": SECRET}
    with pytest.raises(CodecError, match="App\\(codec="):
        await sealed(db, None).start()


async def test_sealing_does_not_let_in_libraries_that_are_too_old(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later migration has shut them out before. A codec does not make them any newer."""
    newer = sqlite.migrations.LIBRARY_VERSION + 7
    with monkeypatch.context() as patch:
        for kind in (sqlite, postgres):
            patch.setattr(kind.migrations, "LIBRARY_VERSION", newer)
        async with sealed(db, None) as app:
            await write(app, f"UPDATE romancy_schema_info SET min_reader = {newer}")
        async with sealed(db, AFTER):
            pass
    with pytest.raises(StorageError, match="newer romancy"):
        await sealed(db, AFTER).start()


async def test_operators_see_and_cancel_without_the_codec(db: str) -> None:
    async with sealed(db, AFTER) as app:
        await app.start_workflow(waiter.options(instance_id="w"), SECRET)
        await app.start_workflow(payment.options(instance_id="p"), SECRET)
        await until_waiting(app, "w")
        await app.send_event("unheard", "bank", {"card": SECRET})
    async with sealed(db, None, worker=False) as app:
        page = await app.list_instances()
        assert {item.input for item in page.items} == {"sealed (k2)"}
        [unheard] = [r.event for r in (await app.list_events(type="unheard")).items]
        assert unheard.data == b'"sealed (k2)"'
        for item in page.items:
            assert SECRET not in repr(await app.get_history(item.instance_id))
            assert SECRET not in repr(await app.get_instance(item.instance_id))
        with pytest.raises(CodecError, match="sealed"):
            await app.send_event("paid", "bank", {"card": SECRET})
        with pytest.raises(CodecError, match="sealed"):
            await app.start_workflow(waiter, SECRET)
        await app.cancel_workflow("w", reason="enough")
    async with sealed(db, AFTER) as app:
        with pytest.raises(WorkflowCancelled, match="enough"):
            await app.handle("w").result(timeout=10)


async def test_a_worker_without_the_key_leaves_the_instance_to_others(db: str) -> None:
    """It is not lost, and not stuck: a worker with the key takes it."""
    async with sealed(db, BEFORE) as app:
        await app.start_workflow(waiter.options(instance_id="old"), SECRET)
        await until_waiting(app, "old")
    async with sealed(db, {**AFTER}) as app:  # the index key is sealed with k2 from now on
        await until_waiting(app, "old")
    async with sealed(db, {"k2": AFTER["k2"]}) as lacking:
        await lacking.send_event("paid", "bank", {"card": SECRET})
        with pytest.raises(WorkflowBlocked, match=r"'k1'.* continues it by itself"):
            await lacking.handle("old").result(timeout=10)
        async with sealed(db, None, worker=False) as closed:  # those without any key learn which one is missing
            assert (await closed.get_instance("old")).error["missing"] == "k1"
            said = (await explain(DatabaseTarget(closed), "old")).lines
            assert said[0] == "it is blocked: the worker that tried it lacks the key 'k1'"
            assert "fix the code" not in " ".join(said)
        async with sealed(db, AFTER) as app:

            async def is_taken() -> bool:
                return await app.handle("old").status() != "blocked"

            await until(is_taken)
            assert await app.handle("old").result(timeout=10) == {"card": SECRET}


async def test_a_wrong_key_is_refused_and_changes_nothing(db: str) -> None:
    async with sealed(db, AFTER) as app:
        await app.start_workflow(waiter.options(instance_id="w"), SECRET)
        await until_waiting(app, "w")
    for keys in ({"k2": os.urandom(32)}, {"k3": os.urandom(32)}):
        with pytest.raises(CodecError, match=r"this database can't be opened with the codec of this app: it .*k2"):
            await sealed(db, keys).start()
    async with sealed(db, AFTER) as app:
        await app.send_event("paid", "bank", {"card": SECRET})
        assert await app.handle("w").result(timeout=10) == {"card": SECRET}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE romancy_instances SET input = (SELECT input FROM romancy_instances WHERE id = 'b') WHERE id = 'a'",
        "UPDATE romancy_history SET payload = (SELECT payload FROM romancy_history WHERE instance = 'b' AND n = 1) "
        "WHERE instance = 'a' AND n = 1",
    ],
    ids=["input", "history"],
)
async def test_a_value_that_was_moved_blocks_the_instance(db: str, damage: str) -> None:
    async with environment(database=db, workflows=ALL, codec=Encrypted(AFTER)) as env:
        for id in "ab":
            await env.start(payment.options(instance_id=id), f"{SECRET} of {id}")
        await write(env.app, damage)
        await env.restart()
        await env.settle()
        await env.advance(5)
        with pytest.raises(WorkflowBlocked, match="moved"):
            await env.app.handle("a").result(timeout=5)
        assert await env.app.handle("b").status() != "blocked"


class Randomly(Encrypted):
    """A codec as many examples have it: with a random nonce."""

    def encode(self, payload: bytes, place: str, /) -> bytes:
        nonce = os.urandom(8) if place.startswith("history/") else bytes(8)  # else the app does not even start
        return nonce + super().encode(payload, place)

    def decode(self, payload: bytes, place: str | None, /) -> bytes:
        return super().decode(payload[8:], place)


@pytest.mark.parametrize(("codec", "is_stored"), [(Encrypted, True), (Randomly, False)])
async def test_a_batch_can_be_submitted_again(db: str, codec: Callable[..., Any], is_stored: bool) -> None:
    """After a lost answer, it is compared with what is stored. A codec that is not deterministic breaks that."""
    async with environment(database=db, workflows=ALL, codec=codec(AFTER)) as env:
        await env.start(waiter.options(instance_id="w"), SECRET)
        engine = runtime_of(env.app).engine
        row = await engine.storage.catalog.instance("w")
        assert row is not None
        entry = Entry(1, Kind.TIMER_FIRED, "other", env.clock.now(), b"{}", b"[1]")
        commit = Commit("w", row.version, row.status, env.clock.now(), True, [entry], append_only=True)
        batch = Batch(engine.worker_id, ["waiter"], os.urandom(16), env.clock.now(), commits=[commit])
        answers: list[bool | None] = []
        for _ in range(2):
            done: asyncio.Future[BatchResult | None] = asyncio.get_running_loop().create_future()
            engine.storage.commit(batch, lambda result, error, done=done: done.set_result(result))
            result = await done
            answers.append(bool(result and result.commits == [True]))
        assert answers == [True, is_stored]


async def test_a_strict_codec_refuses_plain_values(db: str) -> None:
    async with environment(database=db, workflows=ALL, codec=Encrypted(AFTER, strict=True)) as env:
        handle = await env.start(waiter.options(instance_id="w"), SECRET)
        plain = b'{"card": "forged"}'.hex()
        literal = f"'\\x{plain}'::bytea" if not db_is_sqlite(env) else f"x'{plain}'"
        await write(env.app, f"UPDATE romancy_instances SET input = {literal}")
        await env.restart()
        await env.send_event("paid", "bank", {"card": SECRET})
        with pytest.raises(WorkflowBlocked, match="not sealed"):
            await handle.result(timeout=5)
        with pytest.raises(InstanceExists, match="its input can't be compared: the value instances/w/input is not"):
            await env.app.start_workflow(waiter.options(instance_id="w"), SECRET)


class Reversed:
    """A codec of the simplest kind."""

    name = "reversed"

    def encode(self, payload: bytes, place: str, /) -> Any:
        return payload[::-1]

    def decode(self, payload: bytes, place: str | None, /) -> Any:
        return payload[::-1]


class Forgetful(Reversed):
    def encode(self, payload: bytes, place: str, /) -> Any:
        return b""


class Random(Reversed):
    def encode(self, payload: bytes, place: str, /) -> Any:
        return payload[::-1] + os.urandom(1)


class NoBytes(Reversed):
    def decode(self, payload: bytes, place: str | None, /) -> Any:
        return payload[::-1].decode("latin-1")


class Clumsy(Reversed):
    def encode(self, payload: bytes, place: str, /) -> Any:
        return payload.decode().encode()


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("codec", "error"),
    [
        (Forgetful, "does not decode"),
        (Random, "not deterministic"),
        (NoBytes, "returned str"),
        (Clumsy, "UnicodeDecode"),
    ],
)
async def test_a_codec_that_does_not_work_is_refused_at_the_start(db: str, codec: Any, error: str) -> None:
    """And what it was given is not in the message: the first value would be the key for filters."""
    with pytest.raises(CodecError, match=error) as caught:
        await App(db, workflows=ALL, codec=codec()).start()
    assert "\\x" not in str(caught.value)


async def test_a_schedule_without_its_key_holds_up_no_other(db: str) -> None:
    hourly = Schedule(every=timedelta(hours=1))
    async with environment(database=db, workflows=ALL, codec=Encrypted(BEFORE)) as env:
        await env.app.set_schedule("a", hourly, waiter, SECRET)
    async with environment(database=db, workflows=ALL, codec=Encrypted(AFTER)):
        pass  # the key for filters is sealed with the new key from now on
    async with environment(database=db, workflows=ALL, codec=Encrypted({"k2": AFTER["k2"]})) as env:
        await env.app.set_schedule("b", hourly, waiter, SECRET)
        await env.advance(timedelta(hours=2))
        found = {item.schedule: item.status for item in (await env.app.list_instances()).items}
        assert found == {"a": "blocked", "b": "waiting_for_event"}
        await env.app.pause_schedule("a")
        await env.app.delete_schedule("a")


class Taker:
    name, types = "taker", "order"

    def __init__(self, *, is_down: bool = False) -> None:
        self.got: list[Any] = []
        self.is_down = is_down

    async def deliver(self, event: ReceivedEvent[Any]) -> None:
        if self.is_down:
            raise ConnectionError("later")
        self.got.append(event.data)


async def test_an_event_without_its_key_holds_up_no_other(db: str) -> None:
    async with environment(database=db, workflows=ALL, codec=Encrypted(BEFORE), sinks=[Taker(is_down=True)]) as env:
        await env.send_event("order", "shop", 1, subject="a")
    async with environment(database=db, workflows=ALL, codec=Encrypted(AFTER)):
        pass
    sink = Taker()
    async with environment(database=db, workflows=ALL, codec=Encrypted({"k2": AFTER["k2"]}), sinks=[sink]) as env:
        await env.send_event("order", "shop", 2, subject="b")
        await env.advance(timedelta(minutes=5))
        assert sink.got == [2]
        [record] = await env.app.list_sinks()
        assert "key 'k1'" in (record.last_error or "")


@pytest.mark.parametrize("error", ['{"sealed": "', '{"sealed": "abc", "error_type": "E", "message": ""}'])
async def test_a_damaged_error_is_shown_as_such(db: str, error: str) -> None:
    async with environment(database=db, workflows=ALL, codec=Encrypted(AFTER)) as env:
        for id in "ab":
            await env.start(waiter.options(instance_id=id), SECRET)
        value = f"x'{error.encode().hex()}'" if db_is_sqlite(env) else f"'\\x{error.encode().hex()}'::bytea"
        await write(env.app, f"UPDATE romancy_instances SET error = {value} WHERE id = 'a'")
        await env.restart()
        await env.send_event("paid", "bank", {"card": SECRET})
        assert "damaged" in str((await env.app.get_instance("a")).error)
        assert len((await env.app.list_instances()).items) == 2
        assert (await env.app.get_instance("a")).status == "blocked"
        assert (await env.app.get_instance("b")).status == "completed"


async def test_emissions_without_the_key_keep_their_numbers_and_their_end(db: str) -> None:
    async with environment(database=db, workflows=ALL) as env:  # plain
        handle = await env.start(triple.options(instance_id="t"))
        assert [e.value for e in await env.emitted(handle)] == [1, 2, 3]
    async with environment(database=db, workflows=ALL, codec=Encrypted(AFTER, strict=True)) as env:
        found = [(e.n, e.value) for e in await env.emitted(env.app.handle("t"))]
        assert found == [(1, "not sealed"), (2, "not sealed"), (3, "not sealed")]


def db_is_sqlite(env: Environment) -> bool:
    return hasattr(runtime_of(env.app).engine.storage, "path")


@pytest.mark.sqlite
async def test_files_are_private(db: str) -> None:
    async with sealed(db, None) as app:
        await app.start_workflow(waiter, SECRET)
        folder = f"{db}.workers"
        files = [db, f"{db}-wal", f"{db}-shm", *(f"{folder}/{name}" for name in os.listdir(folder))]
        assert {oct(os.stat(file).st_mode & 0o777) for file in files} == {"0o600"}
        assert os.stat(folder).st_mode & 0o777 == 0o700
