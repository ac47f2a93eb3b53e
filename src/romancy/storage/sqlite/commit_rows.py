"""Writes the rows of commits: entries, waits, attempts and what instances show. Each table once for all commits."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from romancy.core.operations import After
from romancy.core.published import Publication
from romancy.storage.batch import Commit, Consumption, WaitRow
from romancy.storage.opener import Opener
from romancy.storage.rows import attempt_values, entry_values, likeness, suspect_values
from romancy.storage.sqlite.event_lookup import number_of
from romancy.storage.sqlite.shapes import Shapes
from romancy.storage.sqlite.statements import SQL

Rows = list[tuple[Any, ...]]


class CommitRows:
    """Writes what commits store besides the state of their instances."""

    def __init__(self, connection: sqlite3.Connection, shapes: Shapes, opener: Opener) -> None:
        self._run, self._run_many, self._shapes = connection.execute, connection.executemany, shapes
        self._opener = opener

    def write(self, commits: list[Commit]) -> None:
        self._many("insert_entry", [(c.instance, *entry_values(e)) for c in commits for e in c.entries])
        final: Rows = [(c.instance,) for c in commits if c.is_final]
        self._many("delete_deliveries", final)
        self._many("delete_requests", final)
        for commit in commits:
            if commit.given_back:
                self._many("give_back", [(commit.instance, event) for event in commit.given_back])
                self._run(SQL["delete_marks"], (commit.instance,))
        self._many("insert_emission", [row.values for c in commits if c.emitted for row in c.emitted])
        self._write_waits([commit for commit in commits if commit.changes_waits])
        for commit in commits:
            if commit.attempts or commit.attempts_done or commit.requests_done:
                self._write_attempts(commit)
            if commit.publication is not None:
                self._publish(commit, commit.publication)
            if commit.headers is not None:
                self._run(SQL["set_headers"], (commit.instance, json.dumps(commit.headers)))

    def _many(self, name: str, rows: Rows) -> None:
        if rows:
            self._run_many(SQL[name], rows)

    # --- waits ------------------------------------------------------------------------------------------------------
    def _write_waits(self, commits: list[Commit]) -> None:
        if not commits:
            return
        taken = [(c, t) for c in commits for t in c.consumed]
        self._many("insert_consumed", [(c.instance, t.event, t.wait.op) for c, t in taken])
        # Marks make later looks short. An instance that ended does not look any more.
        self._many("set_mark", [mark for c, t in taken if not c.is_final for mark in self._marks(c.instance, t)])
        misfits: Rows = [(c.instance, m.model, m.event, m.op, m.error) for c in commits for m in c.misfits]
        self._many("insert_misfit", misfits)
        closed: Rows = [(c.instance, op) for c in commits for op in c.closed]
        self._many("delete_wait", closed)
        self._many("delete_keys_of_wait", closed)
        seen: Rows = [(c.instance, seq) for c in commits if not c.is_final for seq in c.seen_deliveries]
        self._many("delete_delivery", seen)
        opened = [(c.instance, wait) for c in commits for wait in c.opened]
        self._many("insert_wait", [self._wait(instance, wait) for instance, wait in opened])
        self._many("insert_wait_key", [key for instance, wait in opened for key in self._keys(instance, wait)])

    def _marks(self, instance: str, taken: Consumption) -> Rows:
        """Return the mark after an event that was taken. One that no index finds has none."""
        shape = self._shapes.shape(taken.type, taken.wait.filter)
        if taken.wait.since is not None or shape is None:
            return []
        key = self._opener.key(taken.wait.filter.key)
        return [(instance, taken.type, shape, key, taken.wait.model, taken.event)]

    def _wait(self, instance: str, wait: WaitRow) -> tuple[Any, ...]:
        since: Any = wait.since
        if since == "now":
            [since] = self._run(SQL["horizon"]).fetchone()
        elif isinstance(since, After):
            since = number_of(since.place) - since.again
        elif since is not None:
            [since] = self._run(SQL["last_before"], (since,)).fetchone()
        return instance, wait.op, wait.due, since, wait.model, wait.spec, wait.location, wait.created_at

    def _keys(self, instance: str, wait: WaitRow) -> Rows:
        places = ((type, *self._shapes.place(type, wait.filter)) for type in wait.types)
        return [(*place, instance, wait.op, wait.follows, likeness(wait)) for place in places]

    # --- attempts and what instances show ---------------------------------------------------------------------------
    def _write_attempts(self, commit: Commit) -> None:
        for a in commit.attempts:
            if a.suspicion is None:
                self._run(SQL["set_attempt"], (commit.instance, *attempt_values(a)))
            else:
                self._run(SQL["set_suspect"], (commit.instance, *suspect_values(a, a.suspicion)))
        for trial in commit.trials:
            values = (trial.culprit, trial.at, trial.since, trial.tried_alone, trial.alone)
            self._run(SQL["insert_trial"], values)
        for op in commit.attempts_done:
            self._run(SQL["delete_attempt"], (commit.instance, op))
        for request in commit.requests_done:
            self._run(SQL["delete_request"], (request,))

    def _publish(self, commit: Commit, publication: Publication) -> None:
        if publication.is_whole:
            self._run(SQL["delete_view"], (commit.instance,))
            self._run(SQL["delete_attributes"], (commit.instance,))
        if publication.view is not None:
            self._run(SQL["set_view"], (commit.instance, publication.view, commit.at))
        for name, value in publication.attributes.items():
            if value is None:
                self._run(SQL["remove_attribute"], (commit.instance, name))
            else:
                self._run(SQL["set_attribute"], (commit.instance, name, value, publication.created_at))
