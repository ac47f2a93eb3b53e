"""Ways to make things go wrong on purpose."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from romancy import App
from romancy.cli.group import main
from romancy.storage.batch import Batch
from romancy.testing import Environment


@asynccontextmanager
async def down(env: Environment) -> AsyncIterator[None]:
    """The process dies; inside the block it is not there; afterwards another one comes up."""
    storage, dead = env.app._runtime.engine.storage, env.app._runtime.engine.worker_id
    await env.app._runtime.crash()
    yield
    if not env.app._runtime._owns_storage and dead is not None:
        # Its session lock is still held here. The next worker would take it for a paused one if it looked first.
        await storage.take_over("", [dead])
    await env.app.start()
    engine = env.app._runtime.engine
    await engine.storage.take_over(engine.worker_id or "", [dead or ""])
    engine.kick()
    await env.settle()


async def down_for(env: Environment, time: timedelta) -> None:
    """The process dies, time passes, and another one comes up."""
    async with down(env):
        env.clock._now += time // timedelta(microseconds=1)  # not turn_to: no alarm rings in a dead process


async def kinds(env: Environment, instance_id: str) -> list[str]:
    """What is recorded of an instance, in order."""
    return [entry.kind for entry in await env.app.get_history(instance_id)]


async def command(database: str, *args: str) -> str:
    """What `romancy ...` prints, whichever database is behind the path."""
    with patch("romancy.cli.target_options.check_exists"):  # it looks for a file
        return (await asyncio.to_thread(CliRunner().invoke, main, [*args, "-d", database])).output


async def until(condition: Callable[[], object]) -> None:
    """Let everybody else run until something is true."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for belongs to others
            await asyncio.sleep(0)


def intercept(env: Environment, decide: Callable[[Batch, Callable[[], None]], None]) -> Callable[[], None]:
    """Every batch goes to `decide(batch, submit)`, which may submit it now, later or never; returns the way back."""
    storage: Any = env.app._runtime.engine.storage
    append, commit = storage.append, storage.commit
    storage.append = lambda *_: False
    storage.commit = lambda batch, *answered: decide(batch, lambda: commit(batch, *answered))

    def undo() -> None:
        storage.append, storage.commit = append, commit

    return undo


def outsider(env: Environment) -> App:
    """An app in another process, so to speak: on the same file and clock, it only starts, sends and reads."""
    app = App(env.app.database, worker=False)
    app._runtime.clock = env.clock
    return app


def watch(env: Environment) -> list[Batch]:
    """Every batch that is stored from now on."""
    seen: list[Batch] = []

    def decide(batch: Batch, submit: Callable[[], None]) -> None:
        seen.append(batch)
        submit()

    intercept(env, decide)
    return seen
