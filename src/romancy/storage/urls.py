"""Database URLs: which database they name, and how they are shown to people."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit, urlunsplit

DEFAULT_SCHEMA = "romancy"
_IN_QUERY = re.compile(r"([?&]password=)[^&#]*")


def is_postgres(database: str) -> bool:
    return database.startswith(("postgresql://", "postgres://"))


def usual_schema(database: str) -> str | None:
    """Return the schema from the environment, for databases that have schemas."""
    return (os.environ.get("ROMANCY_SCHEMA") or None) if is_postgres(database) else None


def shown(database: str, schema: str | None) -> str:
    """Return a database URL for people: without its password, and with its schema unless that is the default."""
    named = without_password(database)
    return f"{named} (schema {schema})" if is_postgres(database) and schema not in (None, DEFAULT_SCHEMA) else named


def without_password(url: str) -> str:
    """Return a URL that is safe to show."""
    try:
        parts = urlsplit(_IN_QUERY.sub(r"\1***", url))
    except ValueError:  # what can't be read may hold a password anywhere
        return f"{url.partition('://')[0]}://***"
    if not parts.password:
        return parts.geturl()
    credentials, _, hosts = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{credentials.partition(':')[0]}:***@{hosts}"))


def check_schema(name: str) -> None:
    """Refuse names that PostgreSQL would truncate, and names that would need quoting inside quotes."""
    if not name or not name.isprintable() or len(name.encode()) > 63:
        raise ValueError(f"a schema name must have 1 to 63 bytes, all printable, got {name!r}")
    if any(sign in name for sign in "':\\"):
        raise ValueError(f"a schema name must not contain a quote, colon or backslash, got {name!r}")


def quoted(schema: str) -> str:
    """Return a schema name quoted for SQL, which has no parameters for names."""
    return '"' + schema.replace('"', '""') + '"'
