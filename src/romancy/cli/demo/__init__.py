"""`romancy demo`: Romancy in half a minute, with a worker killed in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from romancy.cli.demo.browser import can_open, open_page, serving
from romancy.cli.demo.play import play
from romancy.cli.demo.show import is_terminal, make_console
from romancy.cli.demo.story import LIMIT, Story
from romancy.cli.demo.workers import WorkerGone


@click.command()
@click.option("--once", is_flag=True, help="Exit after the demo, with 0 if everything ended as expected.")
@click.option("--no-browser", is_flag=True, help="Don't serve the viewer, and open no browser.")
def demo(once: bool, no_browser: bool) -> None:
    """Watch a demo: workflows wait, a worker is killed, nothing is lost.

    The viewer shows the same as web pages, at an address of this machine that is printed first.

    Afterwards, a worker keeps running, your browser opens the viewer, and you can try commands in another terminal
    until you press Ctrl-C. Without a terminal, the demo ends as with --once.
    """
    console = make_console()

    async def run() -> int:
        with TemporaryDirectory(prefix="romancy-demo-", ignore_cleanup_errors=True) as folder:
            async with Story(console, str(Path(folder, "demo.db"))) as story, AsyncExitStack() as stack:
                if not no_browser:
                    story.viewer = await stack.enter_async_context(serving(story.app))
                good = await story.tell()
                if good and not once:
                    await _go_on(story)
                return 0 if good else 1

    try:
        code = asyncio.run(_until_signal(run()))
    except WorkerGone as error:
        console.print(f"[bold red]{error}[/]")
        code = 1
    except TimeoutError:
        console.print(f"[bold red]A chapter of the demo took more than {LIMIT:g} seconds.[/]")
        code = 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("\nStopped before the end.")
        code = 130
    sys.exit(code)


def is_interactive() -> bool:
    """Return whether a person can see the demo and end it."""
    return is_terminal(sys.stdin) and is_terminal(sys.stdout)


async def _go_on(story: Story) -> None:
    if not is_interactive():
        story.console.print("This is not a terminal, so the demo ends here.")
        return
    if story.viewer is not None and can_open(os.environ):
        open_page(story.viewer)
    await play(story)


async def _until_signal(work: Coroutine[Any, Any, int]) -> int:
    """Do the work. SIGTERM and a closed terminal end it like Ctrl-C."""
    task = asyncio.ensure_future(work)
    for name in ("SIGTERM", "SIGHUP"):
        with contextlib.suppress(NotImplementedError, AttributeError):  # Windows
            asyncio.get_running_loop().add_signal_handler(getattr(signal, name), task.cancel)
    return await task
