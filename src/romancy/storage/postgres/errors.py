"""Explains errors of the server and the driver, and says what to do."""

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
    "54000": "a string is too long for the database's index (about 2,600 bytes for ids, types and sources together)",
    "25006": "it is read-only (a standby?); work continues when it, or another host of the URL, accepts writes",
    "26000": "a pooler gave a prepared statement to another session; PgBouncer must be 1.21 or newer, with "
    "max_prepared_statements set",
    "28P01": "the password is wrong; check the URL",
    "28000": "this user can't log in; check the URL and pg_hba.conf",
    "3D000": "the database does not exist; create it first",
    "42501": "this user lacks a privilege; grant it, or migrate as a user who has it",
    "53100": "its disk is full; work continues when there is space again",
    "55P03": "another session holds a lock that blocks this; see pg_locks",
    "53300": "it has no free connections; raise max_connections, or use a pooler",
}
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)
_LET_GO = ("released back to the pool", "connection is closed", "pool is clos")
"""Parts of the driver's messages for a connection that was lost before it was used."""


def words(error: BaseException, url: str) -> str:
    """Explain an error of the database at a URL, or of the connection to it."""
    code = getattr(error, "sqlstate", None) or ""
    said = str(error) or type(error).__name__
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "none of its hosts accepts writes (standbys, or read-only); work continues when one does"
    if isinstance(error, asyncpg.InternalClientError | ConnectionResetError | BrokenPipeError):
        return "the connection was lost"
    if isinstance(error, asyncpg.InterfaceError) and any(part in said for part in _LET_GO):
        return "the connection was lost"
    if isinstance(error, TimeoutError):
        return f"no answer within {STATEMENT_TIMEOUT:g} s"
    if isinstance(error, OSError):
        return _no_answer(error, address(url)) or said
    if isinstance(error, OverflowError) and "port must be" in said:
        return "the port in its URL must be from 0 to 65535"
    if code == "28P01" and not _has_password(url):
        return f"it requires a password, and none was given; put it in the URL or in PGPASSWORD ({said})"
    return f"{_HINTS[code]} ({said})" if code in _HINTS else said


def address(url: str) -> str:
    """Return the hosts or the socket that a URL leads to."""
    parts = urlsplit(url)
    hosts = unquote(parts.netloc.rpartition("@")[2]) or ",".join(parse_qs(parts.query).get("host", ()))
    return hosts or os.environ.get("PGHOST") or "the local socket"


def _no_answer(error: OSError, place: str) -> str | None:
    if isinstance(error, ConnectionRefusedError) or str(error).startswith("Multiple exceptions"):
        return f"no server answers at {place}"
    if isinstance(error, FileNotFoundError) and place.startswith(("/", "the local")):  # else a certificate file
        return f"no server answers at {place}"
    if isinstance(error, socket.gaierror) or error.errno in _UNREACHABLE:
        return f"no server answers at {place} ({error.strerror})"
    return None


def _has_password(url: str) -> bool:
    """Return whether a password may have been given; a password file may hold one."""
    parts = urlsplit(url)
    given = parts.password or "password" in parse_qs(parts.query) or os.environ.get("PGPASSWORD")
    return bool(given) or Path(os.environ.get("PGPASSFILE") or "~/.pgpass").expanduser().exists()
