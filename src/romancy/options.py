"""Options of an app, in groups: database, worker, retention, HTTP. Plain data, validated on creation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal
from urllib.parse import urlsplit

from romancy.core.model import SECOND, Duration, duration_us
from romancy.core.retry import RetryPolicy, check_policy
from romancy.core.schedules import Schedule as Schedule
from romancy.sinks.declaration import HTTPSink as HTTPSink
from romancy.sinks.declaration import Sink as Sink
from romancy.tokens import Credential, read_tokens
from romancy.tokens import Token as Token
from romancy.webhooks.declaration import Webhook as Webhook
from romancy.webhooks.declaration import WebhookRequest as WebhookRequest

LONGEST_BUILD = 200
FOR_A_DAY = RetryPolicy(max_attempts=None, maximum=timedelta(minutes=5), max_duration=timedelta(days=1))
_ACCEPTED = (200, 201, 202, 204)


@dataclass(frozen=True)
class Database:
    """A database and its settings.

    >>> App(Database("postgresql://db.example/shop", schema="orders"))
    """

    url: str
    """A path, `":memory:"` or a URL."""
    schema: str | None = None
    """PostgreSQL: the schema of the tables. None: the environment's ROMANCY_SCHEMA, else romancy."""
    notify_url: str | None = None
    """PostgreSQL: a direct URL of the server, if `url` goes through a pooler that can't LISTEN."""
    durability: Literal["full", "normal"] = "full"
    """With "normal", a power failure (but never a crash of the process) can lose the last moments. It is faster on slow
    disks."""

    def __post_init__(self) -> None:
        if not isinstance(self.url, str | os.PathLike) or not os.fspath(self.url):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"url must be a path or URL of a database, not {self.url!r}")
        object.__setattr__(self, "url", os.fspath(self.url))
        if self.durability not in ("full", "normal"):
            raise ValueError(f'durability must be "full" or "normal", not {self.durability!r}')


@dataclass(frozen=True)
class WorkerOptions:
    """Advanced settings of the worker.

    >>> App("workflow.db", worker=WorkerOptions(max_resident=1000))
    """

    max_resident: int = 10_000
    """Maximum instances in memory. Those idle longest are evicted, and replayed when needed."""
    max_transactions: int = 20
    """Maximum transactional activities at the same time on PostgreSQL: each has a connection of its own."""
    grace: Duration = timedelta(seconds=10)
    """How long activities can take to finish when the app stops. Another worker repeats the rest."""
    build: str | None = None
    """A name for your code that changes with every deployment, such as a commit id. None: the environment's
    ROMANCY_BUILD, else a hash of the modules that define workflows. An instance that one build can't follow is tried by
    workers of other builds."""
    compensation_retry: RetryPolicy = FOR_A_DAY
    """When to retry undos that have no policy of their own: for a day, because outages take longer than an ordinary
    policy allows for, and an undo that fails for good needs a person."""

    def __post_init__(self) -> None:
        check_count("max_resident", self.max_resident)
        check_count("max_transactions", self.max_transactions)
        duration_us(self.grace, "grace")
        if self.build is not None and not (isinstance(self.build, str) and 0 < len(self.build) <= LONGEST_BUILD):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"build must be a string of 1 to {LONGEST_BUILD} characters, not {self.build!r}")
        check_policy(self.compensation_retry, "compensation_retry")


@dataclass(frozen=True)
class Retention:
    """How long data is kept. None: for ever.

    >>> App("workflow.db", retention=Retention(failed=timedelta(days=90), events=timedelta(days=365)))
    """

    instances: Duration | None = timedelta(days=7)
    """Completed and cancelled instances with their histories, from their end. Also events, from the time they were
    accepted, once no open or failed instance may take them: until then they are kept."""
    failed: Duration | None = timedelta(days=7)
    """Failed instances with their histories, from their end."""
    events: Duration | None = None
    """The most that events are kept, from the time they were accepted, even if an open instance may still take them.
    Only one that is being delivered, or has a later `expirytime`, is kept longer."""
    emissions: Duration | None = None
    """What instances have emitted, from their end; None: as long as the instance."""

    def __post_init__(self) -> None:
        for name in ("instances", "failed", "events", "emissions"):
            if getattr(self, name) is not None:
                duration_us(getattr(self, name), name)


def choose_database(given: str | os.PathLike[str] | Database | None) -> Database:
    """Return the given database, or else the one named by the environment."""
    if isinstance(given, Database):
        return given
    if not isinstance(given, str | os.PathLike | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"database must be a path, a URL or Database(...), not {given!r}")
    return Database(os.fspath(given or os.environ.get("ROMANCY_DATABASE") or "romancy.db"))


def choose_worker(given: bool | WorkerOptions) -> WorkerOptions:
    """Return the settings of the worker, whether or not the app has one."""
    if isinstance(given, WorkerOptions):
        return given
    if not isinstance(given, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - "no" would be true
        raise ValueError(f"worker must be True, False or WorkerOptions(...), not {given!r}")
    return WorkerOptions()


def choose_retention(given: Duration | Retention) -> Retention:
    """Return the given retention. A single duration applies to all instances, and to events that nobody can take."""
    if isinstance(given, Retention):
        return given
    if given is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise ValueError(
            "retention must be a duration or Retention(...), not None; Retention(instances=None, failed=None) keeps "
            "everything forever"
        )
    duration_us(given, "retention")
    return Retention(given, given)


def kept_events(kept: Retention) -> Duration | None:
    """Return how long events are kept that nobody can take any more."""
    given = [duration for duration in (kept.instances, kept.events) if duration is not None]
    return min(given, key=duration_us, default=None)


_MOVED = {
    "schema": "Database: App(Database(url, schema=...))",
    "notify_url": "Database: App(Database(url, notify_url=...))",
    "durability": "Database: App(Database(url, durability=...))",
    "max_resident": "WorkerOptions: App(worker=WorkerOptions(max_resident=...))",
    "grace": "WorkerOptions: App(worker=WorkerOptions(grace=...))",
}


def refuse(unknown: Iterable[str]) -> None:
    """Raise TypeError for unknown options, and say which group an option is in."""
    for name in unknown:
        raise TypeError(f"{name} is in {_MOVED[name]}" if name in _MOVED else f"App has no option {name!r}")


@dataclass(frozen=True)
class HTTPOptions:
    """Limits and behavior of the HTTP interface.

    >>> App("workflow.db", http=HTTPOptions(max_body=64 * 1024, accepted_status=200))
    """

    accepted_status: int = 202
    """The status of the answer to an accepted event. Some senders only accept 200; 204 has no receipt."""
    max_body: int = 1024 * 1024
    """Maximum bytes in a request body; more is 413."""
    max_headers: int = 64 * 1024
    """Maximum bytes in all headers together; more is 431."""
    max_batch: int = 1000
    """Maximum events in one batch."""
    max_depth: int = 64
    """Maximum nesting depth of JSON."""
    strict: bool = False
    """Reject what the CloudEvents specification forbids but real senders do, such as a bare % in a header."""
    max_requests: int = 1000
    """Maximum concurrent requests; more are 503."""
    max_waiting: int = 64 * 1024 * 1024
    """Maximum bytes of events and starts on their way to the database; more is 429. Half of it is reserved for bodies
    that are still being received."""
    max_connections: int | None = None
    """Maximum concurrent connections (`romancy serve` only). If there are more, those idle longest are closed. None:
    as many as the process's open-file limit allows, less some for the database."""
    max_events_per_minute: int | None = None
    """Maximum events, starts and other writes per minute for a token, in each process; more is 429. None: no limit."""
    max_bytes_per_minute: int | None = None
    """Maximum bytes of bodies per minute for a token, in each process; more is 429. None: no limit."""
    header_timeout: Duration = timedelta(seconds=10)
    """How long a client may take to send its headers (`romancy serve` only; other servers have their own settings)."""
    body_timeout: Duration = timedelta(seconds=10)
    """How long a client may take to send its body; longer is 408."""
    database_timeout: Duration = timedelta(seconds=5)
    """How long the database may take; longer is 503, and the outcome of the request is unknown."""
    allowed_origins: Sequence[str] = ()
    """The origins that may register a webhook here (`OPTIONS /`): DNS names, or "*" for all."""
    allowed_rate: int | None = None
    """Requests per minute granted to webhook senders; None: no limit."""
    allowed_hosts: Sequence[str] = ()
    """Host names, besides this machine's own, that an app without tokens accepts on a loopback address; "*": all."""
    open: bool = False
    """Accept all requests even without tokens. By default, an app without tokens only accepts local requests."""

    def __post_init__(self) -> None:
        if self.accepted_status not in _ACCEPTED:
            raise ValueError(f"accepted_status must be one of {_ACCEPTED}, not {self.accepted_status!r}")
        for name in ("max_body", "max_headers", "max_batch", "max_depth", "max_requests", "max_waiting"):
            check_count(name, getattr(self, name))
        for name in ("max_connections", "max_events_per_minute", "max_bytes_per_minute", "allowed_rate"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for name in ("header_timeout", "body_timeout", "database_timeout"):
            if duration_us(getattr(self, name), name) == 0:
                raise ValueError(f"{name} must be greater than zero")
        if not isinstance(self.open, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - "no" would be true
            raise ValueError(f"open must be True or False, not {self.open!r}")
        for name in ("allowed_origins", "allowed_hosts"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a list of names, not {getattr(self, name)!r}")


def check_lease(lease: Duration) -> int:
    """Return a lease in microseconds."""
    us = duration_us(lease, "lease")
    if us < 500_000:
        raise ValueError("lease must be at least half a second")
    return us


def check_count(name: str, value: object) -> None:
    """Raise ValueError unless `value` is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a positive integer, not {value!r}")


def seconds(duration: Duration) -> float:
    """Return a duration in seconds."""
    return duration_us(duration) / SECOND


def check_public_url(url: str | None) -> str | None:
    """Return the public address without a trailing slash; raise `ValueError` if it is not valid."""
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        is_plain = parts.port != 0 and not (parts.username or parts.password or parts.query or parts.fragment)
    except (ValueError, AttributeError):
        raise ValueError(f"public_url must be a URL such as https://shop.example, not {url!r}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain or not url.isascii():
        raise ValueError(f"public_url must be http(s)://HOST, optionally with a port or path, not {url!r}")
    return url.rstrip("/")


WITHOUT_HTTP: Sequence[str | Token] = []
"""The tokens of an App that never serves HTTP, or only this machine. ROMANCY_TOKENS is not read."""


def choose_tokens(given: Sequence[str | Token]) -> tuple[Credential, ...]:
    """Return the tokens given to an App, or else those in ROMANCY_TOKENS, separated by spaces."""
    if given is WITHOUT_HTTP:
        return ()
    if given is None:  # pyright: ignore[reportUnnecessaryComparison] - untyped code, as in tokens=os.environ.get(...)
        raise ValueError("tokens must be a list of strings, not None; is the variable it comes from set?")
    found = os.environ.get("ROMANCY_TOKENS")
    if given or isinstance(given, str | Token) or found is None:
        return read_tokens(given)
    if not found.strip():
        raise ValueError(
            "ROMANCY_TOKENS is set but contains no token, which would leave the app without any: set it to tokens "
            "separated by spaces, or unset it"
        )
    return read_tokens(found.split())
