"""Databases: the storage protocol, and the backend for a URL.

    protocol.py  what the engine needs from a database
    attempts.py  attempts of activities, and the evidence about those that were running when their worker died
    batch.py     what the engine writes in one transaction, and the result of each item
    forks.py     what a copy of an instance is made of
    instances.py instances as they are stored
    records.py   what the engine reads
    reads.py     reads that are the same for every database
    interests.py which events are kept for whom
    errors.py    errors that a database can raise
    catalog.py   reads for people
    event_catalog.py  its part for the event log
    schedules.py the table of schedules
    sinks.py     how far sinks have come, and what they have parked
    emissions.py what instances emit
    queues.py    what waits in queues, and how it is admitted
    desk.py      what operators look at
    acts.py      who did what to instances
    sessions.py  the viewer's login sessions
    guests.py    connections of callers, on which things are left in the inbox
    inbox_items.py  what is in the inbox
    rows.py      converts between rows and records
    opener.py    what a backend looks at inside values
    sealed/      values that are sealed with a codec
    unopened.py  in place of a value that could not be opened
    urls.py      database URLs, and how they are shown
    sql/         the statements, by name, and the migrations
    sqlite/      SQLite
    postgres/    PostgreSQL
    tools/       migrating and copying without an app

`reads.py`, `catalog.py` and `sessions.py` run statements that have the same names in every backend.

Anything a process remembers about the database must be either checked again by the statement that relies on it, or
permanently true by the time it is remembered. Any other cached state loses events sooner or later. This is the complete
list, with the reason why each item is safe. Add a line when you add cached state.

Checked again by the statement that relies on it:
- instances in memory: a commit is refused unless owner and version are unchanged since the instance was read, and a
  plain commit also unless its entries are the next ones. Taking an instance away raises its version;
- the worker's own registration: the fence is part of every commit, claim, adoption and look;
- that this library may write to the schema: a migration that excludes it deletes the rows of all workers, which fences
  them. A start, event or request from a process without a row is refused by the statement itself;
- shapes and triggers of an event type (PostgreSQL): `dispatch` compares them with the tables and does nothing if they
  differ. SQLite reads them again in every transaction, and indexes the log for a new shape in the same transaction, so
  a shape is never visible before it is ready;
- which workers are dead: a session lock that was missing can be back by now. In that case a live worker is fenced and
  starts again. What can be pruned or handed to others is checked again by the delete or the commit;
- schedules that were read: every write names the stamp of the row it is based on, and does nothing if that has changed;
- who can be admitted to a queue: the admission compares the version of the queue with the one read before the counts;
- where a sink stands, and which of its lines are held: only its owner writes them, and every write checks that it is;
- offers, deliveries, notices, timers, balances: hints. The owner decides when it feeds them, and its commit is checked.

Permanently true once remembered:
- the index key of a database whose values are sealed: it is never replaced by another one;
- ready shapes (PostgreSQL): remembered after the database has confirmed it. A ready shape stays ready;
- for marks, the event before which a wait can't be offered anything any more: in the snapshot that found it, no older
  event was uncommitted or without its keys, and all later events are newer;
- results and endings: announced after the commit, and final;
- what workflows are interested in: remembered after it was found in the database, where it is never deleted. Floors are
  not remembered, but a moment old when they are used: they only rise.

Wrong for a limited time at most: the offset of the database's clock (a lower bound, measured with every commit; setting
the clock makes timers early or late by the same amount), and prepared statements (the server refuses those that a
migration broke, and the batch is submitted again).

All of this holds for one server and its history. When a standby that lagged behind takes over, everything is forgotten;
see `postgres/connection.py`.
"""

from __future__ import annotations

from typing import Any

from romancy.core.clock import Clock
from romancy.errors import StorageError
from romancy.storage.opener import Opener
from romancy.storage.protocol import Storage
from romancy.storage.urls import is_postgres

__all__ = ["open_storage"]


def open_storage(
    database: str,
    *,
    durability: str,
    clock: Clock,
    create: bool = True,
    opener: Opener | None = None,
    **options: Any,
) -> Storage:
    """Return the backend for a path, `:memory:` or URL, not opened yet. PostgreSQL `options`: `schema`, `notify_url`.

    With `create=False`, an empty PostgreSQL database is refused. A SQLite file is created in any case. `opener`:
    opens what the backend itself looks at, if values are sealed; see `sealed/`.
    """
    options = {name: value for name, value in options.items() if value is not None}
    seen: dict[str, Any] = {} if opener is None else {"opener": opener}
    if is_postgres(database):
        return _postgres()(database, durability=durability, clock=clock, create=create, **seen, **options)
    scheme, separator, rest = database.partition("://")
    if options:
        raise StorageError(f"{', '.join(options)}: these options require a postgresql:// URL")
    if not separator:
        return _sqlite()(database, durability=durability, clock=clock, **seen)
    if scheme in ("sqlite", "file"):
        path = rest.removeprefix("/") if rest.startswith("//") else rest
        return _sqlite()(path, durability=durability, clock=clock, **seen)
    raise StorageError(
        f"{scheme!r} databases are not supported by this version; use a file path, :memory: or postgresql://"
    )


def _sqlite() -> Any:
    from romancy.storage.sqlite import SQLiteStorage  # lazy: on PostgreSQL it would only make the start slower

    return SQLiteStorage


def _postgres() -> Any:
    try:
        from romancy.storage.postgres import PostgresStorage  # lazy: its driver is optional
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StorageError("PostgreSQL needs its driver; install it with: pip install 'romancy[postgres]'") from None
    return PostgresStorage
