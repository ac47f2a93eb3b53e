"""Large values are kept outside the database: nothing is lost, nobody waits for them, and what is not needed goes."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from romancy import (
    ActivityContext,
    App,
    CodecError,
    Retention,
    WorkflowContext,
    activity,
    sleep,
    start_workflow,
    wait_event,
    workflow,
)
from romancy import outside as module
from romancy.codecs import Chain, Compressed, Encrypted, Outside
from romancy.service import runtime_of
from romancy.testing import environment
from tests.engine.test_sealed import tables
from tests.engine.test_sealed_keys import until
from tests.sealed import KEYS

SIZE = 300_000
LONG_AGO = timedelta(days=30)


@activity
async def render(ctx: ActivityContext, letter: str, size: int = SIZE) -> str:
    return letter * size


@workflow
async def report(ctx: WorkflowContext, text: str) -> str:
    page = await render(ctx, "p")
    event = await wait_event(ctx, "go", where={"n": 1})
    return text + page + event.data["text"]


@workflow
async def small(ctx: WorkflowContext) -> int:
    return len(await render(ctx, "s", 10))


@workflow
async def parent(ctx: WorkflowContext, size: int) -> int:
    handle = await start_workflow(ctx, child, size)
    await wait_event(ctx, "read")
    return len(await handle.result())


@workflow
async def child(ctx: WorkflowContext, size: int) -> str:
    return "c" * size


@workflow
async def entity(ctx: WorkflowContext, runs: int, text: str) -> str:
    await render(ctx, "abc"[runs])
    if runs < 2:
        entity.continue_as_new(ctx, runs + 1, text)
    await wait_event(ctx, "end")
    return text


@workflow
async def pair(ctx: WorkflowContext) -> int:
    pages = [await render(ctx, "a"), await render(ctx, "b")]
    await wait_event(ctx, "end")
    return len("".join(pages))


@workflow
async def napping(ctx: WorkflowContext) -> int:
    page = await render(ctx, "n")
    await sleep(ctx, 3600)
    return len(page)


ALL = [report, small, parent, child, entity, pair, napping]
EXPECTED = "i" * SIZE + "p" * SIZE + "e" * SIZE


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def today(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The day that files are named after."""
    days = [datetime(2026, 1, 1, tzinfo=UTC)]
    monkeypatch.setattr(module, "_today", lambda: days[0])
    return days


def files(blobs: Path, kind: str = "") -> list[Path]:
    return sorted(path for path in blobs.glob(f"*/{kind or '*'}/*/*") if path.is_file())


async def sweep(app: App) -> int:
    storage: Any = runtime_of(app).engine.storage
    return await storage.sweep()


@pytest.mark.parametrize("encrypted", [False, True])
async def test_large_values_are_kept_outside_and_survive_a_restart(db: str, blobs: Path, encrypted: bool) -> None:
    codec = Outside(blobs, codec=Chain(Compressed(over=10**9), Encrypted(KEYS)) if encrypted else None)
    async with App(db, workflows=ALL, codec=codec) as app:
        handle = await app.start_workflow(report.options(instance_id="Order/1"), "i" * SIZE)
        await until(lambda: _is_waiting(app, "Order/1"))
    codec = Outside(blobs, codec=codec.codec)  # nothing is in its memory
    async with App(db, workflows=ALL, codec=codec) as app:
        await app.send_event("go", "shop", {"n": 1, "text": "e" * SIZE})
        handle = app.handle("Order/1")
        assert await handle.result(20) == EXPECTED
        instance = await app.get_instance("Order/1")
        assert instance.input == {"text": "i" * SIZE}
        assert instance.output == EXPECTED
        entries = {entry.kind: entry for entry in await app.get_history("Order/1")}
        assert entries["activity_completed"].result == "p" * SIZE
        [event] = (await app.list_events(type="go")).items
        assert event.event.data is not None
        assert b"eeee" in event.event.data
        stored = await tables(app, db)
        assert not any(letter * 100 in stored for letter in (b"i", b"p"))
    found = files(blobs, "instances")
    assert len(found) == 4, "input, result, event, output"
    assert len(files(blobs, "events")) == 1
    assert {path.parent.name for path in found} == {"%4frder%2f1"}
    assert any(b"pppp" in path.read_bytes() for path in found) != encrypted
    assert {path.stat().st_mode & 0o777 for path in found} == {0o600}


async def _is_waiting(app: App, id: str) -> bool:
    return any(wait.kind == "event" or wait.kind == "timer" for wait in (await app.get_instance(id)).waits)


@pytest.mark.parametrize(("damage", "said"), [(None, "is missing"), (b"x", "was changed")])
async def test_a_missing_file_blocks_and_is_named(db: str, blobs: Path, damage: bytes | None, said: str) -> None:
    async with App(db, workflows=ALL, codec=Outside(blobs)) as app:
        await app.start_workflow(report.options(instance_id="r"), "i" * SIZE)
        await until(lambda: _is_waiting(app, "r"))
    lost = next(path for path in files(blobs) if b"pppp" in path.read_bytes())
    content = lost.read_bytes()
    lost.unlink() if damage is None else lost.write_bytes(damage)
    async with App(db, workflows=ALL, codec=Outside(blobs)) as app:
        await app.send_event("go", "shop", {"n": 1, "text": "e"})
        await until(lambda app=app: _is_blocked(app, "r"))
        error = (await app.get_instance("r")).error
        assert lost.name in error["message"]
        assert said in error["message"]
        assert len(await app.get_history("r")) == 2, "people see the rest"
    lost.write_bytes(content)
    async with App(db, workflows=ALL, codec=Outside(blobs)) as app:
        await app.resume_workflow("r")
        assert await app.handle("r").result(20) == "i" * SIZE + "p" * SIZE + "e"


def test_a_path_is_shown_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says where a process looked for a file, if it was started elsewhere than the others."""
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        assert Outside("blobs").url == str(tmp_path / "blobs")
    assert Outside("memory://blobs").url == "memory://blobs"


async def test_events_outside_are_not_compressed(db: str, blobs: Path) -> None:
    """Their length would say something about the parts of them that others did not choose."""
    for n, (events, size) in enumerate([(False, SIZE), (True, 0)]):
        codec = Outside(blobs / str(n), codec=Chain(Compressed(events=events), Encrypted(KEYS)))
        async with App(f"{db}.{n}", codec=codec) as app:
            await app.send_event("go", "shop", "x" * SIZE)
        [file] = files(blobs / str(n))
        assert (file.stat().st_size > SIZE) is bool(size)


async def _is_blocked(app: App, id: str) -> bool:
    return (await app.get_instance(id)).status == "blocked"


async def test_a_value_of_another_instance_is_noticed(db: str, blobs: Path) -> None:
    codec = Outside(blobs, codec=Encrypted(KEYS))
    async with App(db, workflows=ALL, codec=codec) as app:
        for id, text in (("a", "a" * SIZE), ("b", "b" * SIZE)):
            await app.start_workflow(report.options(instance_id=id), text)
            await until(lambda id=id: _is_waiting(app, id))
    mine, other = (next(path for path in files(blobs) if path.parent.name == id) for id in "ab")
    other.write_bytes(mine.read_bytes())
    async with App(db, workflows=ALL, codec=Outside(blobs, codec=codec.codec)) as app:
        await app.send_event("go", "shop", {"n": 1, "text": "e"})
        await until(lambda: _is_blocked(app, "b"))


class Flaky:
    """Files that can't be reached, or only slowly."""

    def __init__(self, codec: Outside) -> None:
        self.inner: Any = codec.files
        self.is_down, self.tries = False, 0
        self.gate: threading.Event | None = None
        codec.files = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.tries += 1
            if self.is_down:
                raise ConnectionError("no route to the bucket")
            if self.gate is not None:
                assert self.gate.wait(20)
            return getattr(self.inner, name)(*args)

        return call


async def test_what_can_not_be_written_waits_and_others_go_on(db: str, blobs: Path) -> None:
    codec = Outside(blobs)
    store = Flaky(codec)
    async with App(db, workflows=ALL, codec=codec) as app:
        store.is_down = True
        napper = await app.start_workflow(napping.options(instance_id="n"))
        started = asyncio.ensure_future(app.start_workflow(report, "i" * SIZE))
        await until(lambda: _has_tried(store, 2))
        assert await (await app.start_workflow(small)).result(20) == 10
        assert not started.done()
        assert await napper.status() in ("running", "pending")
        store.is_down = False
        await asyncio.wait_for(started, 20)
        await until(lambda: _is_waiting(app, "n"))


async def _has_tried(store: Flaky, times: int) -> bool:
    return store.tries >= times


async def test_what_can_not_be_read_waits_and_others_go_on(db: str, blobs: Path) -> None:
    async with App(db, workflows=ALL, codec=Outside(blobs)) as app:
        await app.start_workflow(report.options(instance_id="r"), "i" * SIZE)
        await until(lambda: _is_waiting(app, "r"))
    codec = Outside(blobs)
    store = Flaky(codec)
    store.is_down = True
    async with App(db, workflows=ALL, codec=codec) as app:
        await app.send_event("go", "shop", {"n": 1, "text": "e"})
        await until(lambda: _has_tried(store, 1))
        assert await (await app.start_workflow(small)).result(20) == 10
        store.is_down = False
        assert len(await app.handle("r").result(20)) == 2 * SIZE + 1


async def test_nobody_waits_for_a_slow_write(db: str, blobs: Path) -> None:
    codec = Outside(blobs)
    store = Flaky(codec)
    store.gate = threading.Event()
    async with App(db, workflows=ALL, codec=codec) as app:
        await app.start_workflow(napping.options(instance_id="n"))
        await until(lambda: _has_tried(store, 1))
        assert await (await app.start_workflow(small)).result(20) == 10
        store.gate.set()
        await until(lambda: _is_waiting(app, "n"))


async def test_values_of_a_history_are_read_at_the_same_time(db: str, blobs: Path) -> None:
    async with App(db, workflows=ALL, codec=Outside(blobs)) as app:
        await app.start_workflow(pair.options(instance_id="p"))
        await until(lambda: _is_waiting(app, "p"))
    codec, both = Outside(blobs), threading.Barrier(2, timeout=20)
    read = codec.files.read
    codec.files.read = lambda path: (both.wait(), read(path))[1]  # type: ignore[method-assign]
    async with App(db, workflows=ALL, codec=codec) as app:
        await app.send_event("end", "shop")
        assert await app.handle("p").result(30) == 2 * SIZE


async def test_a_result_of_a_child_outlives_the_child(db: str, blobs: Path, today: list[datetime]) -> None:
    """A file belongs to one instance. So a value that its parent gets later is kept in the database."""
    kept = Retention(instances=timedelta(0))
    async with environment(database=db, workflows=ALL, codec=Outside(blobs), retention=kept) as env:
        handle = await env.start(parent, SIZE)
        today[0] += LONG_AGO
        await env.advance(LONG_AGO)
        await sweep(env.app)
        await env.send_event("read", "shop")
        assert await handle.result() == SIZE


async def test_files_go_with_their_instance_and_their_event(db: str, blobs: Path, today: list[datetime]) -> None:
    ids = ["x", "../y", "Ä" * 60, "l" * 200]
    kept = Retention(instances=timedelta(days=1), events=timedelta(days=1))
    async with environment(database=db, workflows=ALL, codec=Outside(blobs), retention=kept) as env:
        handles = [await env.start(report.options(instance_id=id), "i" * SIZE) for id in ids]
        for handle in handles:
            await env.send_event("go", "shop" + "!" * 300, {"n": 1, "text": "e" * SIZE})
            assert await handle.result() == EXPECTED
        await env.start(napping)
        names = files(blobs)
        today[0] += LONG_AGO
        assert await sweep(env.app) == 0, "all of them are needed"
        assert files(blobs) == names
        await env.advance(timedelta(days=3))  # napping has ended, and is removed as well
        assert not (await env.app.list_instances()).items
        await sweep(env.app)
        assert not files(blobs)
        assert not list(blobs.glob("*/*/*")), "nor empty folders"


async def test_new_files_are_kept_though_nothing_refers_to_them_yet(
    db: str, blobs: Path, today: list[datetime]
) -> None:
    codec = Outside(blobs)
    async with environment(database=db, workflows=ALL, codec=codec) as env:
        storage: Any = runtime_of(env.app).engine.storage
        owner = storage._vault.owner("instances/unborn/input")
        first = codec.put(b"x" * SIZE, owner)
        today[0] += timedelta(days=2)
        assert await sweep(env.app) == 0
        assert codec.known(b"x" * SIZE, owner.folder) is None, "too old to be referred to"
        second = codec.put(b"x" * SIZE, owner)
        today[0] += timedelta(days=2)
        assert await sweep(env.app) == 1
        assert (blobs / second.path).exists()
        assert not (blobs / first.path).exists()


async def test_a_run_leaves_no_files_to_the_next(db: str, blobs: Path, today: list[datetime]) -> None:
    async with environment(database=db, workflows=ALL, codec=Outside(blobs)) as env:
        handle = await env.start(entity, 0, "t" * SIZE)
        await env.settle()
        assert len(files(blobs)) == 6, "each run has an input and a page"
        today[0] += LONG_AGO
        assert await sweep(env.app) == 4
        await env.restart()
        await env.send_event("end", "shop")
        assert await handle.result() == "t" * SIZE


async def test_no_sweep(db: str, blobs: Path, today: list[datetime]) -> None:
    kept = Retention(instances=timedelta(days=1))
    async with environment(database=db, workflows=ALL, codec=Outside(blobs, sweep=False), retention=kept) as env:
        await env.start(napping)
        today[0] += LONG_AGO
        await env.advance(LONG_AGO)
        assert len(files(blobs)) == 1


async def test_the_worker_sweeps_by_itself(db: str, blobs: Path, today: list[datetime]) -> None:
    kept = Retention(instances=timedelta(days=1))
    async with environment(database=db, workflows=ALL, codec=Outside(blobs), retention=kept) as env:
        await env.start(napping)
        await env.advance(timedelta(days=2))
        today[0] += LONG_AGO
        await env.advance(timedelta(days=2))
        assert not files(blobs)


async def test_two_databases_share_a_directory(tmp_path: Path, blobs: Path, today: list[datetime]) -> None:
    for name in ("one", "two"):
        async with environment(database=str(tmp_path / name), workflows=ALL, codec=Outside(blobs)) as env:
            await env.start(report.options(instance_id=name), "i" * SIZE)
            today[0] += LONG_AGO
            assert await sweep(env.app) == 0
    assert len({path.parents[2] for path in files(blobs)}) == 2


async def test_a_fork_has_files_of_its_own(db: str, blobs: Path) -> None:
    codec = Outside(blobs)
    async with environment(database=db, workflows=ALL, codec=codec) as env:
        await env.start(report.options(instance_id="r"), "i" * SIZE)
        copy = await env.app.fork_workflow("r", at=1)
        await env.settle()
        for path in files(blobs, "instances"):
            if path.parent.name == "r":
                codec.forget(str(path.relative_to(blobs)))
        await env.restart()
        await env.send_event("go", "shop", {"n": 1, "text": "f"}, to=copy.instance_id)
        assert await copy.result(20) == "i" * SIZE + "p" * SIZE + "f"


async def test_a_codec_around_what_was_there_before(db: str, blobs: Path) -> None:
    """First plain, then encrypted, then outside: each reads what was written before."""
    ids = []
    for n, codec in enumerate([None, Encrypted(KEYS), Outside(blobs, codec=Encrypted(KEYS))]):
        async with App(db, workflows=ALL, codec=codec) as app:
            ids.append(f"r{n}")
            await app.start_workflow(report.options(instance_id=ids[-1]), "i" * SIZE)
            await until(lambda app=app, n=n: _is_waiting(app, f"r{n}"))
    async with App(db, workflows=ALL, codec=codec) as app:
        for id in ids:
            await app.send_event("go", "shop", {"n": 1, "text": "e"}, to=id)
            assert len(await app.handle(id).result(20)) == 2 * SIZE + 1


def test_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        Outside(tmp_path, over=-1)
    with pytest.raises(TypeError, match="another Outside"):
        Outside(tmp_path, codec=Outside(tmp_path))
    with pytest.raises(ValueError, match=r"give the chain to it: Outside\(url, codec=Chain"):
        Chain(Compressed(), Outside(tmp_path))
    with pytest.raises(CodecError, match="nowhere"):
        Outside("nowhere://bucket")
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(CodecError, match=r"romancy\[blobs\]"):
        Outside("s3://bucket")
