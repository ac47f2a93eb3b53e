"""What hooks and metrics are told about what was left with `app.within` and refused."""

from __future__ import annotations

from typing import Any

from romancy import App, HooksBase, InboxRefusedInfo, WorkflowContext, workflow
from romancy.service import runtime_of
from romancy.storage.errors import RefusedValue
from tests.engine.test_guests_at_work import caller


@workflow
async def double(ctx: WorkflowContext, n: int) -> int:
    return 2 * n


class Told(HooksBase):
    def __init__(self) -> None:
        self.refused: list[InboxRefusedInfo] = []

    def on_inbox_refused(self, info: InboxRefusedInfo) -> None:
        self.refused.append(info)


async def test_a_start_whose_id_is_taken(db: str) -> None:
    told = Told()
    async with App(db, workflows=[double], hooks=[told]) as app:
        await (await app.start_workflow(double.options(instance_id="taken"), 1)).result(timeout=10)
        async with caller(app) as me, me.transaction() as connection:
            tx = app.within(connection)
            await tx.send_event("paid", "bank")
            await tx.start_workflow(double, 2, instance_id="fine")
            await tx.start_workflow(double, 2, instance_id="taken")
        await runtime_of(app).engine.take_in()
        [refused] = (await app.list_inbox()).items
        [info] = told.refused
        assert (info.number, info.reason) == (refused.number, refused.refused)
        assert (info.instance_id, info.workflow, info.event_id) == ("taken", "double", None)
        assert refused.at <= info.at
        assert runtime_of(app).engine.metrics.moved == {"start": 2, "event": 1, "refused": 1}
        assert await app.handle("fine", double).result(timeout=10) == 4


async def test_an_event_that_the_database_refuses(db: str) -> None:
    told = Told()
    async with App(db, workflows=[double], hooks=[told]) as app:
        engine: Any = runtime_of(app).engine
        await engine._moving.stop()
        move = engine.storage.move

        async def refuse(batch: Any) -> Any:
            if any(accept.event.id == "bad" for accept in batch.accepts):
                raise RefusedValue("too long")
            return await move(batch)

        engine.storage.move = refuse
        async with caller(app) as me, me.transaction() as connection:
            for id in ("good", "bad"):
                await app.within(connection).send_event("paid", "bank", id=id)
        await engine.take_in()
        [info] = told.refused
        assert (info.event_type, info.event_source, info.event_id, info.reason) == ("paid", "bank", "bad", "too long")
        assert info.instance_id is None
        assert (engine.metrics.moved["event"], engine.metrics.moved["refused"]) == (1, 1)
