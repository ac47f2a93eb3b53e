"""Retention: deletes old instances and events, and stores what keeps events. Each function is one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from romancy.storage.batch import Commit
from romancy.storage.interests import Cut, Known, Plan, Row, cuts_of
from romancy.storage.records import DEATHS_KEPT
from romancy.storage.sqlite import emissions
from romancy.storage.sqlite.leases import check_version
from romancy.storage.sqlite.statements import SQL, run

_OF_INSTANCE = (
    "delete_history delete_consumed delete_marks delete_misfits delete_attempts delete_waits delete_wait_keys "
    "delete_deliveries delete_requests delete_view delete_attributes delete_acts delete_headers forget_parent "
    "delete_instance"
).split()
"""The statements that delete a pruned instance."""
_OF_EVENT = ("delete_event_keys", "delete_receivers", "delete_event")


def prune(c: sqlite3.Connection, ended: Mapping[str, int], plan: Plan, now: int, limit: int) -> int:
    """Delete instances that ended before a time (a separate one for failed ones), and the events of the plan.

    What was refused in the inbox is kept as long as ended instances.
    """
    c.executemany(SQL["settle_interest"], [(workflow,) for workflow in plan.settled])
    c.executemany(SQL["open_interest"], [(workflow,) for workflow in plan.opened])
    instances = run(c, "prunable_instances", {"latest": max(ended.values()), "limit": limit, **ended})
    done = emissions.delete(c, instances)
    for name in _OF_INSTANCE:
        c.executemany(SQL[name], done)
    refused = run(c, "prune_refused", {"before": ended["before"], "limit": limit})
    c.execute(SQL["forget_expired_data"], (now,))
    c.execute(SQL["orphan_unknown"], (now,))
    c.execute(SQL["forget_deaths"], (now - DEATHS_KEPT,))
    c.execute(SQL["forget_trials"], (now - DEATHS_KEPT,))
    events = c.execute(SQL["still_handled"], (json.dumps(plan.seqs),)).fetchall() if plan.seqs else []
    is_current = {(w, t, n, kind) for w, t, n, kind, _ in run(c, "interests", {})} <= plan.interests
    for type, before in plan.types if is_current else ():
        if len(events) < limit:
            given = {"type": type, "before": before, "limit": limit - len(events)}
            events += run(c, "prunable_events", given)
    _delete(c, events)
    return len(instances) + len(refused) + len(set(events))


def cut(c: sqlite3.Connection, before: int, limit: int) -> list[Cut]:
    """Delete events that were accepted before a time, whoever may want them."""
    rows = c.execute(SQL["cuttable_events"], (before, limit)).fetchall()
    cuts = cuts_of(rows)
    c.executemany(SQL["insert_cut"], [(cut.type, cut.upto) for cut in cuts])
    _delete(c, [(seq,) for seq, _, _ in rows])
    return cuts


def _delete(c: sqlite3.Connection, events: Sequence[tuple[int]]) -> None:
    for name in _OF_EVENT:
        c.executemany(SQL[name], events)


def expect(c: sqlite3.Connection, rows: Iterable[Row], at: int) -> None:
    """Store which events workflows are interested in."""
    check_version(c)
    c.executemany(SQL["insert_interest"], [(*row, at, False) for row in rows])


class Interests:
    """Stores the interest of workflows in what their instances begin to wait for."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._run = connection.execute
        self._known = Known()
        """Rows that are stored. One is added when it is found, not when it is written: that may be rolled back."""

    def learn(self, commits: Sequence[Commit], at: int) -> None:
        for row in self._known.new(commits):
            if self._run(SQL["insert_interest"], (*row, at, True)).rowcount == 0:
                self._known.add(row)
