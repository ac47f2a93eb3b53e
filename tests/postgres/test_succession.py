"""An instance is admitted with the end of another one, while somebody asks it to be cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

from romancy import App, Database, Queue, WorkflowContext, workflow
from romancy.core.admission import Admission
from romancy.core.queues import Place as QueuePlace
from romancy.storage.batch import CANCEL, Batch, BatchResult, Commit, Start
from romancy.storage.postgres import PostgresStorage
from tests.postgres.conftest import Place

LEASE = 30_000_000


async def commit(storage: PostgresStorage, worker: str | None, n: int, **items: Any) -> BatchResult:
    future: asyncio.Future[BatchResult] = asyncio.get_running_loop().create_future()
    batch = Batch(worker, ("wf",), bytes([n]) * 16, 1, **items)
    storage.commit(batch, lambda answer, error: future.set_result(answer) if answer else future.set_exception(error))
    return await future


async def test_a_request_that_the_admission_did_not_see_is_found_as_mail(place: Place) -> None:
    """Its sender died before it could look for the owner, or cancel the instance at once."""
    storage = PostgresStorage(place.url, schema=place.schema)
    await storage.open()
    try:
        await storage.register("w1", LEASE, (), ("wf",))
        await commit(
            storage, None, 1, starts=[Start(id, "wf", b"1", 0, 1, place=QueuePlace("q", "", 0)) for id in "ab"]
        )
        queue = Queue("q", max_concurrent=1)
        state = (await storage.queues.glance(queue)).state
        await storage.queues.admit(Admission("q", state.version, "", 0, ["a"]), "w1", 1, ["wf"])
        state = (await storage.queues.glance(queue)).state
        raw = await place.raw()
        async with raw.transaction():
            await raw.execute("SELECT 1 FROM queues FOR UPDATE")  # the commit has its snapshot, and waits
            end = Commit("a", 1, "completed", 1, output=b"1", admits=Admission("q", state.version, "", 0, ["b"]))
            ending = asyncio.ensure_future(commit(storage, "w1", 2, commits=[end]))
            while not await raw.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            other = await place.raw()
            asked = "INSERT INTO requests (instance, kind, payload, at, token, n) VALUES ('b', $1, '{}', 1, '\\x01', 0)"
            await other.execute(asked, CANCEL)
        [admitted] = (await ending).admitted
        assert admitted.row is not None, "it was not seen"
        assert [instance for instance, _ in (await storage.mail("w1", 10)).requests] == ["b"]
    finally:
        await storage.close()


@workflow(queue=Queue("single", max_concurrent=1))
async def one_by_one(ctx: WorkflowContext, n: int) -> int:
    return n


async def test_what_is_admitted_in_turn_is_hardly_ever_read(place: Place, monkeypatch: Any) -> None:
    """Each takes one round trip. Only now and then, one is read while the next ones are found."""
    at, read, load = Database(place.url, schema=place.schema), list[str](), PostgresStorage.load

    async def watched(self: PostgresStorage, instance: str) -> Any:
        read.append(instance)
        return await load(self, instance)

    monkeypatch.setattr(PostgresStorage, "load", watched)
    monkeypatch.setattr("romancy.engine.foresight.AGING", 60)
    monkeypatch.setattr("romancy.engine.foresight.FRESH", 60)
    async with App(at, worker=False) as app:
        handles = await asyncio.gather(*(app.start_workflow(one_by_one, n) for n in range(100)))
    async with App(at, workflows=[one_by_one]) as app:
        assert [await app.handle(h.instance_id, one_by_one).result(30) for h in handles] == list(range(100))
    assert len(read) < 20
