"""The server's errors, and the driver's, in words that say what to do."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from romancy.storage.postgres.driver import asyncpg

STATEMENT_TIMEOUT = 30.0
_HINTS = {
    "22021": "text must not contain the character NUL (\\u0000)",
    "54000": "a text is too long for the database's index (about 2,600 bytes for ids, types and sources together)",
    "25006": "it is read-only (a standby?); work goes on when it, or another host of the URL, takes writes",
    "26000": "a pooler gave a prepared statement to another session; PgBouncer must be 1.21 or newer, with "
    "max_prepared_statements set",
    "28P01": "the password is wrong; check the URL",
    "28000": "this user may not log in; check the URL and pg_hba.conf",
    "3D000": "there is no such database; create it first",
    "42501": "this user lacks a privilege; grant it, or migrate as a user who has it",
    "53100": "its disk is full; work goes on when there is room again",
    "55P03": "somebody holds a lock that is in the way; pg_locks says who",
    "53300": "it has no connection to spare; raise max_connections, or use a pooler",
}
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)
_LET_GO = ("released back to the pool", "connection is closed", "pool is clos")
"""What the driver says when somebody is about to use a connection that was lost meanwhile."""


def words(error: BaseException, url: str) -> str:
    """An error on the way to the database at a URL, or of the database itself."""
    code = getattr(error, "sqlstate", None) or ""
    said = str(error) or type(error).__name__
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "none of its hosts takes writes (standbys, or read-only); work goes on when one does"
    if isinstance(error, asyncpg.InternalClientError | ConnectionResetError | BrokenPipeError):
        return "the connection was lost"
    if isinstance(error, asyncpg.InterfaceError) and any(part in said for part in _LET_GO):
        return "the connection was lost"
    if isinstance(error, TimeoutError):
        return f"no answer within {STATEMENT_TIMEOUT:g} s"
    if isinstance(error, OSError):
        return _no_answer(error, address(url)) or said
    if code == "28P01" and not _has_password(url):
        return f"it wants a password, and none was given; put it into the URL or into PGPASSWORD ({said})"
    return f"{_HINTS[code]} ({said})" if code in _HINTS else said


def address(url: str) -> str:
    """The hosts, or the socket, that a URL leads to."""
    parts = urlsplit(url)
    hosts = unquote(parts.netloc.rpartition("@")[2]) or ",".join(parse_qs(parts.query).get("host", ()))
    return hosts or os.environ.get("PGHOST") or "the local socket"


def _no_answer(error: OSError, place: str) -> str | None:
    if isinstance(error, ConnectionRefusedError) or str(error).startswith("Multiple exceptions"):
        return f"no server answers at {place}"
    if isinstance(error, FileNotFoundError) and place.startswith(("/", "the local")):  # else a certificate's file
        return f"no server answers at {place}"
    if isinstance(error, socket.gaierror) or error.errno in _UNREACHABLE:
        return f"no server answers at {place} ({error.strerror})"
    return None


def _has_password(url: str) -> bool:
    """Whether one may have been given; a file of passwords may hold another one."""
    parts = urlsplit(url)
    given = parts.password or "password" in parse_qs(parts.query) or os.environ.get("PGPASSWORD")
    return bool(given) or Path(os.environ.get("PGPASSFILE") or "~/.pgpass").expanduser().exists()
