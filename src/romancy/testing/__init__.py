"""Test workflows in milliseconds, with the real engine on `:memory:` and a clock that you control.

>>> async with environment(workflows=[payment]) as env:
...     handle = await env.start(payment, "ORD-1")
...     await env.advance(timedelta(minutes=5))
...     assert await handle.result() == {"status": "timeout"}
"""

from __future__ import annotations

from romancy.testing.clock import ManualClock
from romancy.testing.environment import (
    Environment,
    TestHandle,
    activity_context,
    environment,
    transaction_context,
)
from romancy.testing.histories import dump, replay

__all__ = [
    "Environment",
    "ManualClock",
    "TestHandle",
    "activity_context",
    "dump",
    "environment",
    "replay",
    "transaction_context",
]
