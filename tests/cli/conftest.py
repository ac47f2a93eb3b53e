"""A folder with a shop's workflows and a database in which each of them has got somewhere."""

from __future__ import annotations

import asyncio
import importlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from romancy import testing
from romancy.cli.group import main
from tests import pg_server

SHOP = """
from dataclasses import dataclass
from datetime import timedelta
from romancy import ActivityContext, ReceivedEvent, RetryPolicy, WorkflowContext, activity, sleep, wait_event, workflow

CHANGED = False

@dataclass
class Paid:
    amount: float

@activity
async def charge(ctx: ActivityContext, amount: float) -> str:
    return f"charged {amount}"

@activity(retry=RetryPolicy(jitter=0))
def ship(ctx: ActivityContext) -> str:
    raise ValueError("[bold]no ship[/bold]")

@workflow
async def hello(ctx: WorkflowContext, name: str, times: int = 1) -> dict[str, str]:
    key = str(ctx.uuid4())
    await charge.options(activity_id=f"charge-{key[:4]}")(ctx, times * 1.5)
    return {"greeting": f"hello {name} " * times}

@workflow
async def shout(ctx: WorkflowContext, text: str) -> str:
    return text.upper() + "!\\nreally"

@workflow
async def pay(ctx: WorkflowContext, order: str) -> str:
    await charge(ctx, 3.0); ctx.describe(f"waiting for {order}")
    event = await wait_event(
        ctx, "payment.completed", model=Paid, where={"order.id": order}, timeout=timedelta(hours=5)
    )
    return f"paid {event.data.amount}"

@workflow
async def nap(ctx: WorkflowContext) -> None:
    await sleep(ctx, timedelta(days=30))

@workflow
async def fails(ctx: WorkflowContext) -> None:
    raise RuntimeError("no way")

@workflow
async def delivers(ctx: WorkflowContext) -> None:
    await ship(ctx)

@workflow
async def turns(ctx: WorkflowContext) -> None:
    await charge(ctx, 2.0 if CHANGED else 1.0)
    await wait_event(ctx, "turned")

@workflow(on_event="order.placed")
async def placed(ctx: WorkflowContext, event: ReceivedEvent[dict[str, int]]) -> int:
    return event.data["n"]
"""


async def _stock(path: Path, shop: ModuleType) -> None:
    async with testing.environment(workflows=[shop], database=str(path)) as env:
        await env.start(shop.turns.options(instance_id="blocked"))
        shop.CHANGED = True
        await env.restart()
        await env.send_event("turned", "test")
        await env.start(shop.hello.options(instance_id="done"), "Ada")
        await env.start(shop.fails.options(instance_id="failed"))
        await env.start(shop.nap.options(instance_id="asleep"))
        await env.start(shop.pay.options(instance_id="order-1"), "ORD-1")
        await env.start(shop.pay.options(instance_id="[red]x"), "ORD-[2]")
        await env.start(shop.delivers.options(instance_id="retrying"))


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once, copied for every test."""
    folder = tmp_path_factory.mktemp("stock")
    with pytest.MonkeyPatch.context() as patch:
        _work_in(folder, patch)
        asyncio.run(_stock(folder / "romancy.db", importlib.import_module("shop")))
        sys.modules.pop("shop")
    return folder


def _work_in(folder: Path, patch: pytest.MonkeyPatch) -> None:
    (folder / "shop.py").write_text(SHOP)
    patch.chdir(folder)
    patch.setattr(sys, "path", [str(folder), *sys.path])
    patch.setattr(sys, "dont_write_bytecode", True)  # files here change within one tick of the file system's clock
    for name in ("ROMANCY_DATABASE", "ROMANCY_SCHEMA"):
        patch.delenv(name, raising=False)
    importlib.invalidate_caches()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: the shop's module, no database."""
    known = set(sys.modules)
    _work_in(tmp_path, monkeypatch)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def database(folder: Path, stock: Path) -> Path:
    """The stocked database, at ./romancy.db."""
    for file in stock.glob("romancy.db*"):
        if file.is_file():
            shutil.copy(file, folder)
    return folder / "romancy.db"


@pytest.fixture
def schema() -> Iterator[str]:
    """The name of a schema that is not there yet."""
    loop = asyncio.new_event_loop()
    stack = AsyncExitStack()
    yield loop.run_until_complete(stack.enter_async_context(pg_server.schema()))
    loop.run_until_complete(stack.aclose())
    loop.close()


Romancy = Callable[..., Result]


@pytest.fixture
def romancy(folder: Path) -> Romancy:
    """Run a command line in this process."""

    def run(*words: str, code: int = 0, **options: Any) -> Result:
        result = CliRunner().invoke(main, words, prog_name="romancy", **options)
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        assert "Traceback" not in result.stderr
        return result

    return run


@pytest.fixture
def refused(romancy: Romancy) -> Callable[..., str]:
    """Run a command line that must end with one line on stderr and nothing else."""

    def run(*words: str, code: int = 2, **options: Any) -> str:
        result = romancy(*words, code=code, **options)
        assert result.stdout == ""
        assert result.stderr.startswith("romancy: ")
        assert result.stderr.count("\n") == 1, result.stderr
        return result.stderr.strip()

    return run


@pytest.fixture
def answered(romancy: Romancy) -> Callable[..., Any]:
    """Run a command line with --json: what it says."""
    return lambda *words, **options: json.loads(romancy(*words, "--json", **options).stdout)
