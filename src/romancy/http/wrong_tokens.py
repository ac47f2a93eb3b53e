"""Wrong tokens: counted, told of now and then, and answered the later the more of them an address sends.

The right token is never kept waiting, whatever its address has done: behind a proxy, everybody has the same.
"""

from __future__ import annotations

import asyncio
import logging

from romancy.core.clock import stopwatch
from romancy.core.throttle import Throttle, and_more
from romancy.http.responses import Scope
from romancy.http.traffic import Traffic

_logger = logging.getLogger("romancy")
FREE = 5
"""Wrong tokens of one address that are answered at once: who mistypes is not punished."""
_FIRST, LONGEST = 0.1, 5.0
"""Seconds the next one waits; each one after it waits twice as long, up to a limit."""
_FORGOTTEN = 300.0
"""Seconds after which an address that has sent no more of them has a clean record."""
_ADDRESSES, _WAITING = 1000, 50
"""Addresses that are remembered, and answers that are held back, at a time."""


class WrongTokens:
    """Those who try tokens."""

    def __init__(self, traffic: Traffic, stopping: asyncio.Event) -> None:
        self._traffic, self._stopping = traffic, stopping
        self._wrong: dict[str, tuple[int, float]] = {}
        """How many came from an address, and when the last one did; in that order."""
        self._waiting = 0
        self._told = Throttle()

    def __repr__(self) -> str:
        return f"<WrongTokens addresses={len(self._wrong)} waiting={self._waiting}>"

    async def wrong(self, scope: Scope) -> bool:
        """Somebody has shown a token that is not known: waits before that may be said.

        False: too many wait already, so the connection should at least be closed.
        """
        client = scope.get("client")
        address = str(client[0]) if client else "unknown"
        self._traffic.wrong_tokens += 1
        left_out = self._told.turn()
        if left_out is not None:
            _logger.warning("a request from %s came with a wrong token%s", address, and_more(left_out))
        delay = self._delay(address)
        if delay and self._waiting >= _WAITING:
            return False
        if delay:
            await self._wait(delay)
        return True

    def _delay(self, address: str) -> float:
        now = stopwatch()
        count, last = self._wrong.pop(address, (0, now))
        count = 1 if now - last > _FORGOTTEN else count + 1
        self._wrong[address] = count, now
        if len(self._wrong) > _ADDRESSES:
            del self._wrong[next(iter(self._wrong))]
        return 0.0 if count <= FREE else min(LONGEST, _FIRST * 2 ** min(count - FREE - 1, 10))

    async def _wait(self, delay: float) -> None:
        self._waiting += 1
        try:
            async with asyncio.timeout(delay):
                await self._stopping.wait()
        except TimeoutError:
            pass  # the delay is over
        finally:
            self._waiting -= 1
