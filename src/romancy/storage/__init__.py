"""Databases: the protocol, and the backend a URL names.

    protocol.py  what the engine asks of a database
    batch.py     what it writes in one transaction, and the result of each item
    records.py   what it reads
    reads.py     reads that are the same for every database
    errors.py    what a database may answer instead
    catalog.py   reads for people
    sessions.py  the viewer's login sessions; these three run statements of the same names everywhere
    rows.py      between rows and records
    urls.py      which database a URL means, and how it is shown
    sql/         the statements, by name, and the migrations
    sqlite/      SQLite
    postgres/    PostgreSQL
    tools/       migrating and copying without an app

What a process remembers of the database is either checked again in the statement that relies on it, or remembered only
after it has become true for good. Everything else loses events sooner or later. This is the complete list, with the
reason why each item is safe; add a line when you add to it.

Checked again by the statement that relies on it:
- instances in memory: every commit is refused unless owner and version are what they were when it was read; a plain one
  also unless its entries are the next. Whatever takes an instance away raises its version;
- the worker's own registration: the fence is part of every commit, claim, adoption and look;
- that this library may write the schema: a migration that shuts it out deletes the rows of all workers, and so fences
  them; a start, an event or a request from a process without a row is refused by the statement itself;
- shapes and triggers of an event type (PostgreSQL): `dispatch` compares them with the tables and does nothing if they
  differ. SQLite reads them anew in every transaction, and indexes the log for a new shape in the same one, so that no
  shape is ever seen before it is ready;
- which workers are dead: a session lock seen to be gone may be back by now. Then a live worker is fenced, and starts
  afresh. What may be pruned, what may be handed to others: asked again by the delete, and by the commit;
- offers, deliveries, notices, timers, balances: hints. The owner decides when it feeds them, and its commit is checked.

True for good once it is remembered:
- ready shapes (PostgreSQL): remembered after the database has said so, and never unready again;
- the event before which a wait can't be offered anything any more, for marks: nothing older was under way or without
  its keys in the snapshot that found it, and whatever comes later is newer;
- results and endings: announced after the commit, and final.

Wrong for a while at most: the offset of the database's clock (a lower bound, measured with every commit; a clock that
is set makes timers early or late by as much), and prepared statements (the server refuses those that a migration broke,
and the batch goes out again).

All of this holds on one server and its history. Where a standby that was behind takes its place, everything is
forgotten: `postgres/connection.py`.
"""

from __future__ import annotations

from typing import Any

from romancy.core.clock import Clock
from romancy.errors import StorageError
from romancy.storage.protocol import Storage
from romancy.storage.sqlite import SQLiteStorage
from romancy.storage.urls import is_postgres

__all__ = ["open_storage"]


def open_storage(database: str, *, durability: str, clock: Clock, create: bool = True, **options: Any) -> Storage:
    """The backend for a path, `:memory:` or URL; not opened yet. `options`: `schema`, `notify_url` for PostgreSQL.

    With `create=False` a PostgreSQL database in which there is nothing yet is refused; a file is made all the same.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if is_postgres(database):
        return _postgres()(database, durability=durability, clock=clock, create=create, **options)
    scheme, separator, rest = database.partition("://")
    if options:
        raise StorageError(f"{', '.join(options)}: only databases with a postgresql:// URL have such options")
    if not separator:
        return SQLiteStorage(database, durability=durability, clock=clock)
    if scheme in ("sqlite", "file"):
        return SQLiteStorage(
            rest.removeprefix("/") if rest.startswith("//") else rest, durability=durability, clock=clock
        )
    raise StorageError(
        f"{scheme!r} databases are not supported by this version; use a file path, :memory: or postgresql://"
    )


def _postgres() -> Any:
    try:
        from romancy.storage.postgres import PostgresStorage  # here, because its driver is optional
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StorageError("PostgreSQL needs its driver; install it with: pip install 'romancy[postgres]'") from None
    return PostgresStorage
