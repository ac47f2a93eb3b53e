"""The message that ends most transactions of activities: the result, the COMMIT and a reset of the session.

If other activities wait for a transaction, it also begins the next one. That saves one of three round trips.

The driver sends parameters only with single statements. So the values are written into the message, as arguments of a
statement that is prepared once per connection. Every value is a string in the text format of its type, which is right
whatever the activity has set in its session.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from romancy.storage.batch import Batch, BatchResult, Commit
from romancy.storage.postgres.driver import asyncpg
from romancy.storage.postgres.errors import STATEMENT_TIMEOUT
from romancy.storage.postgres.statements import Statements

_MOST = 64 * 1024
"""Bytes: larger results are sent as parameters."""
_REFUSED = re.compile(r"not applied, alive (\d)")
"""The message of the statement `store_result` in postgres.sql."""


async def ending_of(guest: Any, batch: Batch, statements: Statements) -> str | None:
    """Return what ends a transaction with this batch; None if it has to be sent in several messages.

    If it also begins the next one, the reset is a transaction of its own: a rollback must not undo it.
    """
    [commit] = batch.commits
    [entry] = commit.entries
    if commit.sent or len(entry.payload or b"") + len(entry.input or b"") > _MOST:
        return None
    name = await _prepared(guest, statements)
    if name is None:
        return None
    values = statements.get("store_result").values(_given(batch, commit))
    texts = [None if value is None else _text(value) for value in values]
    if any(text is not None and "\0" in text for text in texts):
        return None  # it is refused, with a better message
    reset = guest.get_reset_query()
    relaxed = "SET LOCAL synchronous_commit = off; " if statements.is_relaxed else ""
    return (
        f"SET LOCAL plan_cache_mode = force_generic_plan; {relaxed}"
        f'EXECUTE "{name}" ({", ".join(map(_literal, texts))}); COMMIT; '
        f"{f'BEGIN; {reset} COMMIT; BEGIN' if guest.begun_at is not None else reset}"
    )


def refused(error: BaseException) -> BatchResult | None:
    """Return the answer to a batch that was refused, if that is what this error means."""
    found = _REFUSED.search(str(error)) if isinstance(error, asyncpg.InvalidTextRepresentationError) else None
    return None if found is None else BatchResult(fenced=found[1] == "0", commits=[False])


async def _prepared(guest: Any, statements: Statements) -> str | None:
    """Return the name of the prepared statement. None: a pooler gave it another one."""
    if guest.prepared is None:
        statement = await guest.prepare(statements.get("store_result").sql, timeout=STATEMENT_TIMEOUT)
        name = statement.get_name()
        is_there = await guest.fetchval(statements.get("is_prepared").sql, name, timeout=STATEMENT_TIMEOUT)
        guest.prepared, guest.is_pooled = (name, statement), not is_there
    return None if guest.is_pooled else guest.prepared[0]


def _given(batch: Batch, commit: Commit) -> dict[str, Any]:
    [entry] = commit.entries
    return {
        "worker": batch.worker,
        "token": batch.token,
        "instance": commit.instance,
        "version": commit.version,
        "n": entry.n,
        "kind": entry.kind,
        "op": entry.op,
        "at": entry.at,
        "input": entry.input,
        "payload": entry.payload,
        "event": entry.event,
        "first_at": commit.attempts[0].first_at if commit.attempts else None,
        "done": commit.attempts_done,
    }


def _text(value: object) -> str:
    """Return a value in the text format of its type."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, int):
        return str(int(value))
    assert isinstance(value, list | tuple)
    return "{" + ",".join(_element(item) for item in cast("Sequence[str]", value)) + "}"


def _element(text: str) -> str:
    """Return an element of an array in text format."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _literal(text: str | None) -> str:
    """Return a string that is read the same way whatever `standard_conforming_strings` and `backslash_quote` are."""
    return "NULL" if text is None else "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
