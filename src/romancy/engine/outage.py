"""The database is away: said once, whoever notices first, and once more when it is back for everybody."""

from __future__ import annotations

import logging

_logger = logging.getLogger("romancy")


class Outage:
    """Who can't do its work at present."""

    def __init__(self) -> None:
        self._noticed_by: set[str] = set()

    def __repr__(self) -> str:
        return f"<Outage noticed_by={sorted(self._noticed_by)}>"

    def noticed(self, by: str, error: BaseException | None) -> None:
        if not self._noticed_by:
            _logger.error("the database can't be written (%s); work pauses until it can", error)
        self._noticed_by.add(by)

    def over(self, by: str) -> None:
        """Whoever noticed it gets on again."""
        if by in self._noticed_by:
            self._noticed_by.discard(by)
            if not self._noticed_by:
                _logger.warning("the database is back; work goes on")
