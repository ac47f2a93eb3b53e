"""What a database may answer instead of a result. `TransientError`s are tried again."""

from __future__ import annotations

from romancy.errors import StorageError


class TransientError(StorageError):
    """The database can't take it now, but may in a moment: the same batch is submitted again."""


class Unusable(TransientError):
    """It is read-only, damaged, or not what it should be: only people can change that.

    A running app tries again, as in an outage: they may be at it. One that starts tells them at once.
    """


class TookTooLong(TransientError):
    """The database gave up on it: it took too long, waited too long for a lock, or needed too much memory.

    Less at once may do. What was stored, if an earlier submission got through, is known by the batch's token.
    """


class NotThere(StorageError):
    """There is no such database, or nothing of ours in it, and whoever opens it may not make it."""


class RefusedValue(StorageError):
    """The database will never take this."""
