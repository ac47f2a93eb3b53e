"""Converts a batch to columns: which pieces of the group commit it needs, and their values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from romancy.core.admission import Admission
from romancy.core.filters import Filter
from romancy.core.published import Publication
from romancy.core.retrial import RetryAsk
from romancy.storage.batch import GIVEN_UP, STATUS_CODES, Accept, Batch, Commit, Consumption, Start
from romancy.storage.emissions import COLUMNS as EMITTED
from romancy.storage.opener import Opener
from romancy.storage.postgres.places import beginning
from romancy.storage.postgres.shapes import Shapes
from romancy.storage.rows import (
    MAX_SHAPES,
    UNINDEXED,
    attempt_values,
    entry_values,
    event_values,
    likeness,
    shown,
    suspect_values,
)

_NAMES: dict[str, str] = {
    "starts": "start_ids start_workflows start_inputs start_kinds start_deadlines start_ats start_mine start_borns",
    "children": "child_ids child_workflows child_inputs child_kinds child_deadlines child_ats child_mine child_parents "
    "child_ops child_free",
    "touches": "ids versions ats",
    "steps": "ids versions ats statuses free outputs errors descriptions",
    "runs": "ids versions ats statuses free outputs errors descriptions next_workflows next_inputs next_kinds "
    "next_deadlines next_bases forgets builds next_queues next_keys next_priorities",
    "queued": "queued_ids queued_workflows queued_inputs queued_kinds queued_deadlines queued_ats queued_parents "
    "queued_ops queued_free queued_queues queued_keys queued_priorities queued_borns",
    "queued_last": "later_ids later_workflows later_inputs later_kinds later_deadlines later_ats later_parents "
    "later_ops later_free later_queues later_keys later_priorities",
    "entries": "entry_instances entry_ns entry_kinds entry_ops entry_ats entry_inputs entry_payloads entry_events",
    "appended": "added_instances added_ns added_kinds added_ops added_ats added_inputs added_payloads added_events",
    "consumed": "taken_instances taken_events taken_ops",
    "marks": "mark_instances mark_types mark_shapes mark_keys mark_models mark_xids mark_seqs",
    "given_back": "back_instances back_events",
    "misfits": "misfit_instances misfit_models misfit_events misfit_ops misfit_errors",
    "closed": "closed_instances closed_ops",
    "hints": "hint_instances hint_events",
    "opened": "wait_instances wait_ops wait_dues wait_borns wait_sinces wait_models wait_specs wait_locations wait_ats",
    "keys": "key_types key_shapes key_keys key_instances key_ops key_follows key_alike",
    "attempts": "attempt_instances attempt_ops attempt_ns attempt_firsts attempt_dues attempt_errors attempt_progress "
    "attempt_crashes attempt_started",
    "suspects": "suspect_instances suspect_ops suspect_ns suspect_firsts suspect_dues suspect_errors suspect_progress "
    "suspect_crashes suspect_started suspect_sinces suspect_tried suspect_tried_alone suspect_alone suspect_runs "
    "suspect_are_alone suspect_culprits",
    "trials": "trial_instances trial_culprits trial_ats trial_sinces trial_tried trial_alone",
    "attempts_done": "tried_instances tried_ops",
    "requests_done": "asked_instances asked_ids",
    "letters": "letter_senders letter_instances letter_kinds letter_payloads letter_ats letter_tokens letter_ops",
    "rejoins": "kin_parents kin_children kin_ops kin_ats kin_tokens kin_reopens kin_found",
    "replaced": "replaced_parents replaced_children",
    "last_children": "last_ids last_workflows last_inputs last_kinds last_deadlines last_ats last_parents last_ops "
    "last_free",
    "successors": "slot_enders slot_queues slot_versions slot_turns slot_reserved slot_nexts",
    "views": "view_instances view_values view_ats",
    "attributes": "attribute_instances attribute_names attribute_values attribute_ats",
    "removed": "removed_instances removed_names",
    "unshown": "unshown_instances unshown_views unshown_others",
    "first_attributes": "first_instances first_names first_values first_ats",
    "first_acts": "starter_instances starter_ats starters",
    "first_headers": "carriers carried",
    "headers": "later_carriers later_carried",
    "events": "event_sources event_ids event_types event_subjects event_times event_targets event_attrs event_datas "
    "event_accepted event_expires event_unfit event_senders event_origins",
    "emitted": " ".join(f"emit_{name}s" for name in EMITTED),
    "answers": "answer_sources answer_ids answer_instances answer_ats answerers",
}
_COLUMNS = {piece: names.split() for piece, names in _NAMES.items()}

Settled = Callable[[str, Consumption], "int | None"]
"""Returns the xid of an event that an instance took, if all earlier events were visible when it was found."""


class Columns:
    """The pieces and values that a batch writes."""

    def __init__(self, batch: Batch, shapes: Shapes, settled: Settled, opener: Opener) -> None:
        self.pieces: list[str] = []
        self.given: dict[str, Any] = {"worker": batch.worker, "token": batch.token, "at": batch.at}
        self._shapes, self._settled, self._key = shapes, settled, opener.key
        if batch.moved:
            self.pieces.append("moved")
            self.given["moved"] = list(batch.moved)
        starts = _first_of_each(batch.starts)
        self._described = [s for s in starts if s.attributes]
        """The starts that have attributes."""
        self._carried = [s for s in starts if s.headers]
        """The starts that have headers."""
        named = [(s.id, s.created_at, s.who) for s in starts if s.who is not None]
        queued = [s for s in starts if s.place is not None]
        if queued:
            self._add("queued", [(*_queued(s), s.since) for s in queued])
            starts = [s for s in starts if s.place is None]
        self._add("starts", [(*_start(s), s.since) for s in starts if s.parent is None])
        # Without a worker, nobody owns a parent: such starts are refused.
        self._add("children", [(*_start(s), *_family(s)) for s in starts if s.parent is not None])
        # Without a worker, commits are refused: only a worker can have any.
        commits = sorted(batch.commits, key=lambda c: c.instance) if batch.worker is not None else []
        plain = [c for c in commits if c.append_only]
        if plain:
            self._add_plain(plain)
        if len(plain) < len(commits):
            self._add_commits([c for c in commits if not c.append_only] if plain else commits, batch.workflows)
        if self._described:
            self._add("first_attributes", [row for s in self._described for row in _first_attributes(s)])
        if named:
            self._add("first_acts", named)
        if self._carried:
            self._add("first_headers", [(s.id, json.dumps(s.headers)) for s in self._carried if s.headers])
        self._add("events", _events(batch, bool(commits)))
        if any(a.answered_by is not None for a in batch.accepts):
            self._add("answers", _answers(batch.accepts))
        if batch.moved:
            self.pieces.append("left")

    def _add(self, piece: str, rows: Iterable[Sequence[Any]]) -> None:
        columns = list(zip(*rows, strict=True))
        if columns:
            self.pieces.append(piece)
            # A column without values is sent as an empty array: `unnest` fills it with NULL, and nothing is encoded.
            columns = [column if column.count(None) < len(column) else () for column in columns]
            self.given.update(zip(_COLUMNS[piece], columns, strict=True))

    def _add_plain(self, commits: list[Commit]) -> None:
        self._add("appended", _entries(commits))
        self.given["plain_ids"] = [c.instance for c in commits]
        self.given["plain_versions"] = [c.version for c in commits]
        self.given["plain_firsts"] = [c.entries[0].n for c in commits]

    def _add_commits(self, commits: list[Commit], workflows: Collection[str]) -> None:
        if all(c.is_touch for c in commits):
            self._add("touches", [(c.instance, c.version, c.at) for c in commits])
        elif all(c.continuation is None and c.builds is None and c.place is None for c in commits):
            self._add("steps", map(_step, commits))
        else:
            self._add("runs", [_run(c, workflows) for c in commits])
        self._add("entries", _entries(commits))
        if any(c.is_final for c in commits):
            self.pieces.append("ended")
            self._add_successors(commits, workflows)
        self._add("given_back", [(c.instance, event) for c in commits for event in c.given_back])
        waiting = [c for c in commits if c.changes_waits]
        if waiting:
            self._add_waits(waiting)
        self._add_rest(commits)

    def _add_successors(self, commits: list[Commit], workflows: Collection[str]) -> None:
        rows = [_successor(c.instance, c.admits) for c in commits if c.admits is not None]
        if rows:
            self._add("successors", rows)
            self.given["workflows"] = list(workflows)

    def _add_waits(self, commits: list[Commit]) -> None:
        self._add("consumed", [(c.instance, t.event, t.wait.op) for c in commits for t in c.consumed])
        # One that ends needs no marks, and all its deliveries are deleted.
        going_on = [c for c in commits if not c.is_final]
        self._add("marks", [mark for c in going_on for t in c.consumed for mark in self._mark(c, t)])
        self._add("misfits", [(c.instance, m.model, m.event, m.op, shown(m.error)) for c in commits for m in c.misfits])
        self._add("closed", [(c.instance, op) for c in commits for op in c.closed])
        self._add("hints", [(c.instance, seq) for c in going_on for seq in c.seen_deliveries])
        self._add("opened", _opened(commits))
        self._add("keys", [key for c in commits for key in self._keys(c)])
        unlooked = [c.instance for c in commits if c.looks or any(wait.types for wait in c.opened)]
        if unlooked:
            self.pieces.append("unlooked")
            self.given["unlooked"] = unlooked

    def _keys(self, commit: Commit) -> Iterable[tuple[Any, ...]]:
        for wait in commit.opened:
            for event_type in wait.types:
                shape = self._shapes.number(event_type, wait.filter)
                key = self._key(self._unindexed_key(event_type, wait.filter) if shape == UNINDEXED else wait.filter.key)
                yield event_type, shape, key, commit.instance, wait.op, wait.follows, likeness(wait)

    def _unindexed_key(self, event_type: str, narrow: Filter) -> bytes:
        """Return its anchor if the type has the maximum number of shapes: only then do events look for anchors."""
        shapes = self._shapes.shapes(event_type)
        return narrow.anchor(shapes.keys()) if len(shapes) >= MAX_SHAPES else b""

    def _mark(self, commit: Commit, taken: Consumption) -> Iterable[tuple[Any, ...]]:
        """Mark everything up to this event as taken by the wait, unless the wait has a beginning of its own."""
        shape = self._shapes.number(taken.type, taken.wait.filter)
        xid = self._settled(commit.instance, taken)
        if taken.wait.since is None and shape >= 0 and xid is not None:
            key = self._key(taken.wait.filter.key) if shape else b""
            yield commit.instance, taken.type, shape, key, taken.wait.model, xid, taken.event

    def _add_rest(self, commits: list[Commit]) -> None:
        self._add(
            "attempts",
            [(c.instance, *attempt_values(a)) for c in commits for a in c.attempts if a.suspicion is None],
        )
        suspects = [(c, a, a.suspicion) for c in commits for a in c.attempts if a.suspicion is not None]
        self._add("suspects", [(c.instance, *suspect_values(a, known)) for c, a, known in suspects])
        trials = [(c.instance, t) for c in commits for t in c.trials]
        self._add("trials", [(id, t.culprit, t.at, t.since, t.tried_alone, t.alone) for id, t in trials])
        self._add("attempts_done", [(c.instance, op) for c in commits for op in c.attempts_done])
        self._add("letters", [letter for c in commits for letter in _letters(c, self.given["token"])])
        self._add_rejoins(commits)
        self._add("replaced", [(c.instance, child) for c in commits for child in c.replaced])
        children = [child for c in commits for child in c.children]
        self._described += [child for child in children if child.attributes]
        self._carried += [child for child in children if child.headers]
        self._add("last_children", [(*_start(s)[:-1], *_family(s)) for s in children if s.place is None])
        self._add("queued_last", [_queued(s) for s in children if s.place is not None])
        self._add("emitted", [row.values for c in commits for row in c.emitted])
        self._add("requests_done", [(c.instance, id) for c in commits for id in c.requests_done])
        shown = [(c, c.publication) for c in commits if c.publication is not None]
        if shown:
            self._add_publications(shown)
        self._add("headers", [(c.instance, json.dumps(c.headers)) for c in commits if c.headers is not None])

    def _add_publications(self, shown: list[tuple[Commit, Publication]]) -> None:
        self._add("views", [(c.instance, p.view, c.at) for c, p in shown if p.view is not None])
        changes = [(c.instance, name, value, p.created_at) for c, p in shown for name, value in p.attributes.items()]
        self._add("attributes", [change for change in changes if change[2] is not None])
        self._add("removed", [change[:2] for change in changes if change[2] is None])
        whole = [(c.instance, p) for c, p in shown if p.is_whole]
        self._add("unshown", [(id, p.view is None, json.dumps([*p.attributes])) for id, p in whole])

    def _add_rejoins(self, commits: list[Commit]) -> None:
        token: bytes = self.given["token"]
        rows = [
            (c.instance, r.child, r.op, c.at, _letter_token(token, c.instance, r.child), r.reopens, r.is_found)
            for c in commits
            for r in c.rejoins
        ]
        if rows:
            self._add("rejoins", rows)
            self.given["retry_head"] = RetryAsk().head


def _first_of_each(starts: Sequence[Start]) -> list[Start]:
    """Return one start per id, by id: of twins in a batch, the first one counts."""
    first: dict[str, Start] = {}
    for start in starts:
        first.setdefault(start.id, start)
    return sorted(first.values(), key=lambda s: s.id)


def _answers(accepts: Sequence[Accept]) -> list[tuple[Any, ...]]:
    """Return who answers. Of twins in a batch, the first one counts, whether or not it has a name."""
    first: dict[tuple[str, str], Accept] = {}
    for item in accepts:
        first.setdefault((item.event.source, item.event.id), item)
    named = [(item.event, item.answered_by) for item in first.values() if item.answered_by is not None]
    return [(e.source, e.id, e.target, e.accepted_at, who) for e, who in named]


def _start(s: Start) -> tuple[Any, ...]:
    return s.id, s.workflow, s.input, s.input_kind, s.deadline, s.created_at, s.mine


def _queued(s: Start) -> tuple[Any, ...]:
    return *_start(s)[:-1], *_family(s), *(s.place or ())


def _first_attributes(s: Start) -> Iterable[tuple[Any, ...]]:
    return [(s.id, name, value, s.created_at) for name, value in (s.attributes or {}).items()]


def _family(s: Start) -> tuple[Any, ...]:
    return s.parent, s.parent_op, s.is_free


def _successor(ender: str, made: Admission) -> tuple[Any, ...]:
    [id] = made.ids
    return ender, made.queue, made.version, made.turn, made.reserved, id


def _entries(commits: list[Commit]) -> list[tuple[Any, ...]]:
    return [(c.instance, *entry_values(e)) for c in commits for e in c.entries]


def _step(c: Commit) -> tuple[Any, ...]:
    free = c.release or c.is_final
    return (c.instance, c.version, c.at, STATUS_CODES[c.status], free, c.output, c.error, shown(c.description))


def _run(c: Commit, workflows: Collection[str]) -> tuple[Any, ...]:
    """Return the columns of a commit in a batch in which some instance continues as new, is unfit or becomes queued."""
    if c.continuation is None:
        return *_step(c), None, None, None, None, None, None, c.builds, *(c.place or (None, None, None))
    id, version, at, status, _, *rest = _step(c)
    run, free = c.continuation.run, c.continuation.run.workflow not in workflows
    next_run = run.workflow, run.input, run.input_kind, run.deadline, c.continuation.base, c.continuation.forget
    return id, version, at, status, free, *rest, *next_run, None, None, None, None


def _letters(c: Commit, token: bytes) -> Iterable[tuple[Any, ...]]:
    if c.ending is not None:
        end = c.ending
        yield c.instance, end.parent, end.kind, end.payload, c.at, _letter_token(token, c.instance, end.parent), end.op
    for ask in c.asks:
        yield c.instance, ask.child, GIVEN_UP, ask.payload, c.at, _letter_token(token, c.instance, ask.child), None


def _letter_token(batch: bytes, sender: str, receiver: str) -> bytes:
    """Return a token for one letter. The parts of a batch that was split share its token, so a number is not enough."""
    return hashlib.blake2b(f"{sender}\0{receiver}".encode(), key=batch, digest_size=16).digest()


def _opened(commits: list[Commit]) -> list[tuple[Any, ...]]:
    return [
        (
            c.instance,
            w.op,
            w.due,
            *beginning(w.since),
            w.model,
            w.spec,
            w.location,
            w.created_at,
        )
        for c in commits
        for w in c.opened
    ]


def senders(batch: Batch) -> list[tuple[str | None, Accept]]:
    """Return every event of a batch with the instance that sends it, in order."""
    sent: list[tuple[str | None, Accept]] = [(c.instance, item) for c in batch.commits for item in c.sent]
    return sent + [(None, item) for item in batch.accepts]


def _events(batch: Batch, commits: bool) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for sender, item in senders(batch):
        if sender is None or commits:
            values = event_values(item.event, batch.token)
            unfit = json.dumps(list(item.unfit)) if item.unfit else None
            rows.append((*values[:8], *values[9:11], unfit, sender, item.event.origin))
    return rows
