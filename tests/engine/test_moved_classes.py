"""`python shop.py` today, `import shop` tomorrow: exceptions of `raises=` are the same classes for the workflow."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import pg_server

pytestmark = pytest.mark.play

SHOP = '''
import asyncio, sys
from romancy import Database, ActivityContext, ActivityError, App, WorkflowContext, activity, wait_event, workflow
from bank import Declined as BankDeclined


class Declined(Exception):
    """The shop's own; the bank has one of the same name."""


class Stolen(Declined): ...


LISTED = {"all": (Declined, BankDeclined), "less": (BankDeclined,)}


@activity(raises=LISTED[sys.argv[3] if len(sys.argv) > 3 else "all"])
async def charge(ctx: ActivityContext, kind: str) -> None:
    raise {"own": Declined, "stolen": Stolen, "bank": BankDeclined}[kind](51, "no money")


@workflow
async def pay(ctx: WorkflowContext, kind: str) -> str:
    try:
        await charge(ctx, kind)
    except Stolen as error:
        branch = f"stolen {error.args}"
    except Declined as error:
        branch = f"own {error.args}"
    except BankDeclined as error:
        branch = f"bank {error.args}"
    except ActivityError as error:
        branch = f"the other branch: {error.error_type}"
    await wait_event(ctx, "go")
    return branch


def app(url: str, schema: str) -> App:
    return App(Database(url, schema or None), workflows=[pay])


async def begin(url: str, schema: str) -> None:
    async with app(url, schema) as running:
        for kind in ("own", "stolen", "bank"):
            handle = await running.start_workflow(pay, kind, instance_id=kind)
            while await handle.status() != "waiting_for_event":
                await asyncio.sleep(0.01)


async def finish(url: str, schema: str) -> None:
    async with app(url, schema) as running:
        await running.send_event("go", "test")
        for kind in ("own", "stolen", "bank"):
            if await running.handle(kind).status() == "blocked":
                await running.resume_workflow(kind)
            try:
                print(kind, "->", await running.handle(kind).result(timeout=20))
            except Exception as error:
                print(kind, "->", type(error).__name__, error)


if __name__ == "__main__":
    asyncio.run(begin(sys.argv[1], sys.argv[2]))
'''
FINISH = "import asyncio, sys, shop; asyncio.run(shop.finish(sys.argv[1], sys.argv[2]))"


@pytest.fixture
async def place(backend: str, tmp_path: Path) -> Any:
    """(URL, schema) of a database that processes can share."""
    if backend == "sqlite":
        yield str(tmp_path / "shop.db"), ""
        return
    async with pg_server.schema() as schema:
        yield pg_server.url(), schema


def run(folder: Path, *arguments: str) -> str:
    """A process of its own; returns what it prints."""
    path = os.pathsep.join([str(folder), *sys.path])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_shop(folder: Path) -> None:
    (folder / "bank.py").write_text("class Declined(Exception): ...\n")
    (folder / "shop.py").write_text(SHOP)


def test_what_a_script_recorded_takes_the_same_branch_where_it_is_imported(
    place: tuple[str, str], tmp_path: Path
) -> None:
    write_shop(tmp_path)
    run(tmp_path, "shop.py", *place)
    said = run(tmp_path, "-c", FINISH, *place)
    assert said.splitlines() == [f"{kind} -> {kind} (51, 'no money')" for kind in ("own", "stolen", "bank")]


def test_one_that_is_no_longer_listed_blocks_the_instance_and_says_why(place: tuple[str, str], tmp_path: Path) -> None:
    write_shop(tmp_path)
    run(tmp_path, "shop.py", *place)
    own, stolen, bank = run(tmp_path, "-c", FINISH, *place, "less").splitlines()
    for line in (own, stolen):
        assert "WorkflowBlocked" in line
        assert "activity 'charge' raised" in line
        assert "raises= no longer lists __main__.Declined" in line
    assert bank == "bank -> bank (51, 'no money')"
    mended = run(tmp_path, "-c", FINISH, *place)
    assert [line.split()[2] for line in mended.splitlines()] == ["own", "stolen", "bank"]
