"""How much one token can send per minute. Each process counts for itself."""

from __future__ import annotations

import math

from romancy.core.clock import stopwatch
from romancy.http.responses import HTTPError
from romancy.http.traffic import Traffic
from romancy.options import HTTPOptions

_MINUTE = 60.0


class _Bucket:
    """Refills within a minute. An amount larger than what is left is taken anyway, as a debt to be waited out.

    So a request is never too large for its quota, only too early.
    """

    def __init__(self, size: int, now: float) -> None:
        self._size, self._level, self._at = size, float(size), now

    def wait(self, now: float) -> float:
        """Seconds until something can be taken."""
        self._level = min(self._size, self._level + (now - self._at) * self._size / _MINUTE)
        self._at = now
        return 0.0 if self._level > 0 else (1 - self._level) * _MINUTE / self._size

    def take(self, amount: int) -> None:
        self._level -= amount


class Quotas:
    """What each token, identified by its digest, has left. Tokens are few, so none is ever forgotten."""

    def __init__(self, options: HTTPOptions, traffic: Traffic) -> None:
        sizes = {"events": options.max_events_per_minute, "bytes": options.max_bytes_per_minute}
        self._sizes = {kind: size for kind, size in sizes.items() if size is not None}
        self._buckets: dict[tuple[bytes, str], _Bucket] = {}
        self._traffic = traffic

    def check(self, token: bytes) -> None:
        """Refuse a token that has used up a quota. Also call this before a body is read."""
        for kind, size in self._sizes.items():
            wait = self._bucket(token, kind, size).wait(stopwatch())
            if wait:
                raise self._used_up(token, kind, size, wait)

    def take(self, token: bytes, events: int, size: int) -> None:
        """Count what is about to be stored, or refuse it."""
        if not self._sizes:
            return
        self.check(token)
        for kind, amount in (("events", events), ("bytes", size)):
            if (bucket := self._buckets.get((token, kind))) is not None:
                bucket.take(amount)

    def _bucket(self, token: bytes, kind: str, size: int) -> _Bucket:
        bucket = self._buckets.get((token, kind))
        if bucket is None:
            bucket = self._buckets[token, kind] = _Bucket(size, stopwatch())
        return bucket

    def _used_up(self, token: bytes, kind: str, size: int, wait: float) -> HTTPError:
        self._traffic.over_quota += 1
        quota = f"quota of {size:,} {kind} per minute"
        used_up = f"this token has used up its {quota}" if token else f"the {quota} for all clients is used up"
        text = f"{used_up}; try again later"
        again = b"%d" % max(1, math.ceil(wait))
        return HTTPError(429, text, kind="QuotaExceeded", headers=[(b"retry-after", again)])
