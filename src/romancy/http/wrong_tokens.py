"""Wrong tokens are counted and logged now and then. The more an address sends, the later each is answered.

A right token is never delayed, whatever its address has done: behind a proxy, all clients have the same address.
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
"""Wrong tokens per address that are answered at once, to allow for typing errors."""
_FIRST, LONGEST = 0.1, 5.0
"""Seconds the next one is delayed; the delay doubles each time, up to a limit."""
_FORGOTTEN = 300.0
"""Seconds without a wrong token after which an address is forgotten."""
_ADDRESSES, _WAITING = 1000, 50
"""Maximum of remembered addresses, and of delayed answers at a time."""


class WrongTokens:
    """Counts and delays requests with wrong tokens."""

    def __init__(self, traffic: Traffic, stopping: asyncio.Event) -> None:
        self._traffic, self._stopping = traffic, stopping
        self._wrong: dict[str, tuple[int, float]] = {}
        """The count per address and the time of the last one; least recent first."""
        self._waiting = 0
        self._told = Throttle()

    def __repr__(self) -> str:
        return f"<WrongTokens addresses={len(self._wrong)} waiting={self._waiting}>"

    async def wrong(self, scope: Scope) -> bool:
        """Delay the answer to a request with an unknown token.

        Returns False if too many are delayed already; then at least close the connection.
        """
        client = scope.get("client")
        address = str(client[0]) if client else "unknown"
        self._traffic.wrong_tokens += 1
        left_out = self._told.turn()
        if left_out is not None:
            _logger.warning("a request from %s had a wrong token%s", address, and_more(left_out))
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
