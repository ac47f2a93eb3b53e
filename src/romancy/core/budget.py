"""Limits on what workflow code may ask for in one activation.

Code that never waits would block the thread forever and fill the memory with its requests. The loop limits its
callbacks; this module limits what the code can ask for in one of them.
"""

from __future__ import annotations

from types import CodeType

from romancy.errors import WorkflowStuck

MAX_COMMANDS = 100_000
"""Activities, waits, timers and sent events in one activation, including withdrawn ones."""
MAX_BYTES = 64 * 1024 * 1024
"""Bytes of their arguments and data."""
MAX_CALLS = 1_000_000
"""Calls of `ctx.now()`, `ctx.uuid4()` and the like. They store nothing, but they make no progress either."""
MAX_TASKS = 250_000
"""Unfinished tasks of an instance."""


class Budget:
    """Counts what one activation asks for. Each method returns None, or a description of the limit it exceeded."""

    __slots__ = ("_bytes", "_calls", "_commands")

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin to count for another activation."""
        self._commands = self._bytes = self._calls = 0

    def command(self, size: int) -> str | None:
        self._commands += 1
        self._bytes += size
        if self._commands > MAX_COMMANDS:
            return f"asked for {MAX_COMMANDS:,} activities, waits, timers and events"
        if self._bytes > MAX_BYTES:
            return f"asked for activities and events with {MAX_BYTES:,} bytes of arguments and data"
        return None

    def call(self) -> str | None:
        self._calls += 1
        return f"called ctx.now(), ctx.uuid4() and the like {MAX_CALLS:,} times" if self._calls > MAX_CALLS else None


def endless(instance: str, workflow: str, problem: str, line: tuple[CodeType, int] | None) -> WorkflowStuck:
    """Return the error for code that exceeded a limit. `line`: where it was stopped."""
    where = "" if line is None else f" at {line[0].co_filename}:{line[1]} in {line[0].co_name}"
    return WorkflowStuck(
        f"instance {instance!r} (workflow {workflow!r}) {problem} without waiting for anything; "
        f"is there an endless loop{where}? Await an activity, an event or a sleep in it, or split the work"
    )


def idle(instance: str) -> WorkflowStuck:
    """Return the error for code that waits, but for nothing that Romancy knows of."""
    return WorkflowStuck(
        f"instance {instance!r} waits for something that can never happen: "
        "no activity, event or timer is open; look for an asyncio.Event, Queue or Future that is never set"
    )
