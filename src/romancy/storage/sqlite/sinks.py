"""Writes to the tables of sinks. Each is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from romancy.storage.sqlite.leases import check_version
from romancy.storage.sqlite.statements import SQL, run


def write(c: sqlite3.Connection, name: str, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a write by name."""
    check_version(c)
    if name == "settle_sink":
        return _settle(c, given)
    if name == "declare_sink":
        return [row for each in (name, "insert_sink_types", "delete_sink_types") for row in run(c, each, given)]
    return _forget(c, given) if name == "forget_sinks" else run(c, name, given)


def _settle(c: sqlite3.Connection, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Move a sink on, if its worker still has it; see the statement of this name in postgres_sinks.sql."""
    if c.execute(SQL["fence"], (given["worker"],)).fetchone() is None:
        return []
    held = run(c, "advance_sink", given)
    if held:
        sink = given["sink"]
        c.executemany(SQL["delete_parked"], [(sink, seq) for seq in given["gone"]])
        columns = ("seqs", "xids", "lines", "attempts", "sinces", "dues", "errors", "deads")
        rows = zip(*(given[column] for column in columns), strict=True)
        c.executemany(SQL["park"], [(sink, *row) for row in rows])
    return held


def _forget(c: sqlite3.Connection, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    gone = run(c, "forget_sinks", given)
    for name in ("delete_types_of_sink", "delete_parked_of_sink"):
        c.executemany(SQL[name], gone)
    return gone
