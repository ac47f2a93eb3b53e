"""Converts the rows of SQLite to the columns of PostgreSQL, table by table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from romancy.storage.rows import UNINDEXED, shown
from romancy.storage.tools.copy.order import Order

Row = Sequence[Any]

COLUMNS: dict[str, tuple[str, ...]] = {
    "events": tuple(
        "xid seq source id type subject time target attrs data token accepted_at expires_at differed_at origin".split()
    ),
    "shapes": ("id", "type", "fields", "ready"),
    "event_keys": ("shape", "key", "xid", "seq"),
    "instances": tuple(
        "id workflow generation status owner version token birth born trigger_xid trigger_seq parent input input_kind "
        "output error deadline description created_at updated_at finished_at parent_op base began_at builds "
        "is_free seed limited_from schedule scheduled_at queue queue_key priority".split()
    ),
    "history": ("instance", "n", "kind", "op", "at", "input", "payload", "event"),
    "waits": ("instance", "op", "due_at", "born", "since", "model", "spec", "location", "created_at"),
    "wait_keys": ("type", "shape", "key", "instance", "op", "follows", "alike"),
    "deliveries": ("instance", "event"),
    "consumed": ("instance", "event", "op"),
    "marks": ("instance", "type", "shape", "key", "model", "xid", "seq"),
    "misfits": ("instance", "model", "event", "op", "error"),
    "requests": ("id", "instance", "kind", "payload", "at", "token", "n", "op"),
    "attempts": tuple(
        "instance op n first_at next_due error progress crashes culprit suspected_at tried tried_alone alone run "
        "started is_alone".split()
    ),
    "trials": ("culprit", "at", "since", "tried_alone", "alone"),
    "deaths": ("worker", "since", "at"),
    "triggers": ("type", "workflow", "timeout"),
    "orphans": ("id", "at", "clean"),
    "interests": ("workflow", "type", "next", "kind", "since"),
    "cuts": ("type", "upto"),
    "views": ("instance", "value", "at"),
    "attributes": ("instance", "name", "value", "created_at"),
    "schedules": tuple(
        "name workflow input input_kind timeout attributes cron every timezone starts_at ends_at spread catch_up "
        "overlap next_at due_at done_at last_at last_instance started skipped error stamp former queue "
        "queue_key priority paused declared".split()
    ),
    "inbox": tuple(
        "id kind at source event type subject time target attrs expires_at instance workflow input_kind deadline "
        "options data refused refused_at seen".split()
    ),
    "queues": ("name", "version", "turn", "reserved"),
    "queue_keys": ("queue", "key", "reserved"),
    "sinks": ("name", "owner", "xid", "seq", "types", "holds", "seen_at", "keep"),
    "sink_types": ("sink", "pattern"),
    "sink_parked": ("sink", "seq", "xid", "line", "attempts", "since", "due_at", "error", "dead"),
    "minutes": tuple("minute started completed failed cancelled failures blocked retrying overdue queued".split()),
    "acts": ("id", "instance", "at", "verb", "who"),
    "headers": ("instance", "headers"),
    "emissions": tuple("instance seq topic n count kind op run at size data".split()),
    "vault": ("id", "key"),
}
"""The tables with their columns in PostgreSQL. Workers are not copied: they have stopped, and their instances are free.

Sessions are not copied either: visitors log in again.
"""


@dataclass(frozen=True, slots=True)
class Reader:
    """The source of the rows: the file, the order of its events, and values for new columns."""

    c: sqlite3.Connection
    order: Order
    now: int
    token: bytes

    def rows(self, table: str) -> Iterator[Row]:
        """Return every row of a table."""
        if table in _DIFFER:
            return _DIFFER[table](self)
        return iter(self.c.execute(f"SELECT {', '.join(COLUMNS[table])} FROM romancy_{table}"))


def _events(it: Reader) -> Iterator[Row]:
    for row in it.c.execute(f"SELECT {', '.join(COLUMNS['events'][1:])} FROM romancy_events ORDER BY seq"):
        yield it.order.xid(row[0]), *row


def _shapes(it: Reader) -> Iterator[Row]:
    """In SQLite, every event has its keys, so every shape is ready."""
    for row in it.c.execute("SELECT id, type, fields FROM romancy_shapes"):
        yield *row, True


def _event_keys(it: Reader) -> Iterator[Row]:
    for shape, key, seq in it.c.execute("SELECT shape, key, seq FROM romancy_event_keys"):
        yield shape, key, it.order.xid(seq), seq


def _instances(it: Reader) -> Iterator[Row]:
    columns = COLUMNS["instances"]
    place = columns.index("born")
    after = columns[columns.index("parent") :]
    description, is_free = after.index("description"), after.index("is_free")
    for since, *row in it.c.execute(f"SELECT since, {', '.join((*columns[:place], *after))} FROM romancy_instances"):
        begins, rest = it.order.after(since), row[place:]
        rest[description] = shown(rest[description])
        rest[is_free] = None if rest[is_free] is None else bool(rest[is_free])
        yield *row[:place], begins.born, begins.xid, begins.seq, *rest


def _waits(it: Reader) -> Iterator[Row]:
    """A wait with its own beginning begins at a cut or, if that is before its instance's beginning, at a time."""
    query = """SELECT w.instance, w.op, w.due_at, w.since, coalesce(i.since, 0), w.model, w.spec, w.location,
      w.created_at FROM romancy_waits w LEFT JOIN romancy_instances i ON i.id = w.instance"""
    for instance, op, due, own, since, *rest in it.c.execute(query):
        born = time = None
        if own is not None and own >= since:
            born = it.order.after(own).born
        elif own is not None:
            time = _time_after(it.c, own, rest[-1])
        yield instance, op, due, born, time, *rest


def _time_after(c: sqlite3.Connection, seq: int, otherwise: int) -> int:
    """Return when the first event after this one was accepted."""
    (time,) = c.execute("SELECT min(accepted_at) FROM romancy_events WHERE seq > ?", (seq,)).fetchone()
    return otherwise if time is None else time


def _wait_keys(it: Reader) -> Iterator[Row]:
    query = """SELECT k.type, k.shape, k.key, k.instance, k.op, k.follows, k.alike, coalesce(w.spec, x'')
      FROM romancy_wait_keys k LEFT JOIN romancy_waits w ON w.instance = k.instance AND w.op = k.op"""
    for type, shape, key, instance, op, follows, alike, spec in it.c.execute(query):
        known = UNINDEXED if shape == 0 and b'"filter"' in spec else shape
        yield type, known, key, instance, op, bool(follows), alike


def _marks(it: Reader) -> Iterator[Row]:
    for *row, seq in it.c.execute("SELECT instance, type, shape, key, model, seq FROM romancy_marks"):
        yield *row, it.order.xid(seq), seq


def _misfits(it: Reader) -> Iterator[Row]:
    for *row, error in it.c.execute("SELECT instance, model, event, op, error FROM romancy_misfits"):
        yield *row, shown(error)


def _requests(it: Reader) -> Iterator[Row]:
    """A request is identified by its batch and its place there; for all of these, the batch is the copy."""
    for n, row in enumerate(
        it.c.execute("SELECT id, instance, kind, payload, at, op FROM romancy_requests ORDER BY id")
    ):
        *request, op = row
        yield *request, it.token, n, op


def _attempts(it: Reader) -> Iterator[Row]:
    for *row, started, is_alone in it.c.execute(f"SELECT {', '.join(COLUMNS['attempts'])} FROM romancy_attempts"):
        yield *row, bool(started), None if is_alone is None else bool(is_alone)


def _schedules(it: Reader) -> Iterator[Row]:
    for *row, paused, declared in it.c.execute(f"SELECT {', '.join(COLUMNS['schedules'])} FROM romancy_schedules"):
        yield *row, bool(paused), bool(declared)


def _sinks(it: Reader) -> Iterator[Row]:
    """A sink goes on after the event that it has reached."""
    query = "SELECT name, owner, seq, types, holds, seen_at, keep FROM romancy_sinks"
    for name, owner, seq, types, holds, *rest in it.c.execute(query):
        yield name, owner, it.order.xid(seq), seq, types, bool(holds), *rest


def _sink_parked(it: Reader) -> Iterator[Row]:
    for sink, seq, *rest, dead in it.c.execute(
        "SELECT sink, seq, line, attempts, since, due_at, error, dead FROM romancy_sink_parked"
    ):
        yield sink, seq, it.order.xid(seq), *rest, bool(dead)


def _orphans(it: Reader) -> Iterator[Row]:
    """Workers that are gone, and those that still have a row: no process has the file open, so they died."""
    for id, at, clean in it.c.execute("SELECT id, at, clean FROM romancy_orphans"):
        yield id, at, bool(clean)
    for id, leaving in it.c.execute("SELECT id, leaving FROM romancy_workers"):
        yield id, it.now, bool(leaving)


def _inbox(it: Reader) -> Iterator[Row]:
    """The log is cut where its starts begin, so a snapshot says it all."""
    for *row, seen in it.c.execute(f"SELECT {', '.join(COLUMNS['inbox'])} FROM romancy_inbox ORDER BY id"):
        yield *row, it.order.after(seen or 0).born


_DIFFER: dict[str, Callable[[Reader], Iterator[Row]]] = {
    "events": _events,
    "shapes": _shapes,
    "event_keys": _event_keys,
    "instances": _instances,
    "waits": _waits,
    "wait_keys": _wait_keys,
    "marks": _marks,
    "misfits": _misfits,
    "requests": _requests,
    "attempts": _attempts,
    "orphans": _orphans,
    "schedules": _schedules,
    "inbox": _inbox,
    "sinks": _sinks,
    "sink_parked": _sink_parked,
}
"""Tables that differ between SQLite and PostgreSQL."""
