"""`romancy demo`: Romancy in half a minute, with a worker killed in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from romancy.cli.demo.play import play
from romancy.cli.demo.show import make_console
from romancy.cli.demo.story import Story
from romancy.cli.demo.workers import WorkerGone

LIMIT = 27.0
"""Seconds after which the demo has failed."""


@click.command()
@click.option("--once", is_flag=True, help="Exit after the demo, with 0 if everything ended as expected.")
def demo(once: bool) -> None:
    """Watch a demo: workflows wait, a worker is killed, nothing is lost.

    Afterwards, a worker keeps running, and you can try commands in another terminal until you press Ctrl-C.
    """
    console = make_console()

    async def run() -> int:
        with TemporaryDirectory(prefix="romancy-demo-", ignore_cleanup_errors=True) as folder:
            async with Story(console, str(Path(folder, "demo.db"))) as story:
                async with asyncio.timeout(LIMIT):
                    good = await story.tell()
                if good and not once:
                    await play(story)
                return 0 if good else 1

    try:
        code = asyncio.run(_until_signal(run()))
    except WorkerGone as error:
        console.print(f"[bold red]{error}[/]")
        code = 1
    except TimeoutError:
        console.print(f"[bold red]The demo did not finish within {LIMIT:g} seconds.[/]")
        code = 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("\nStopped before the end.")
        code = 130
    sys.exit(code)


async def _until_signal(work: Coroutine[Any, Any, int]) -> int:
    """Do the work. SIGTERM and a closed terminal end it like Ctrl-C."""
    task = asyncio.ensure_future(work)
    for name in ("SIGTERM", "SIGHUP"):
        with contextlib.suppress(NotImplementedError, AttributeError):  # Windows
            asyncio.get_running_loop().add_signal_handler(getattr(signal, name), task.cancel)
    return await task
