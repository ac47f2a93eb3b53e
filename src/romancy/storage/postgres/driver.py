"""asyncpg has no type stubs, so it is untyped here, and only here."""

from __future__ import annotations

from typing import Any

import asyncpg as _asyncpg  # pyright: ignore[reportMissingTypeStubs]

asyncpg: Any = _asyncpg
LOST: tuple[type[Exception], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""Errors of a connection that was lost, or could not reach a server."""
FAILED: tuple[type[Exception], ...] = (*LOST, asyncpg.PostgresError, TimeoutError)
"""All errors of a statement, except values that can't be sent at all."""
