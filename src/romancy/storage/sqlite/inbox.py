"""Moves what callers left in the inbox, in one transaction."""

from __future__ import annotations

import json
import sqlite3

from romancy.storage.batch import Batch, BatchResult
from romancy.storage.guests import Inbox
from romancy.storage.inbox_items import refusal
from romancy.storage.sqlite.batches import BatchWriter
from romancy.storage.sqlite.statements import LEAVE, SQL, STATEMENTS


def inbox_of(path: str) -> Inbox:
    """Return where guests leave things in a file."""
    return Inbox("sqlite", path, LEAVE, STATEMENTS["leave"], {}, path)


def move(connection: sqlite3.Connection, writer: BatchWriter, batch: Batch) -> BatchResult | None:
    """Apply a batch of things that are still in the inbox, and remove them. None: another process has moved some."""
    (there,) = connection.execute(SQL["count_to_move"], (json.dumps(list(batch.moved)),)).fetchone()
    if there != len(batch.moved):
        return None
    answer = writer.apply(batch)
    refused = {
        number: refusal(start, known)
        for number, start, known in zip(batch.moved, batch.starts, answer.starts, strict=False)
        if not known.created and not known.same
    }
    connection.executemany(SQL["delete_moved"], [(number,) for number in batch.moved if number not in refused])
    connection.executemany(SQL["refuse_start"], [(reason, batch.at, number) for number, reason in refused.items()])
    return answer
