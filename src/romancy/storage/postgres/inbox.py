"""Moves what callers left in the inbox: see postgres_inbox.sql."""

from __future__ import annotations

from romancy.errors import StorageError
from romancy.storage.batch import Batch, BatchResult
from romancy.storage.errors import TransientError
from romancy.storage.guests import Inbox
from romancy.storage.inbox_items import refusal
from romancy.storage.postgres.batches import BatchWriter
from romancy.storage.postgres.connection import Connections


async def inbox_or_error(connections: Connections, channel: str) -> Inbox | StorageError:
    """Return where guests leave things in this database, or why they can't: others must not suffer from it."""
    statements = connections.statements
    try:
        [(identity,)] = await connections.ask("identity")
    except TransientError:
        raise
    except StorageError as error:
        return StorageError(f"app.within() can't be used, because the server does not tell its identity: {error}")
    place = {"identity": identity, "channel": channel}
    return Inbox("postgresql", connections.name, statements.text("leave"), statements.get("leave"), place)


async def move(connections: Connections, writer: BatchWriter, batch: Batch) -> BatchResult | None:
    """Apply a batch of things that are still in the inbox, and remove them. None: another process has moved some.

    Starts whose id was taken are removed later: if this process dies before that, they are moved again.
    """
    answer = await writer.move(batch)
    if answer is None:
        return None
    taken = [x for x in zip(batch.moved, batch.starts, answer.starts, strict=False) if not x[2].created]
    if taken:
        refused = [(number, refusal(start, known)) for number, start, known in taken if not known.same]
        await connections.do(
            "settle_starts",
            known=[number for number, _, known in taken if known.same],
            refused=[number for number, _ in refused],
            reasons=[reason for _, reason in refused],
            at=batch.at,
        )
    return answer
