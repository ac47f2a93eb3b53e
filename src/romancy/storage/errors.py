"""Errors that a database can raise. The caller tries again after a `TransientError`."""

from __future__ import annotations

from romancy.errors import CodecError, StorageError


class TransientError(StorageError):
    """The database can't do this right now. The same batch is submitted again."""


class Unusable(TransientError):
    """The database is read-only, damaged or otherwise unusable, and an operator has to fix it.

    A running app tries again, as in an outage. An app that is starting reports it at once.
    """


class TookTooLong(TransientError):
    """The database gave up: it took too long, waited too long for a lock, or needed too much memory.

    A smaller batch may succeed. The batch's token shows what an earlier submission has stored.
    """


class Unreachable(TookTooLong):
    """Values that are kept outside the database can't be written or read right now. Others need not wait for that."""


class NotThere(StorageError):
    """The database does not exist or holds nothing of Romancy's, and the caller must not create it."""


class SealedDatabase(CodecError, StorageError):
    """The values in this database are sealed; give the app its codec: App(codec=...), or ROMANCY_CODEC for the CLI."""


class RefusedValue(StorageError):
    """The database will never accept this value."""


class Unsealable(RefusedValue, CodecError):
    """A value can't be sealed."""
