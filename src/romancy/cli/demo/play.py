"""After the story: a worker keeps running, and the user tries commands in another terminal."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import signal
import sys
from collections.abc import Generator
from pathlib import Path

from rich.live import Live

from romancy import Instance
from romancy.cli.demo import show
from romancy.cli.demo.story import Story
from romancy.cli.demo.workflows import approval_workflow, payment_with_timeout

_REDRAW = 0.25


async def play(story: Story) -> None:
    """Run until Ctrl-C or SIGTERM."""
    console = story.console
    start = story.app.start_workflow
    await start(approval_workflow.options(instance_id="approval-REQ-2"), "REQ-2")
    await start(payment_with_timeout.options(instance_id="payment-ORD-3"), "ORD-3")
    where = "" if story.viewer is None else f"open {story.viewer}, or "
    with _signals() as stopped:  # before the user is told of Ctrl-C
        turn = "Your turn, until you press Ctrl-C. The worker keeps running"
        show.heading(console, f"{turn}; {where}try this in another terminal:")
        for line in _commands(story):
            console.print(f"  {line}", style="bold cyan", soft_wrap=True)
        console.print()
        await _redraw(story, stopped)
    console.print("\nStopping the worker and removing the demo's files.")


def _commands(story: Story) -> list[str]:
    database = shlex.quote(story.database)
    decision = '{"request_id": "REQ-2", "approver": "you", "approved": true}'
    return [
        f"{_program()} list -d {database}",
        f"{_program()} why approval-REQ-2 -d {database}",
        f"{_program()} send approval.decision {shlex.quote(decision)} -d {database}",
        f"kill -9 {story.workers[-1].process.pid}",
    ]


def _program() -> str:
    """Return how to call romancy from a shell: by name, or by the path beside this Python."""
    beside = Path(sys.executable).with_name("romancy")
    if shutil.which("romancy") or not beside.exists():
        return "romancy"
    with contextlib.suppress(ValueError):
        return shlex.quote(str(beside.relative_to(Path.cwd())))
    return shlex.quote(str(beside))


@contextlib.contextmanager
def _signals() -> Generator[asyncio.Event, None, None]:
    """Return an event that is set on Ctrl-C or SIGTERM, which end the demo in an orderly way."""
    stopped, loop, numbers = asyncio.Event(), asyncio.get_running_loop(), [signal.SIGINT, signal.SIGTERM]
    numbers += [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []
    try:
        for number in numbers:
            loop.add_signal_handler(number, stopped.set)
    except NotImplementedError:  # Windows: Ctrl-C arrives as KeyboardInterrupt
        yield stopped
        return
    try:
        yield stopped
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _redraw(story: Story, stopped: asyncio.Event) -> None:
    with Live(console=story.console, auto_refresh=False, transient=True) as live:
        while not stopped.is_set():
            await _keep_a_worker(story)
            live.update(show.live_table(await _newest(story), _worker_line(story)), refresh=True)
            await _pause(stopped)
    story.console.print(show.live_table(await _newest(story), _worker_line(story)))


async def _newest(story: Story) -> list[Instance]:
    page = await story.app.list_instances(limit=8)
    return [await story.app.get_instance(instance.instance_id) for instance in page.items]


async def _keep_a_worker(story: Story) -> None:
    worker = story.workers[-1]
    if not worker.is_alive:
        story.console.print(f"  [bold red]worker {worker.number} is gone[/]; another takes over")
        await story.hire()


def _worker_line(story: Story) -> str:
    worker = story.workers[-1]
    return f"worker {worker.number} is process {worker.process.pid}"


async def _pause(stopped: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopped.wait(), _REDRAW)
