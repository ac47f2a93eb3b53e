"""What docs/scaling.md says about roles and queries is so: its SQL is run as it stands there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from romancy import App, Database, StorageError, WorkflowContext, sleep, wait_event, workflow
from romancy.storage.tools import migration
from tests import pg_server
from tests.postgres.conftest import Place

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
BLOCKS = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
ROLES = next(block for block in BLOCKS if "CREATE ROLE" in block)
QUERIES = [block for block in BLOCKS if block.startswith("SELECT")]


@workflow
async def order(ctx: WorkflowContext, n: int) -> int:
    await sleep(ctx, 0.01)
    return (await wait_event(ctx, "paid", where={"order": n}, timeout=60)).data["amount"]


class Roles:
    """The page's roles, under names of their own."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.names = {"romancy_owner": f"{schema}_owner", "romancy_worker": f"{schema}_worker"}

    def named(self, sql: str) -> str:
        for name, mine in self.names.items():
            sql = sql.replace(name, mine)
        return re.sub(r"\bromancy\b", self.schema, sql)

    def url(self, role: str) -> str:
        return pg_server.url().replace("postgres@", f"{self.names[role]}@")


@pytest.fixture
async def roles(place: Place) -> AsyncIterator[Roles]:
    if "postgres@" not in pg_server.url():
        pytest.skip("this server wants passwords")
    roles, raw = Roles(place.schema), await place.raw()
    await raw.execute(roles.named(ROLES))
    yield roles
    for name in roles.names.values():
        await raw.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def app(roles: Roles, **options: Any) -> App:
    return App(Database(roles.url("romancy_worker"), schema=roles.schema), workflows=[order], **options)


async def test_workers_can_do_everything_but_migrate(roles: Roles) -> None:
    said = rf"schema '{roles.schema}' of .* holds no romancy tables yet, and this user can't create them"
    with pytest.raises(
        StorageError, match=rf"{said}; run `.* -d OWNER-URL --schema {roles.schema}` as its owner first"
    ):
        await app(roles).start()
    await migration.migrate(roles.url("romancy_owner"), roles.schema)
    url = roles.url("romancy_worker")
    assert await migration.version(url, roles.schema) == migration.newest(url)
    async with app(roles, retention=timedelta(0)) as first, app(roles) as second:
        handles = [await first.start_workflow(order, n) for n in range(40)]
        for n in range(38):
            await second.send_event("paid", "test", {"order": n, "amount": n})
        assert await asyncio.gather(*(handle.result(10) for handle in handles[:38])) == list(range(38))
        await second.cancel_workflow(handles[38].instance_id)
        await first._runtime.engine.storage.prune(first._runtime.clock.now() + 1, first._runtime.clock.now() + 1, 100)
        for engine in (first._runtime.engine, second._runtime.engine):
            assert engine.worker_id is not None
            await engine.balancing.round()
            await engine.storage.claim_idle(engine.worker_id, ["order"], 10)
        assert second._runtime.engine.worker_id is not None
        await second._runtime.engine.storage.take_over(
            second._runtime.engine.worker_id, [first._runtime.engine.worker_id or ""]
        )


async def test_what_later_migrations_make_is_theirs_too(roles: Roles) -> None:
    await migration.migrate(roles.url("romancy_owner"), roles.schema)
    owner = await asyncpg.connect(roles.url("romancy_owner"))
    await owner.execute(f"CREATE TABLE {roles.schema}.shiny (id integer GENERATED ALWAYS AS IDENTITY, a integer)")
    await owner.close()
    worker = await asyncpg.connect(roles.url("romancy_worker"))
    await worker.execute(f"INSERT INTO {roles.schema}.shiny (a) VALUES (1)")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await worker.execute(f"CREATE TABLE {roles.schema}.mine (a integer)")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await worker.execute(f"DROP TABLE {roles.schema}.shiny")
    await worker.close()


def test_the_page_has_what_is_tested_here() -> None:
    assert len(QUERIES) == 5
    assert len(BLOCKS) == 6


async def test_what_nobody_runs_is_found_whoever_owned_it_last(roles: Roles, place: Place) -> None:
    [query] = [query for query in QUERIES if query.startswith("SELECT i.workflow")]
    await migration.migrate(roles.url("romancy_owner"), roles.schema)
    async with app(roles, worker=False) as sender:
        for name in ("free", "orphan", "held"):
            await sender.start_workflow(name, instance_id=name)
        await sender._runtime.engine.storage.register("living", 60 * 10**6, [], [])
    raw = await place.raw()
    await raw.execute("UPDATE instances SET created_at = 0; UPDATE instances SET owner = 'dead' WHERE id = 'orphan'")
    await raw.execute("UPDATE instances SET owner = 'living' WHERE id = 'held'")
    assert {tuple(row) for row in await raw.fetch(roles.named(query))} == {("free", 1), ("orphan", 1)}


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.split()[1])
async def test_the_queries_of_the_page_run(roles: Roles, query: str) -> None:
    await migration.migrate(roles.url("romancy_owner"), roles.schema)
    worker = await asyncpg.connect(roles.url("romancy_worker"))
    try:
        await worker.fetch(roles.named(query))
    finally:
        await worker.close()
