"""asyncpg has no type stubs: here, and only here, its types are given up."""

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
"""What a connection that is gone, or that there is no server for, raises."""
FAILED: tuple[type[Exception], ...] = (*LOST, asyncpg.PostgresError, TimeoutError)
"""Whatever can go wrong with a statement, but for values that can't be sent at all."""
