"""Finds waits for an accepted event, and starts the workflows it triggers. After its commit; a sweep repeats it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from romancy.core.clock import stopwatch
from romancy.core.filters import event_anchors, event_key
from romancy.core.inputs import EVENT
from romancy.core.model import Event
from romancy.core.patterns import patterns_of
from romancy.storage.batch import Accept, Batch, Matched, Offer, Started
from romancy.storage.errors import TookTooLong
from romancy.storage.opener import Opener
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.shapes import Shapes
from romancy.storage.rows import MAX_SHAPES, UNINDEXED, as_stored, to_event, triggered_id

STALE = 2_000_000
"""Microseconds after which an event that was not dispatched counts as left behind."""
REST = 60.0
"""Seconds before the sweep retries an event whose dispatch took too long."""
MOST_TAKEN = 500
"""Instances without an owner that an event brings to this worker. If it wakes more, other workers get their share."""
_logger = logging.getLogger("romancy")


@dataclass(slots=True)
class Dispatched:
    """The result of dispatching one event."""

    matched: list[Matched] = field(default_factory=lambda: [])
    started: list[Started] = field(default_factory=lambda: [])


@dataclass(slots=True)
class Outcome:
    """The result of dispatching several events, and the owners to notify; None means any free worker."""

    by_seq: dict[int, Dispatched]
    owners: set[str | None] = field(default_factory=lambda: set())
    mine: list[tuple[str, str]] = field(default_factory=lambda: [])
    """(instance, wait) of this worker's waits that look for the event they get."""
    offers: list[tuple[Offer, int | None]] = field(default_factory=lambda: [])
    """The events that its other waits get, with the xid if no earlier event can become visible any more."""


class Dispatcher:
    """Finds waits for events."""

    def __init__(self, connections: Connections, shapes: Shapes, opener: Opener) -> None:
        self._connections, self._shapes, self._opener = connections, shapes, opener
        self._resting: dict[int, float] = {}
        """The time until which the sweep skips an event."""

    async def dispatch(self, items: Sequence[tuple[int, Accept]], batch: Batch) -> Outcome:
        """Index events, leave hints for the waits that they may fit, and start the workflows that they trigger."""
        types = sorted({pattern for type in {item.event.type for _, item in items} for pattern in patterns_of(type)})
        while True:
            starts = [start for seq, item in items for start in self._starts(seq, item, batch)]
            given = self._shapes.assumed(types) | _start_columns(starts) | await self._keys(items)
            given |= {"seqs": [seq for seq, _ in items], "kind": EVENT}
            given |= {"worker": batch.worker, "token": batch.token, "at": batch.at}
            given |= {"workflows": list(batch.workflows), "room": min(batch.room, len(items) + MOST_TAKEN)}
            rows = await self._connections.do("dispatch", **given)
            if not rows[0]["may"]:  # the events are stored; newer processes dispatch them
                return Outcome({seq: Dispatched() for seq, _ in items})
            if rows[0]["ok"]:
                known = {start.id: (seq, start) for seq, start in starts}
                return _outcome(rows, dict(items), known, batch, self._opener)
            await self._shapes.refresh(types)  # a shape or trigger was added: compute again

    async def _keys(self, items: Sequence[tuple[int, Accept]]) -> dict[str, Any]:
        found: list[tuple[int, int, bytes]] = []
        for seq, item in items:
            event = item.event
            shapes = self._shapes.shapes(event.type)
            data = self._opener.matchable(event) if shapes else None
            for fields, number in shapes.items():
                key = event_key(fields, event.subject, event.source, data)
                if key is not None:
                    found.append((seq, number, self._opener.key(key)))
            if len(shapes) >= MAX_SHAPES:
                found += [(seq, UNINDEXED, anchor) for anchor in await self._anchors(event, data)]
        return _columns(("key_seqs", "key_shapes", "key_keys"), found)

    async def _anchors(self, event: Event, data: Any) -> Collection[bytes]:
        """Return the keys of the waits without a shape of their own that the event may fit."""
        anchors = event_anchors(event.subject, event.source, data)
        if anchors is None:
            # Too many values: compare the event with the existing waits. Later waits look for the event themselves.
            rows = await self._connections.ask("anchored_waits", type=event.type, shape=UNINDEXED)
            fitting = ((key, self._opener.filter_of(spec)) for key, spec in rows)
            return {key for key, narrow in fitting if narrow.accepts(event.subject, event.source, data)}
        return [self._opener.key(anchor) for anchor in anchors]

    def _starts(self, seq: int, item: Accept, batch: Batch) -> list[tuple[int, Started]]:
        """Return the instances that this event starts, once per event."""
        event, at = item.event, item.arrives_at or batch.at
        if event.target is not None:
            return []
        return [
            (
                seq,
                Started(
                    triggered_id(workflow, event.source, event.id),
                    workflow,
                    batch.worker if workflow in batch.workflows else None,
                    at,
                    item.payload,
                    EVENT,
                    None if timeout is None else at + timeout,
                ),
            )
            for workflow, timeout in self._shapes.starting(event.type)
            if workflow not in item.unfit
        ]

    async def sweep(self, worker: str | None, workflows: Collection[str], now: int) -> Outcome | None:
        """Dispatch events whose process died between accepting and dispatching them."""
        rows = await self._connections.ask("left_undispatched", age=STALE)
        if not rows:
            return None
        items: list[tuple[int, Accept]] = []
        self._resting = {seq: until for seq, until in self._resting.items() if until > stopwatch()}
        for *values, unfit in rows:
            event = to_event(tuple(values))
            if event.seq not in self._resting:
                items.append((event.seq, Accept(event, self._opener.packed(event), json.loads(unfit))))
        return await self._sweep(items, Batch(worker, workflows, os.urandom(16), now)) if items else None

    async def _sweep(self, items: Sequence[tuple[int, Accept]], batch: Batch) -> Outcome:
        """Dispatch all events, or in halves: one that takes too long on its own must not delay the others."""
        try:
            return await self.dispatch(items, batch)
        except TookTooLong as error:
            if len(items) == 1:
                [(seq, item)] = items
                self._resting[seq] = stopwatch() + REST
                _logger.warning("event %r can't be dispatched (%s); trying again in %g s", item.event.id, error, REST)
                raise
        middle = len(items) // 2
        first, second = await self._sweep(items[:middle], batch), await self._sweep(items[middle:], batch)
        return Outcome(first.by_seq | second.by_seq, first.owners | second.owners, first.mine + second.mine)


def _outcome(
    rows: Sequence[Any],
    items: dict[int, Accept],
    starts: dict[str, tuple[int, Started]],
    batch: Batch,
    opener: Opener,
) -> Outcome:
    outcome = Outcome({seq: Dispatched() for seq in items})
    stored: dict[int, Event] = {}
    for row in rows:
        instance = row["instance"]
        if row["what"] == 1:
            seq: int = row["seq"]
            if row["shape"] == UNINDEXED and not accepts(opener, row["spec"], items[seq].event):
                continue
            outcome.by_seq[seq].matched.append(Matched(instance, row["op"], row["model"], row["spec"]))
            if row["owner"] != batch.worker or batch.worker is None:
                outcome.owners.add(row["owner"])
            elif row["is_oldest"]:
                event = stored.get(seq) or stored.setdefault(seq, as_stored(items[seq].event, seq))
                offer = Offer(instance, row["op"], batch.worker, event, (row["spec"], row["model"]))
                outcome.offers.append((offer, row["xid"] if row["settled"] else None))
            else:
                outcome.mine.append((instance, row["op"]))
        elif row["what"] == 2:
            seq, start = starts[instance]
            start.owner = row["owner"] if row["owner"] == batch.worker else None
            outcome.by_seq[seq].started.append(start)
            if start.owner is None:
                outcome.owners.add(None)
    for dispatched in outcome.by_seq.values():
        # In the order that does not depend on how the server plans the statement; usually they are already in it.
        dispatched.matched.sort(key=lambda wait: (wait.instance, wait.model, wait.spec))
    return outcome


def accepts(opener: Opener, spec: bytes, event: Event) -> bool:
    """Return whether a wait's filter accepts an event, for a filter without an index."""
    return opener.filter_of(spec).accepts(event.subject, event.source, opener.matchable(event))


def _start_columns(starts: Sequence[tuple[int, Started]]) -> dict[str, Any]:
    names = ("new_seqs", "new_ids", "new_workflows", "new_mine", "new_inputs", "new_deadlines", "new_ats")
    rows = [(q, s.id, s.workflow, s.owner is not None, s.input, s.deadline, s.created_at) for q, s in starts]
    return _columns(names, rows)


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return dict(zip(names, columns, strict=True))
