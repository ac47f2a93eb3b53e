"""Database outages. Each is logged once when a part first notices it, and once when all parts work again."""

from __future__ import annotations

import asyncio
import logging

_logger = logging.getLogger("romancy")

CALM = 0.5
"""Seconds without an error before an outage counts as over: a database that fails every other statement is one outage,
not a hundred."""


class Outage:
    """The parts that can't use the database at present."""

    def __init__(self) -> None:
        self._noticed_by: set[str] = set()
        self._calm: asyncio.TimerHandle | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Outage noticed_by={sorted(self._noticed_by)}>"

    def noticed(self, by: str, error: BaseException | None) -> None:
        if self._calm is not None:
            self._calm.cancel()
            self._calm = None
        elif not self._noticed_by:
            _logger.error("the database can't be written (%s); work pauses until it can", error)
        self._noticed_by.add(by)

    def over(self, by: str) -> None:
        """Note that this part works again."""
        if by in self._noticed_by:
            self._noticed_by.discard(by)
            if not self._noticed_by and self._closed:
                self._back()
            elif not self._noticed_by:
                self._calm = asyncio.get_running_loop().call_later(CALM, self._back)

    def left(self, by: str) -> None:
        """Note that this part was stopped while it waited for the database."""
        if self._closed:
            self._noticed_by.discard(by)
        else:
            self.over(by)

    def close(self) -> None:
        """Log the end of an outage without waiting: the app is stopping."""
        self._closed = True
        if self._calm is not None:
            self._calm.cancel()
            self._back()

    def _back(self) -> None:
        self._calm = None
        _logger.warning("the database is back; work continues")
