"""Applies a batch in one transaction: starts, commits, accepted events, requests, looks. Answers each item.

No other process can change what is read here: the writer holds the file from BEGIN IMMEDIATE to COMMIT. So accepting an
event and registering a wait each see everything that came before.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from romancy.core.given_back import original_id, own_copy
from romancy.core.history import Entry
from romancy.core.inputs import EVENT
from romancy.core.model import Event
from romancy.core.patterns import patterns_of
from romancy.core.queues import Place
from romancy.core.retrial import RetryAsk
from romancy.core.versions import bare_name, highest_versions
from romancy.storage.batch import (
    CANCEL,
    CHILD_CANCELLED,
    CHILD_COMPLETED,
    CHILD_SPENT,
    ENDED,
    FIRST_FINAL,
    GIVEN_UP,
    HASTEN,
    STATUS_CODES,
    STATUS_NAMES,
    Accept,
    AcceptAnswer,
    Ask,
    Batch,
    BatchResult,
    Commit,
    Continuation,
    Letter,
    Matched,
    Offer,
    Rejoin,
    Request,
    RequestAnswer,
    Start,
    StartAnswer,
    Started,
)
from romancy.storage.errors import RefusedValue
from romancy.storage.opener import PLAIN, Opener
from romancy.storage.rows import (
    STARTED_BY,
    as_stored,
    entry_values,
    event_values,
    triggered_id,
)
from romancy.storage.sqlite.commit_rows import CommitRows
from romancy.storage.sqlite.dispatch import Dispatcher
from romancy.storage.sqlite.event_lookup import Looker
from romancy.storage.sqlite.leases import admit, check_version, record, reopen_one
from romancy.storage.sqlite.retention import Interests
from romancy.storage.sqlite.shapes import Shapes
from romancy.storage.sqlite.statements import SQL


def append_statement(commit: Commit, worker: str | None) -> tuple[str, tuple[Any, ...]]:
    """Return the single statement for a commit of one entry, including the fence."""
    return SQL["append_entry"], _entry_values(commit, commit.entries[0], worker)


def _entry_values(commit: Commit, entry: Entry, worker: str | None) -> tuple[Any, ...]:
    e = entry
    return commit.instance, e.n, e.kind, e.op, e.at, e.input, e.payload, e.event, worker, commit.version


Looks = dict[tuple[str, str | None], None]
"""(instance, wait) of waits that look for events, in order; None means every wait of the instance."""


class BatchWriter:
    """Applies batches on one connection, inside a transaction that the caller began."""

    def __init__(self, connection: sqlite3.Connection, opener: Opener = PLAIN) -> None:
        self._connection, self._run = connection, connection.execute
        self._run_many, self._opener = connection.executemany, opener
        self._shapes = Shapes(connection, opener)
        self._dispatcher = Dispatcher(connection, self._shapes, opener)
        self._looker = Looker(connection, opener)
        self._interests = Interests(connection)
        self._rows = CommitRows(connection, self._shapes, opener)
        self._triggers: dict[str, Sequence[tuple[str, int | None]]] = {}
        """By type of event."""

    def apply(self, batch: Batch) -> BatchResult:
        if batch.commits and len(batch) == len(batch.commits) and self._append_all(batch):
            return BatchResult(False, [], [True] * len(batch.commits), [], [], [], [])
        self._shapes.begin()
        self._dispatcher.waits_changed()
        self._triggers.clear()
        self._seen: set[object] = set()
        self._room = batch.room
        fenced = batch.worker is not None and self._run(SQL["fence"], (batch.worker,)).fetchone() is None
        if fenced or batch.worker is None:
            check_version(self._connection)  # a worker needs no check: a migration that excludes it deletes its row
        answer = BatchResult(fenced, [], [], [], [], [], [])
        looks: Looks = dict.fromkeys(batch.looks)
        self._busy = {commit.instance for commit in batch.commits}.union(instance for instance, _ in looks)
        if batch.starts:
            horizon = self._horizon()
            answer.starts = [self._start(start, batch, horizon, answer.fenced) for start in batch.starts]
        if batch.commits:
            self._interests.learn(batch.commits, batch.at)
            self._commit_all(batch, answer, looks)
        for item in batch.accepts:
            answer.accepts.append(self._accept(item, batch, answer, looks))
        for request in batch.requests:
            answer.requests.append(self._request(request, answer))
        if batch.worker is not None and not answer.fenced:
            for instance, op in looks:
                answer.offers += self._looker.look(instance, op, batch.worker, batch.at)
        return answer

    def _horizon(self) -> int:
        return self._run(SQL["horizon"]).fetchone()[0]

    # --- starts -----------------------------------------------------------------------------------------------------
    def _start(self, start: Start, batch: Batch, horizon: int, fenced: bool) -> StartAnswer:
        owner = batch.worker if start.mine and not fenced else None
        if start.parent is not None:
            return self._start_child(start, owner, batch, horizon, fenced)
        first = self._is_first(start.id)
        since = horizon if start.since is None else int(start.since)
        if self._insert_instance(start, owner, batch.token, since):
            if start.attributes or start.place or start.headers:
                self._place(start)
            record(self._connection, [start.id], start.created_at, "start", start.who)
            return StartAnswer(True, owned=owner is not None)
        workflow, stored, birth = self._run(SQL["existing_instance"], (start.id,)).fetchone()
        if birth == batch.token and first:
            # An earlier submission of this batch was stored, and only its answer was lost.
            return StartAnswer(True, owned=owner is not None)
        is_same = bare_name(workflow) == bare_name(start.workflow) and stored == start.input
        return StartAnswer(False, is_same, workflow)

    def _start_child(self, start: Start, owner: str | None, batch: Batch, horizon: int, fenced: bool) -> StartAnswer:
        values = (
            *self._instance_values(start, owner, batch.token, horizon),
            start.parent,
            start.parent_op,
            start.is_free,
            batch.worker,
        )
        first = self._is_first(start.id)
        if not fenced and self._run(SQL["insert_child"], values).rowcount == 1:
            self._place(start)
            return StartAnswer(True, owned=owner is not None)
        row = self._run(SQL["existing_child"], (start.parent, start.parent_op, start.id)).fetchone()
        if row is None:
            return StartAnswer(False, lost=True)
        workflow, birth, is_same = row
        if birth == batch.token and first and is_same:
            return StartAnswer(True, owned=owner is not None)  # stored by an earlier submission of this batch
        return StartAnswer(False, bool(is_same), workflow)

    def _place(self, start: Start) -> None:
        """Store the attributes and headers of a new instance, and let it wait in its queue."""
        for name, value in (start.attributes or {}).items():
            self._run(SQL["set_attribute"], (start.id, name, value, start.created_at))
        if start.headers:
            self._run(SQL["set_headers"], (start.id, json.dumps(start.headers)))
        if start.place is not None:
            self._set_place(start.id, start.place)

    def _set_place(self, instance: str, place: Place) -> None:
        self._run(SQL["set_place"], (*place, instance))

    def _is_first(self, key: object) -> bool:
        """Return whether the key is new in this batch: a repeat within a batch is a twin, not another submission."""
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _insert_instance(self, start: Start, owner: str | None, token: bytes, horizon: int) -> bool:
        values = self._instance_values(start, owner, token, horizon)
        return self._run(SQL["insert_instance"], values).rowcount == 1

    @staticmethod
    def _instance_values(start: Start, owner: str | None, token: bytes, horizon: int) -> tuple[Any, ...]:
        s = start
        return s.id, s.workflow, owner, token, horizon, s.input, s.input_kind, s.deadline, s.created_at

    # --- commits ----------------------------------------------------------------------------------------------------
    def _commit_all(self, batch: Batch, answer: BatchResult, looks: Looks) -> None:
        if len({commit.instance for commit in batch.commits}) < len(batch.commits):
            # They would share a token: a resubmission could not tell them apart. The caller splits the batch, in order.
            raise RefusedValue("two commits of one instance can't share a batch")
        fresh: list[Commit] = []
        appended = self._append([c for c in batch.commits if c.append_only], batch)
        for commit in batch.commits:
            if commit.append_only:
                answer.commits.append(appended or self._is_in(commit, batch, answer.fenced))
                continue
            applied = not answer.fenced and self._advance(commit, batch)
            if applied:
                fresh.append(commit)
            # A refused item that carries our token was applied by an earlier submission of this batch.
            repeated = not applied and self._is_token(commit.instance, batch)
            answer.repeated = answer.repeated or repeated
            answer.commits.append(applied or repeated)
        self._rows.write(fresh)
        # All letters come first: a child may end in the batch in which its retried parent waits for it again.
        answer.letters += [x for c in fresh if c.ending is not None or c.asks for x in self._write_letters(c)]
        for commit in fresh:
            if commit.admits is not None and batch.worker is not None:
                admitted = admit(self._connection, commit.admits, batch.worker, batch.at, batch.workflows)
                answer.admitted = [*answer.admitted, *(admitted or ())]
            for rejoin in commit.rejoins:
                answer.letters += self._rejoin(commit, rejoin)
            for child in commit.replaced:
                self._run(SQL["replace_child"], (child, commit.instance))
            for child in commit.children:
                family = child.parent, child.parent_op, child.is_free
                values = *self._instance_values(child, None, batch.token, self._horizon()), *family
                if self._run(SQL["insert_last_child"], values).rowcount == 1:
                    self._place(child)
        self._dispatcher.waits_changed()
        for commit, applied in zip(batch.commits, answer.commits, strict=True):
            if commit.append_only or not applied:
                continue
            for item in commit.sent:
                answer.sent.append(self._accept(item, batch, answer, looks))
            if commit.opened or commit.looks:
                looks.update(dict.fromkeys(commit.due_looks))

    def _append_all(self, batch: Batch) -> bool:
        """Apply the most common kind of batch in one statement with its fence. False: each item must be checked."""
        return all(commit.append_only for commit in batch.commits) and self._append(batch.commits, batch)

    def _append(self, commits: Sequence[Commit], batch: Batch) -> bool:
        """Add the entries of plain commits, unless the worker is fenced; true if every entry was added."""
        rows = [_entry_values(c, e, batch.worker) for c in commits for e in c.entries]
        return not rows or self._run_many(SQL["append_entry"], rows).rowcount == len(rows)

    def _is_in(self, commit: Commit, batch: Batch, fenced: bool) -> bool:
        """Return whether a plain commit's entries are stored, by this submission or an earlier one."""
        wanted = list(map(entry_values, commit.entries))
        found = self._run(SQL["entries_between"], (commit.instance, wanted[0][0], wanted[-1][0])).fetchall()
        if found == wanted:
            return True
        if not fenced and self._run(SQL["may_append"], (commit.instance, batch.worker, commit.version)).fetchone():
            raise RefusedValue(f"the history of {commit.instance!r} is not as its owner knows it; nothing is stored")
        return False

    def _advance(self, commit: Commit, batch: Batch) -> bool:
        if commit.is_touch:
            values = (batch.token, commit.at, commit.instance, batch.worker, commit.version)
            return self._run(SQL["touch_instance"], values).rowcount == 1
        if commit.continuation is not None:
            return self._continue(commit, commit.continuation, batch)
        final = commit.is_final
        values = (
            batch.token,
            STATUS_CODES[commit.status],
            final or commit.release,
            commit.at,
            commit.at if final else None,
            commit.output,
            commit.error,
            commit.description,
            commit.instance,
            batch.worker,
            commit.version,
        )
        applied = self._run(SQL["advance_instance"], values).rowcount == 1
        if applied and commit.builds is not None:
            self._run(SQL["set_builds"], (commit.builds or None, commit.instance))
        if applied and commit.place is not None:
            self._set_place(commit.instance, commit.place)
        return applied

    def _continue(self, commit: Commit, continuation: Continuation, batch: Batch) -> bool:
        run = continuation.run
        values = (
            batch.token,
            run.workflow not in batch.workflows,
            commit.at,
            commit.description,
            continuation.base,
            run.workflow,
            run.input,
            run.input_kind,
            run.deadline,
            commit.instance,
            batch.worker,
            commit.version,
        )
        if self._run(SQL["continue_instance"], values).rowcount != 1:
            return False
        self._run(SQL["forget_entries"], (commit.instance, continuation.forget))
        return True

    def _was_born(self, instance: str, batch: Batch) -> bool:
        return self._run(SQL["existing_instance"], (instance,)).fetchone()[2] == batch.token

    def _is_token(self, instance: str, batch: Batch) -> bool:
        row = self._run(SQL["instance_token"], (instance,)).fetchone()
        return row is not None and row[0] == batch.token

    # --- letters: what an instance leaves for its parent and its children ---------------------------------------------
    def _write_letters(self, commit: Commit) -> list[Letter]:
        letters: list[Letter] = []
        if commit.ending is not None:
            end = commit.ending
            letters += self._letter(end.parent, end.kind, end.payload, commit.at, end.op)
        for ask in commit.asks:
            if self._run(SQL["open_child"], (ask.child, commit.instance)).fetchone() is None:
                continue  # it has ended, or is not a child of this instance
            told = self._cancel_at_once(ask.child, commit.at, ask, blocked=False)
            letters += self._letter(ask.child, GIVEN_UP, ask.payload, commit.at) if told is None else told
        return letters

    def _letter(self, instance: str, kind: int, payload: bytes, at: int, op: str | None = None) -> list[Letter]:
        cursor = self._run(SQL["insert_letter"], (instance, kind, payload, at, op))
        if cursor.rowcount != 1 or cursor.lastrowid is None:
            return []  # it has ended
        (owner,) = self._run(SQL["owner_of"], (instance,)).fetchone()
        return [Letter(cursor.lastrowid, instance, owner, kind, payload, op)]

    def _rejoin(self, commit: Commit, rejoin: Rejoin) -> list[Letter]:
        if rejoin.reopens:
            self._run(SQL["delete_late_ends"], (commit.instance, rejoin.op))
        row = self._run(SQL["child_to_rejoin"], (rejoin.child, commit.instance, rejoin.op)).fetchone()
        if row is None:
            return []  # it is to be started, or its end is under way
        status, output, error = row
        if status < FIRST_FINAL:
            if rejoin.reopens:
                self._run(SQL["delete_requests_of_kind"], (rejoin.child, GIVEN_UP))
            return []
        if rejoin.reopens and reopen_one(self._connection, rejoin.child, commit.at, RetryAsk().head):
            return []
        kind = ENDED[STATUS_NAMES[status]]
        payload = (output or b"null") if kind == CHILD_COMPLETED else (error or b"{}")
        if rejoin.is_found or (rejoin.reopens and kind != CHILD_COMPLETED):
            kind = CHILD_SPENT
        return self._letter(commit.instance, kind, payload, commit.at, rejoin.op)

    # --- events -----------------------------------------------------------------------------------------------------
    def _copy(self, copy: Event) -> Event:
        """Return an event that is given back as it is to be stored: under its own id if the original was removed."""
        row = self._run(SQL["existing_event"], (copy.source, original_id(copy))).fetchone()
        return copy if row is not None and row[4] in (None, copy.target) else own_copy(copy)

    def _accept(self, item: Accept, batch: Batch, answer: BatchResult, looks: Looks) -> AcceptAnswer:
        event = self._copy(item.event) if item.is_restored else item.event
        first = self._is_first((event.source, event.id))
        cursor = self._run(SQL["insert_event"], event_values(event, batch.token))
        if cursor.rowcount != 1:
            seq, token, *stored = self._run(SQL["existing_event"], (event.source, event.id)).fetchone()
            if token != batch.token or not first:
                return self._duplicate(seq, item, stored, batch)
        else:
            seq = cursor.lastrowid
            assert seq is not None
            record(self._connection, [event.target or ""], event.accepted_at, "answer", item.answered_by)
        if item.is_expired(batch.at):
            return AcceptAnswer(seq, False, [], [])
        matched = self._dispatcher.waits_for(event, seq)
        if matched:
            answer.offers += self._deliver(event, seq, matched, batch, answer.fenced, looks)
        return AcceptAnswer(seq, False, matched, self._trigger(item, seq, batch, answer.fenced))

    def _deliver(
        self, event: Event, seq: int, matched: list[Matched], batch: Batch, fenced: bool, looks: Looks
    ) -> list[Offer]:
        """Note who gets an event. Return the offers that can be made at once; the other waits look for what they get.

        An event is the oldest that a wait can take if nothing else is on its way to the instance: from the moment a
        wait is stored, each event that it can take is noted here, and stays noted until the instance has dealt with it.
        """
        offers: list[Offer] = []
        stored: Event | None = None
        for wait in matched:
            if fenced or batch.worker is None or not self._can_take(wait, batch.worker, batch):
                looks[wait.instance, wait.op] = None
                continue
            stored = stored or as_stored(event, seq)
            offers.append(Offer(wait.instance, wait.op, batch.worker, stored, (wait.spec, wait.model)))
        receivers = dict.fromkeys(wait.instance for wait in matched)
        self._busy.update(receivers)
        self._run_many(SQL["insert_delivery"], [(instance, seq) for instance in receivers])
        return offers

    def _can_take(self, wait: Matched, worker: str, batch: Batch) -> bool:
        """Return whether a wait can be offered an event at once. If its instance is free, claim it."""
        found = self._dispatcher.undisturbed.get((wait.instance, wait.op))
        if found is None or wait.instance in self._busy:
            return False
        owner, workflow = found
        if owner == worker:
            return True
        may_claim = self._room > 0 and workflow in batch.workflows
        if not may_claim or self._run(SQL["claim_receiver"], (worker, wait.instance)).rowcount != 1:
            return False
        self._room -= 1
        return True

    def _duplicate(self, seq: int, item: Accept, stored: list[Any], batch: Batch) -> AcceptAnswer:
        differs = not item.is_restored and self._opener.is_other(item.event, *stored)
        if differs:
            self._run(SQL["set_differed"], (batch.at, seq))
        return AcceptAnswer(seq, True, [], [], differs)

    def _trigger(self, item: Accept, seq: int, batch: Batch, fenced: bool) -> list[Started]:
        """Start the workflows that this event triggers, once per event; the event itself counts as consumed."""
        started: list[Started] = []
        for workflow, timeout in self._triggers_of(item.event.type):
            if workflow in item.unfit or item.event.target is not None:
                continue
            instance = triggered_id(workflow, item.event.source, item.event.id)
            at = item.arrives_at or batch.at
            start = Start(instance, workflow, item.payload, EVENT, at, None if timeout is None else at + timeout)
            owner = batch.worker if workflow in batch.workflows and not fenced else None
            is_new = self._insert_instance(start, owner, batch.token, seq)
            if is_new:
                self._run(SQL["insert_consumed"], (instance, seq, STARTED_BY))
            if is_new or self._was_born(instance, batch):
                started.append(Started(instance, workflow, owner, at, item.payload, EVENT, start.deadline))
        return started

    def _triggers_of(self, type: str) -> Sequence[tuple[str, int | None]]:
        found = self._triggers.get(type)
        if found is None:
            stored = [row for p in patterns_of(type) for row in self._run(SQL["triggers_of_type"], (p,)).fetchall()]
            found = highest_versions(stored)
            self._triggers[type] = found
        return found

    # --- requests ---------------------------------------------------------------------------------------------------
    def _request(self, request: Request, answer: BatchResult) -> RequestAnswer:
        row = self._run(SQL["request_target"], (request.instance,)).fetchone()
        if row is None:
            return RequestAnswer(None, None)
        status, owner = row
        if status >= FIRST_FINAL:
            return RequestAnswer(STATUS_NAMES.get(status, "blocked"), None)
        if request.kind == CANCEL:
            told = self._cancel_at_once(request.instance, request.at, request, blocked=True)
            if told is not None:
                record(self._connection, [request.instance], request.at, request.verb, request.who)
                answer.letters += told
                return RequestAnswer("cancelled", None, took=True)
        waiting = (request.instance, request.at)
        if request.kind == HASTEN and not self._run(SQL["waits_for_attempt"], waiting).fetchone():
            return RequestAnswer(STATUS_NAMES.get(status, "blocked"), owner)
        values = (request.instance, request.kind, request.payload, request.at)
        number = self._run(SQL["insert_request"], values).lastrowid
        record(self._connection, [request.instance], request.at, request.verb, request.who)
        return RequestAnswer(STATUS_NAMES.get(status, "blocked"), owner, number or 0, took=True)

    def _cancel_at_once(self, instance: str, at: int, by: Ask | Request, *, blocked: bool) -> list[Letter] | None:
        """Cancel an instance that never ran, or a `blocked` one: neither has code that could clean up.

        Return the letters to its parent and to the children it awaited; None if it can't be cancelled at once.
        """
        error = by.cancellation
        if not self._run(SQL["cancel_at_once"], (at, error, instance, blocked)).rowcount:
            return None
        for name in ("delete_deliveries", "delete_requests", "delete_attempts", "delete_wait_keys", "delete_waits"):
            self._run(SQL[name], (instance,))
        parent, op = self._run(SQL["parent_of"], (instance,)).fetchone()
        letters = [] if parent is None else self._letter(parent, CHILD_CANCELLED, error, at, op)
        for (child,) in self._run(SQL["awaited_children"], (instance,)).fetchall():
            letters += self._letter(child, GIVEN_UP, by.payload, at)
        return letters
