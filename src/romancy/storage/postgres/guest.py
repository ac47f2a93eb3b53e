"""The connection that a transactional activity uses. Its transaction can't be ended from there.

`ending` is sent in place of COMMIT: the result, the COMMIT and a reset of the session in one round trip. Then
`is_reset` is set. `begun_at`: it also began the next transaction; when, by the stopwatch. `is_kept`: whether other
activities get the connection afterwards. `prepared`: the name of the statement that stores the result, and the
statement itself: the driver closes it when nothing refers to it. `is_pooled`: a pooler renames statements, so that this
one can't be used by name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NoReturn

from romancy.errors import TerminalError
from romancy.storage.postgres.driver import asyncpg

_SKIPPED = re.compile(
    r"--[^\n]*|/\*.*?\*/"  # comments
    r"|\$(\w*)\$.*?\$\1\$"  # strings
    r"|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'"
    r'|"(?:[^"]|"")*"',
    re.DOTALL,
)
_ENDS = re.compile(
    r"(?:^|;)\s*(COMMIT|END|ABORT|BEGIN|START\s+TRANSACTION|PREPARE\s+TRANSACTION|ROLLBACK(?!\s+(?:WORK\s+|TRANSACTION\s+)?TO\b))\b",
    re.IGNORECASE,
)
_MORE = "RESET SESSION AUTHORIZATION; RESET ROLE; DISCARD TEMP; "
"""The driver leaves the role and temporary tables, which may hide others of the same name. In this order: the first one
also ends the role that a user has by default."""
_TOUCHES = re.compile(r"\bPREPARE\b|DEALLOCATE|DISCARD", re.IGNORECASE)
_SUSPECT = re.compile(r"COMMIT|END|ABORT|BEGIN|TRANSACTION|ROLLBACK", re.IGNORECASE)


def check(query: object) -> None:
    """Raise an error if a query would end the transaction, or begin another one."""
    if not isinstance(query, str) or not _SUSPECT.search(query):
        return
    found = _ENDS.search(_SKIPPED.sub(" ", query))
    if found:
        _refuse(found[1].upper())


def _refuse(what: str) -> NoReturn:
    raise TerminalError(
        f"{what} can't be used in a transactional activity: Romancy commits its transaction together with its result, "
        "or rolls it back if the activity raises an error. To undo parts of it, use "
        "`async with ctx.connection.transaction()`"
    )


def _touches_statements(query: object) -> bool:
    """Whether a query may remove prepared statements, or leave one whose name is taken then."""
    return isinstance(query, str) and _TOUCHES.search(query) is not None


def _guarded(name: str) -> Callable[..., Any]:
    method = getattr(asyncpg.Connection, name)

    @functools.wraps(method)
    def run(self: Any, query: str, *args: Any, **options: Any) -> Any:
        if self.is_lent:
            check(query)
            if _touches_statements(query):
                self.prepared, self.is_kept = None, False
                self._drop_local_statement_cache()
        return method(self, query, *args, **options)

    return run


def _get_reset_query(self: Any) -> str:
    """Return what resets the session, unless `ending` did so already."""
    return "" if self.is_reset else f"{_MORE}{asyncpg.Connection.get_reset_query(self)}"


RUN = ("execute", "executemany", "fetch", "fetchval", "fetchrow", "fetchmany", "prepare", "cursor")
"""The methods that take a query."""
Guest: Any = type(asyncpg.Connection)(
    "Guest",
    (asyncpg.Connection,),
    {
        "__doc__": "A connection that is lent to one activity after another.",
        "__module__": __name__,
        "is_lent": False,
        "timeline": None,
        "ending": None,
        "is_reset": False,
        "begun_at": None,
        "is_kept": True,
        "prepared": None,
        "is_pooled": False,
        **{name: _guarded(name) for name in RUN},
        "get_reset_query": _get_reset_query,
    },
)


async def end(guest: Any, timeout: float) -> None:
    """End the transaction of a connection by its `ending`."""
    ending, guest.ending = guest.ending, None
    guest._top_xact = None
    await guest.execute(ending, timeout=timeout)


def forget_user(guest: Any) -> None:
    """Detach what the last user has kept: cursors and prepared statements raise an error, listeners are not called."""
    guest._pool_release_ctr += 1
    guest._listeners.clear()
    guest._log_listeners.clear()


def begun(guest: Any) -> Any:
    """Return the driver's object for the transaction that the last `ending` began."""
    inner = guest.transaction()
    inner._state, guest._top_xact = asyncpg.transaction.TransactionState.STARTED, inner
    return inner


# --- what the activity gets -------------------------------------------------------------------------------------------
def _not_kept(name: str) -> Callable[..., Any]:
    """Wrap a method that changes state of the driver. Nothing resets it, so the connection is not lent again."""
    method = getattr(asyncpg.Connection, name)

    @functools.wraps(method)
    def run(self: Any, *args: Any, **options: Any) -> Any:
        guest = self._con
        guest.is_kept = False
        return method(guest, *args, **options)

    return run


class Lent(asyncpg.pool.PoolConnectionProxy):
    """Stands for a connection, as those of asyncpg's pools do, until the transaction is over.

    The connection is lent to other activities later, so one that is kept must not lead to it.
    """

    __slots__ = ("_guest",)

    @property
    def _con(self) -> Any:
        if self._guest is None:
            raise TerminalError(
                "its transaction is over; use ctx.connection only in the activity's own function, and within its time "
                "limit"
            )
        return self._guest

    @_con.setter
    def _con(self, guest: Any) -> None:
        self._guest: Any = guest

    def close(self, *, timeout: float | None = None) -> NoReturn:
        _refuse("close()")

    def terminate(self) -> NoReturn:
        _refuse("terminate()")

    set_type_codec = _not_kept("set_type_codec")
    reset_type_codec = _not_kept("reset_type_codec")
    set_builtin_type_codec = _not_kept("set_builtin_type_codec")
    add_query_logger = _not_kept("add_query_logger")
    add_termination_listener = _not_kept("add_termination_listener")

    def __repr__(self) -> str:
        return (
            f"<connection lent to an activity: {'its transaction is over' if self._guest is None else self._guest!r}>"
        )


def lend(guest: Any) -> Lent:
    """Return what an activity gets for a connection."""
    guest.is_lent = True
    return Lent(None, guest)


def take_back(guest: Any, lent: Lent) -> None:
    """Detach what an activity got."""
    guest.is_lent = False
    if lent._guest is not None:  # pyright: ignore[reportPrivateUsage]
        lent._detach()
