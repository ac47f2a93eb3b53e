"""The options of an app, in groups: database, worker, retention, HTTP. Plain data, checked when it is made."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal
from urllib.parse import urlsplit

from romancy.core.model import SECOND, Duration, duration_us

SCOPES = ("events", "read", "control")
"""What a token may allow: delivering events, looking, acting."""
SHORT = 16
"""Characters a token should have at least."""
_ACCEPTED = (200, 201, 202, 204)
_IS_A_SECRET = (
    "a token is a secret of printable characters without spaces, optionally with scopes before it "
    f'({", ".join(SCOPES)}), as in "events,read:SECRET"'
)


@dataclass(frozen=True)
class Database:
    """A database with settings of its own.

    >>> App(Database("postgresql://db.example/shop", schema="orders"))
    """

    url: str
    """A path, `":memory:"` or a URL."""
    schema: str | None = None
    """PostgreSQL: where its tables are. None: the environment's ROMANCY_SCHEMA, else romancy."""
    notify_url: str | None = None
    """PostgreSQL: a direct URL of the server, where `url` leads through a pooler that cannot LISTEN."""
    durability: Literal["full", "normal"] = "full"
    """With "normal", the last moments may be lost in a power failure (never in a crash of the process). It is faster on
    slow disks."""

    def __post_init__(self) -> None:
        if not isinstance(self.url, str | os.PathLike) or not os.fspath(self.url):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"url must be a path or URL of a database, not {self.url!r}")
        object.__setattr__(self, "url", os.fspath(self.url))
        if self.durability not in ("full", "normal"):
            raise ValueError(f'durability must be "full" or "normal", not {self.durability!r}')


@dataclass(frozen=True)
class WorkerOptions:
    """Settings of the worker that few need.

    >>> App("workflow.db", worker=WorkerOptions(max_resident=1000))
    """

    max_resident: int = 10_000
    """Instances in memory; the longest unused are evicted, and replayed when needed."""
    grace: Duration = timedelta(seconds=10)
    """How long activities may take to end when the app is stopped; another worker repeats the rest."""

    def __post_init__(self) -> None:
        check_count("max_resident", self.max_resident)
        duration_us(self.grace, "grace")


@dataclass(frozen=True)
class Retention:
    """How long things are kept. None: for ever.

    >>> App("workflow.db", retention=Retention(failed=timedelta(days=90), events=None))
    """

    instances: Duration | None = timedelta(days=7)
    """Completed and cancelled instances with their histories, from their end."""
    failed: Duration | None = timedelta(days=7)
    """Failed instances with their histories, from their end."""
    events: Duration | None = timedelta(days=7)
    """Events, from the moment they were accepted. An event on its way to an instance, or with a later `expirytime` of
    its own, is kept for longer."""

    def __post_init__(self) -> None:
        for name in ("instances", "failed", "events"):
            if getattr(self, name) is not None:
                duration_us(getattr(self, name), name)


def choose_database(given: str | os.PathLike[str] | Database | None) -> Database:
    """The database an app was given, else the environment's."""
    if isinstance(given, Database):
        return given
    if not isinstance(given, str | os.PathLike | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"database must be a path, a URL or Database(...), not {given!r}")
    return Database(os.fspath(given or os.environ.get("ROMANCY_DATABASE") or "romancy.db"))


def choose_worker(given: bool | WorkerOptions) -> WorkerOptions:
    """The settings of the worker, whether there is one or not."""
    if isinstance(given, WorkerOptions):
        return given
    if not isinstance(given, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - "no" would be true
        raise ValueError(f"worker must be True, False or WorkerOptions(...), not {given!r}")
    return WorkerOptions()


def choose_retention(given: Duration | Retention) -> Retention:
    """A single duration is for everything."""
    if isinstance(given, Retention):
        return given
    duration_us(given, "retention")
    return Retention(given, given, given)


_MOVED = {
    "schema": "Database: App(Database(url, schema=...))",
    "notify_url": "Database: App(Database(url, notify_url=...))",
    "durability": "Database: App(Database(url, durability=...))",
    "max_resident": "WorkerOptions: App(worker=WorkerOptions(max_resident=...))",
    "grace": "WorkerOptions: App(worker=WorkerOptions(grace=...))",
}


def refuse(unknown: Iterable[str]) -> None:
    """Options that an app does not take; those of a group are easily looked for in the wrong place."""
    for name in unknown:
        raise TypeError(f"{name} is in {_MOVED[name]}" if name in _MOVED else f"App has no option {name!r}")


@dataclass(frozen=True)
class HTTPOptions:
    """Limits and manners of the HTTP face.

    >>> App("workflow.db", http=HTTPOptions(max_body=64 * 1024, accepted_status=200))
    """

    accepted_status: int = 202
    """What an accepted event is answered with. Some senders take only 200; with 204 there is no receipt."""
    max_body: int = 1024 * 1024
    """Bytes of a request's body; more is 413."""
    max_headers: int = 64 * 1024
    """Bytes of all headers together; more is 431."""
    max_batch: int = 1000
    """Events in one batch."""
    max_depth: int = 64
    """How deep JSON may be nested."""
    strict: bool = False
    """Refuse what the CloudEvents specification forbids but real senders do, such as a bare % in a header."""
    max_requests: int = 1000
    """Requests at a time; more are 503."""
    max_waiting: int = 64 * 1024 * 1024
    """Bytes of events and starts that may be on their way to the database; more is 429. Half of it is for bodies that
    are still coming in."""
    max_connections: int | None = None
    """Connections at a time (`romancy serve` only): more, and those idle longest are closed. None: as the process's
    limit of open files allows, and leaves some for the database."""
    max_events_per_minute: int | None = None
    """Events, starts and other writes one token may bring in a minute, in each process; more is 429. None: no limit."""
    max_bytes_per_minute: int | None = None
    """Bytes of bodies one token may bring in a minute, in each process; more is 429. None: no limit."""
    header_timeout: Duration = timedelta(seconds=10)
    """How long a client may take over its headers (`romancy serve` only: other servers have settings of their own)."""
    body_timeout: Duration = timedelta(seconds=10)
    """How long a client may take over its body; longer is 408."""
    database_timeout: Duration = timedelta(seconds=5)
    """How long the database may take; longer is 503, and the outcome of what was asked is not known."""
    allowed_origins: Sequence[str] = ()
    """Who may register a webhook here (`OPTIONS /`): DNS names, or "*" for everybody."""
    allowed_rate: int | None = None
    """Requests a minute that are promised to webhook senders; None: as many as they like."""
    allowed_hosts: Sequence[str] = ()
    """Host names, besides this machine's own, an app without tokens answers to on a loopback address; "*": all."""
    open: bool = False
    """Answer everybody although there are no tokens; else an app without tokens answers this machine only."""

    def __post_init__(self) -> None:
        if self.accepted_status not in _ACCEPTED:
            raise ValueError(f"accepted_status is {', '.join(map(str, _ACCEPTED))}, not {self.accepted_status!r}")
        for name in ("max_body", "max_headers", "max_batch", "max_depth", "max_requests", "max_waiting"):
            check_count(name, getattr(self, name))
        for name in ("max_connections", "max_events_per_minute", "max_bytes_per_minute", "allowed_rate"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for name in ("header_timeout", "body_timeout", "database_timeout"):
            if duration_us(getattr(self, name), name) == 0:
                raise ValueError(f"{name} must be more than nothing")
        if not isinstance(self.open, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - "no" would be true
            raise ValueError(f"open is True or False, not {self.open!r}")
        for name in ("allowed_origins", "allowed_hosts"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is a list of names, not {getattr(self, name)!r}")


def check_count(name: str, value: object) -> None:
    """A limit."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")


def seconds(duration: Duration) -> float:
    """A duration as the event loop wants it."""
    return duration_us(duration) / SECOND


def check_public_url(url: str | None) -> str | None:
    """The address people use, without a slash at its end."""
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        is_plain = parts.port != 0 and not (parts.username or parts.password or parts.query or parts.fragment)
    except (ValueError, AttributeError):
        raise ValueError(f"public_url is a URL such as https://shop.example, not {url!r}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain or not url.isascii():
        raise ValueError(f"public_url is http(s)://HOST, with a port or path if need be, not {url!r}")
    return url.rstrip("/")


@dataclass(frozen=True)
class Token:
    """A secret somebody may present, and what it allows. Only its digest is kept."""

    scopes: frozenset[str]
    digest: bytes = field(repr=False)
    is_short: bool = False
    """It may be guessed."""


WITHOUT_HTTP: Sequence[str] = []
"""The tokens of an App that never speaks HTTP: the environment's are not even looked at."""


def choose_tokens(given: Sequence[str]) -> tuple[Token, ...]:
    """The tokens an App was given, else those of the environment: ROMANCY_TOKENS, separated by spaces."""
    if given is WITHOUT_HTTP:
        return ()
    if given is None:  # pyright: ignore[reportUnnecessaryComparison] - untyped code, as in tokens=os.environ.get(...)
        raise ValueError("tokens is a list of texts, not None; is the variable it comes from set?")
    found = os.environ.get("ROMANCY_TOKENS")
    if given or isinstance(given, str) or found is None:
        return read_tokens(given)
    if not found.strip():
        raise ValueError(
            "ROMANCY_TOKENS is set but holds no token, which would leave the app without any: give it tokens "
            "separated by spaces, or unset it"
        )
    return read_tokens(found.split())


def read_tokens(entries: Iterable[str]) -> tuple[Token, ...]:
    """`SECRET` allows everything, `events:SECRET` or `events,read:SECRET` only that.

    What stands before the first colon is always scopes: a slip there must not make a token that may everything.
    """
    return tuple(map(_read_token, (entries,) if isinstance(entries, str) else entries))


def _read_token(entry: str) -> Token:
    if not isinstance(entry, str):  # pyright: ignore[reportUnnecessaryIsInstance] - as in [os.environ.get(...)]
        hint = "None: is the variable it comes from set?" if entry is None else f"{type(entry).__name__}"
        raise ValueError(f"{_IS_A_SECRET}; got {hint}")
    before, colon, secret = entry.partition(":")
    words = [word.strip() for word in before.split(",")] if colon else list(SCOPES)
    if not colon:
        secret = entry
    elif not all(word in SCOPES for word in words):
        raise ValueError(
            f"a token has scopes before its colon, and there are only {', '.join(SCOPES)}; "
            f'for a secret with a colon in it write "{",".join(SCOPES)}:SECRET"'
        )
    if not secret or not secret.isprintable() or " " in secret:
        raise ValueError(_IS_A_SECRET)
    return Token(frozenset(words), digest(secret.encode()), len(secret) < SHORT)


def digest(secret: bytes) -> bytes:
    """Secrets are compared by digest: all of one length, so that the time it takes tells nothing."""
    return hashlib.sha256(secret).digest()
