"""When to try again. Decisions only; wire.py does the waiting.

Everything a client sends can be repeated: an event has its id before it is first sent, a start has its instance id, and
cancelling, resuming or reading twice is the same as once. So the only question is whether another attempt may succeed.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from romancy.core.model import SECOND, to_us

_FIRST, _LONGEST = 0.1, 5.0
"""Seconds before the second attempt, and the maximum before any."""
_BUSY = frozenset({429, 502, 503, 504})
"""Statuses of a server that is busy, or of a proxy that can't reach it."""


def may_help(status: int, content: object) -> bool:
    """Whether the same request may succeed later."""
    return status in _BUSY or (status == 500 and isinstance(content, dict) and content.get("retryable") is True)  # pyright: ignore[reportUnknownMemberType]


def pause(attempts: int, wanted: float, left: float, luck: float) -> float | None:
    """Seconds to wait after so many attempts; None to give up.

    `wanted` is how long the server asked for, `left` the seconds until giving up, `luck` a random number from 0 to 1,
    so that many clients don't come back at the same moment.
    """
    backoff = min(_LONGEST, _FIRST * 2.0 ** min(attempts - 1, 10)) * (0.5 + luck / 2)
    delay = wanted + backoff if wanted else backoff
    return delay if delay < left else None


def asked_for(header: str | None, now: int) -> float:
    """The seconds in a Retry-After header, which has seconds or a date; 0 if missing or unreadable."""
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, (to_us(parsedate_to_datetime(text)) - now) / SECOND)
    except ValueError:
        return 0.0
