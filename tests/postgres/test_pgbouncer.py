"""Behind PgBouncer in transaction mode, with notices on a direct connection.

It is no Python package, and distributions ship ones too old for prepared statements: set ROMANCY_TEST_PGBOUNCER to the
path of a pgbouncer 1.21 or newer to run these.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from romancy import App, Database, WorkflowContext, wait_event, workflow
from tests.helpers import eventually
from tests.postgres.servers import Breakable

PGBOUNCER = os.environ.get("ROMANCY_TEST_PGBOUNCER")
pytestmark = pytest.mark.skipif(
    not PGBOUNCER, reason="ROMANCY_TEST_PGBOUNCER does not name a pgbouncer (1.21 or newer) to test with"
)
PART = ("test_committing.py", "test_events.py", "test_owning.py", "test_plain_commits.py")


@dataclass
class Pooler:
    url: str
    direct: str
    log: Path


@pytest.fixture(scope="module")
def pooler() -> Iterator[Pooler]:
    server = Breakable()
    folder = Path(server.folder)
    config = folder / "pgbouncer.ini"
    config.write_text(
        f"[databases]\npostgres = host={folder} user=postgres\n[pgbouncer]\nunix_socket_dir={folder}\n"
        f"listen_port=6543\nlisten_addr=\nauth_type=any\npool_mode=transaction\nmax_prepared_statements=1000\ndefault_pool_size=8\n"
        f"logfile={folder}/pgbouncer.log\n"
    )
    owner = folder.stat().st_uid if os.getuid() == 0 else None  # it does not run as root
    process = subprocess.Popen([str(PGBOUNCER), "-q", str(config)], user=owner)
    try:
        eventually(lambda: (folder / ".s.PGSQL.6543").exists(), 10, "the pooler")
        url = f"postgresql://postgres@/postgres?host={folder}&port=6543"
        yield Pooler(url, server.url, folder / "pgbouncer.log")
    finally:
        process.kill()
        process.wait()
        server.remove()


def test_a_part_of_the_conformance_suite(pooler: Pooler) -> None:
    root = Path(__file__).parents[2]
    files = [str(root / "tests" / "storage" / name) for name in PART]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "postgres", *files],
        cwd=root,
        env={**os.environ, "ROMANCY_TEST_POSTGRES": pooler.url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]


@workflow
async def waits(ctx: WorkflowContext, n: int) -> str:
    return (await wait_event(ctx, "go", where={"n": n})).id


async def until_waiting(app: App, count: int) -> None:
    async with asyncio.timeout(20):
        while len((await app.list_waits(limit=100)).items) < count:  # noqa: ASYNC110 - another app
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("direct", [True, False])
async def test_events_cross_over(pooler: Pooler, direct: bool) -> None:
    """At once with a direct connection for notices; else with the next sweep."""
    database = Database(pooler.url, f"events_{direct}".lower(), pooler.direct if direct else None)
    late: list[float] = []
    async with (
        App(database, workflows=[waits]) as worker,
        App(database, worker=False) as client,
    ):
        handles = [await worker.start_workflow(waits, n) for n in range(8)]
        await until_waiting(worker, 8)
        for n, handle in enumerate(handles):
            begin = time.perf_counter()
            await client.send_event("go", "test", {"n": n}, id=f"e{n}")
            assert await handle.result(5) == f"e{n}"
            late.append(time.perf_counter() - begin)
    late.sort()
    assert late[-1] < 3
    assert not direct or late[4] < 0.2, f"late by {late} s"
    raw = await asyncpg.connect(pooler.direct)
    assert await raw.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0, (
        "a lock was left behind"
    )
    await raw.close()
