"""Applies a batch: the group commit in one statement, then what must follow it, with fresh snapshots.

Everything has a key (version and token, source and id, token and place). After an outage, parts of a batch may be done,
or still be under way on a lost connection. If it is submitted again, it is answered as if it were the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from romancy.core.given_back import original_id, own_copy
from romancy.core.model import Event
from romancy.core.same_event import is_same_event
from romancy.storage.batch import (
    CANCEL,
    FIRST_FINAL,
    HASTEN,
    STATUS_NAMES,
    Accept,
    AcceptAnswer,
    Ask,
    Batch,
    BatchResult,
    Commit,
    Letter,
    Offer,
    Request,
    RequestAnswer,
    StartAnswer,
)
from romancy.storage.errors import RefusedValue, TransientError
from romancy.storage.instances import Admitted
from romancy.storage.opener import Opener
from romancy.storage.postgres.columns import Columns, senders
from romancy.storage.postgres.connection import Connections
from romancy.storage.postgres.dispatch import Dispatched, Dispatcher, Outcome
from romancy.storage.postgres.event_lookup import Looker
from romancy.storage.postgres.reads import findable, to_row
from romancy.storage.postgres.retention import Interests
from romancy.storage.postgres.shapes import Shapes
from romancy.storage.rows import entry_values, packed_attrs

Tell = Callable[[set["str | None"], bool, bool], None]
"""Which workers to wake (None: any free one), and whether an instance ended, or emitted something."""


class BatchWriter:
    """Applies batches."""

    def __init__(self, connections: Connections, tell: Tell, opener: Opener) -> None:
        self._connections, self._tell, self._opener = connections, tell, opener
        self.shapes = Shapes(connections, opener)
        self.looker = Looker(connections, opener)
        self.interests = Interests(connections)
        self.dispatcher = Dispatcher(connections, self.shapes, opener)

    def forget(self) -> None:
        """Clear the caches, because they are no longer valid."""
        self.shapes.forget()
        self.looker.forget()
        self.interests.forget()

    async def apply(self, batch: Batch) -> BatchResult:
        if await self._append_one(batch):
            return BatchResult(commits=[True])
        return await self.conclude(batch, await self._write(batch))

    async def conclude(self, batch: Batch, row: Any) -> BatchResult:
        """Do what must follow the group commit, and answer each item. `row`: its answer."""
        answer = BatchResult()
        answer.fenced = batch.worker is not None and row is not None and not row["alive"]
        if batch.starts:
            answer.starts = await self._answer_starts(batch, row, answer.fenced)
        if batch.commits:
            answer.commits = await self._answer_commits(batch, row, answer)
        answer.letters = _letters(row)
        answer.admitted = _admitted(row)
        looks: dict[tuple[str, str | None], None] = dict.fromkeys(batch.looks)
        outcome = await self._accept(batch, row, answer)
        answer.offers = self._offers(outcome, looks)
        looks.update(dict.fromkeys(outcome.mine))
        outcome.owners |= {letter.owner for letter in answer.letters}
        outcome.owners |= {None for one in answer.admitted if not one.is_mine}
        asks = [(ask, c.at) for c, ok in zip(batch.commits, answer.commits, strict=True) if ok for ask in c.asks]
        if asks:
            outcome.owners |= await self._cancel_at_once([(ask.child, at, ask) for ask, at in asks], blocked=False)
        if batch.requests:
            answer.requests = await self._request(batch, outcome.owners)
        for commit, applied in zip(batch.commits, answer.commits, strict=True):
            if applied and (commit.opened or commit.looks):
                looks.update(dict.fromkeys(commit.due_looks))
        if looks and batch.worker is not None and not answer.fenced:
            fresh = (row.get("unlooked") if row is not None else None) or ()
            alive, offers = await self.looker.look(looks, fresh, batch.worker, batch.at)
            answer.offers += offers
            answer.fenced = not alive
        self._announce(batch, answer, outcome.owners)
        return answer

    async def move(self, batch: Batch) -> BatchResult | None:
        """Apply a batch of starts and events from the inbox. None: not all of them are there any more."""
        row = await self._write(batch)
        if not row["moved"]:
            return None
        answer = BatchResult()
        if batch.starts:
            answer.starts = await self._answer_starts(batch, row, fenced=False)
        outcome = await self._accept(batch, row, answer)
        self._announce(batch, answer, outcome.owners)
        return answer

    async def _append_one(self, batch: Batch) -> bool:
        """Store a batch that is a single entry; return whether it was stored."""
        commit = batch.commits[0] if len(batch.commits) == len(batch) == 1 else None
        if commit is None or not commit.append_only or len(commit.entries) > 1 or batch.worker is None:
            return False
        [entry] = commit.entries
        given = {
            "worker": batch.worker,
            "instance": commit.instance,
            "version": commit.version,
            "n": entry.n,
            "kind": entry.kind,
            "op": entry.op,
            "at": entry.at,
            "input": entry.input,
            "payload": entry.payload,
            "event": entry.event,
        }
        return bool(await self._connections.do_timed("append_one", **given))

    async def _write(self, batch: Batch) -> Any:
        """Run the group commit. None: there is nothing to write."""
        if len({commit.instance for commit in batch.commits}) < len(batch.commits):
            raise RefusedValue("two commits of one instance can't share a batch")  # the caller splits it, in order
        born = [child.id for commit in batch.commits for child in commit.children]
        if born and len({*born, *(start.id for start in batch.starts)}) < len(born) + len({s.id for s in batch.starts}):
            # What belongs to an instance, such as its headers, would be written for each of them.
            raise RefusedValue("two starts of one instance, one of them by a step, can't share a batch")
        await self.shapes.learn((wait for commit in batch.commits for wait in commit.opened), batch.at)
        await self.interests.learn(batch.commits, batch.at)
        restored = [item for commit in batch.commits for item in commit.sent if item.is_restored]
        if restored:
            await self._rename_copies(restored)
        columns = self.columns(batch)
        if not columns.pieces and (batch.looks or batch.worker is None):
            return None
        statement = self._connections.statements.write(columns.pieces)
        [row] = await self._connections.write_timed(statement, columns.given)
        return row

    async def _rename_copies(self, items: Sequence[Accept]) -> None:
        """Give copies ids of their own if their originals were removed. Else the originals can be taken again.

        An original is kept for an instance that can be retried. It may be removed between this and the commit only by a
        limit; then its first copy has its id, and is found by a repeated submission as ours.
        """
        events = [item.event for item in items]
        given = {"sources": [event.source for event in events], "ids": [original_id(event) for event in events]}
        rows = await self._connections.do("targets_of_events", **given)
        targets: dict[tuple[str, str], str | None] = {(source, id): target for source, id, target in rows}
        for item in items:
            known_as = item.event.source, original_id(item.event)
            if known_as not in targets or targets[known_as] not in (None, item.event.target):
                item.event = own_copy(item.event)

    def columns(self, batch: Batch) -> Columns:
        return Columns(batch, self.shapes, self.looker.settled, self._opener)

    # --- starts and commits -----------------------------------------------------------------------------------------
    async def _answer_starts(self, batch: Batch, row: Any, fenced: bool) -> list[StartAnswer]:
        created: set[str] = {*(row.get("started") or ()), *(row.get("born") or ()), *(row.get("queued") or ())}
        answers: list[StartAnswer | None] = []
        for start in batch.starts:
            new = start.id in created
            created.discard(start.id)  # a twin in the same batch is too late
            answers.append(StartAnswer(True, owned=start.mine and not fenced) if new else None)
        if any(a is None and s.parent is not None for a, s in zip(answers, batch.starts, strict=True)):
            await self._resolve_children(batch, answers, fenced)
        if None in answers:
            await self._resolve_starts(batch, answers, fenced)
        return [answer for answer in answers if answer is not None]

    async def _resolve_starts(self, batch: Batch, answers: list[StartAnswer | None], fenced: bool) -> None:
        """Answer starts whose ids are taken: by an earlier submission of this batch, or by another start."""
        rows = await self._connections.do(
            "resolve_starts",
            ids=[s.id for s in batch.starts],
            workflows=[s.workflow for s in batch.starts],
            inputs=[s.input for s in batch.starts],
            token=batch.token,
        )
        existing = {row["n"] - 1: row for row in rows}
        seen = {start.id for start, answer in zip(batch.starts, answers, strict=True) if answer is not None}
        for n, start in enumerate(batch.starts):
            if answers[n] is not None:
                continue
            if n not in existing:
                raise TransientError(f"instance {start.id!r} existed, but was removed just now")
            if existing[n]["ours"] and start.id not in seen:
                answers[n] = StartAnswer(True, owned=start.mine and not fenced)
            else:
                answers[n] = StartAnswer(False, existing[n]["same"], existing[n]["workflow"])
            seen.add(start.id)

    async def _resolve_children(self, batch: Batch, answers: list[StartAnswer | None], fenced: bool) -> None:
        """Answer the starts of children that were not stored now: they exist already, or lost their parent."""
        asked = [n for n, s in enumerate(batch.starts) if answers[n] is None and s.parent is not None]
        starts = [batch.starts[n] for n in asked]
        rows = await self._connections.do(
            "resolve_children",
            ids=[s.id for s in starts],
            parents=[s.parent for s in starts],
            ops=[s.parent_op for s in starts],
            token=batch.token,
        )
        existing = {row["n"] - 1: row for row in rows}
        seen = {start.id for start, answer in zip(batch.starts, answers, strict=True) if answer is not None}
        for place, n in enumerate(asked):
            row, is_first = existing.get(place), batch.starts[n].id not in seen
            seen.add(batch.starts[n].id)
            if row is None:
                answers[n] = StartAnswer(False, lost=True)
            elif row["ours"] and row["same"] and is_first:
                answers[n] = StartAnswer(True, owned=batch.starts[n].mine and not fenced)
            else:
                answers[n] = StartAnswer(False, bool(row["same"]), row["workflow"])

    async def _answer_commits(self, batch: Batch, row: Any, answer: BatchResult) -> list[bool]:
        plain = [commit for commit in batch.commits if commit.append_only]
        applied = await self._appended(plain, batch, row) if plain else set[str]()
        if len(plain) < len(batch.commits):
            applied |= set(row["applied"] or ()) if row is not None and batch.worker is not None else set()
        refused = [c.instance for c in batch.commits if c.instance not in applied and not c.append_only]
        if refused:
            # Those that carry our token were applied by an earlier submission of this batch.
            rows = await self._connections.do("resolve_commits", ids=refused, token=batch.token)
            applied |= {id for (id,) in rows}
            answer.repeated = bool(rows)
        return [commit.instance in applied for commit in batch.commits]

    async def _appended(self, plain: list[Commit], batch: Batch, row: Any) -> set[str]:
        """Return the plain commits whose entries are stored, by this submission or an earlier one."""
        added: list[str] = (row["appended"] or []) if row is not None and batch.worker is not None else []
        if len(added) == sum(len(commit.entries) for commit in plain):
            return set(added)
        rows = await self._connections.do(
            "resolve_entries",
            ids=[c.instance for c in plain],
            firsts=[c.entries[0].n for c in plain],
            lasts=[c.entries[-1].n for c in plain],
        )
        stored: dict[str, list[tuple[Any, ...]]] = {}
        for instance, *entry in rows:
            stored.setdefault(instance, []).append(tuple(entry))
        return {c.instance for c in plain if stored.get(c.instance) == list(map(entry_values, c.entries))}

    # --- events -----------------------------------------------------------------------------------------------------
    async def _accept(self, batch: Batch, row: Any, answer: BatchResult) -> Outcome:
        applied = {c.instance for c, ok in zip(batch.commits, answer.commits, strict=True) if ok}
        items = [(sender, item) for sender, item in senders(batch) if sender is None or sender in applied]
        if not items:
            return Outcome({})
        answers = await self._numbers([item for _, item in items], batch, row)
        fresh = [(a.seq, item) for a, (_, item) in zip(answers, items, strict=True) if not a.duplicate]
        alive = [(seq, item) for seq, item in fresh if not item.is_expired(batch.at)]
        outcome = await self.dispatcher.dispatch(alive, batch) if alive else Outcome({})
        for accepted, (sender, _) in zip(answers, items, strict=True):
            done = Dispatched() if accepted.duplicate else outcome.by_seq.get(accepted.seq, Dispatched())
            accepted.matched, accepted.started = done.matched, done.started
            (answer.accepts if sender is None else answer.sent).append(accepted)
        return outcome

    def _offers(self, outcome: Outcome, looks: dict[tuple[str, str | None], None]) -> list[Offer]:
        """Return the offers that need no look. An instance that looks anyway finds the same event."""
        looking = {instance for instance, _ in looks}
        offers: list[Offer] = []
        for offer, settled in outcome.offers:
            if offer.instance in looking:
                looks[offer.instance, offer.op] = None
                continue
            offers.append(offer)
            if settled is not None:
                self.looker.remember(offer, settled)
        return offers

    async def _numbers(self, items: Sequence[Accept], batch: Batch, row: Any) -> list[AcceptAnswer]:
        """Return the number of every event, whether it is a duplicate, and if so, whether it differs."""
        new: dict[tuple[str, str], int] = {}
        if row is not None and "seqs" in row and row["seqs"]:  # pyright: ignore[reportUnnecessaryContains]
            new = dict(zip(zip(row["sources"], row["ids"], strict=True), row["seqs"], strict=True))
        missing = [item.event for item in items if (item.event.source, item.event.id) not in new]
        resolved = iter(await self._resolve_events(missing, batch) if missing else ())
        answers: list[AcceptAnswer] = []
        twins: dict[tuple[str, str], Event] = {}
        for item in items:
            key = item.event.source, item.event.id
            twin = twins.get(key)  # in the same batch: this one is a duplicate
            twins.setdefault(key, item.event)
            if key in new:
                differs = twin is not None and self._differ(item.event, twin)
                answers.append(AcceptAnswer(new[key], twin is not None, [], [], differs))
            else:
                seq, ours, differs = next(resolved)
                duplicate = twin is not None or not ours
                differs = differs and not item.is_restored
                answers.append(AcceptAnswer(seq, duplicate, [], [], duplicate and differs))
        differing = [answer.seq for answer in answers if answer.differs]
        if differing:
            await self._connections.do("set_differed", at=batch.at, seqs=differing)
        return answers

    def _differ(self, one: Event, other: Event) -> bool:
        return not is_same_event(self._opener.opened(one), self._opener.opened(other))

    async def _resolve_events(self, events: Sequence[Event], batch: Batch) -> list[tuple[int, bool, bool]]:
        """Return the numbers of existing events, whether this batch stored them, and whether they differ."""
        rows = await self._connections.do(
            "resolve_events",
            sources=[event.source for event in events],
            ids=[event.id for event in events],
            types=[event.type for event in events],
            subjects=[event.subject for event in events],
            targets=[event.target for event in events],
            attrs=[packed_attrs(event) for event in events],
            datas=[event.data for event in events],
            token=batch.token,
        )
        found = {row["n"] - 1: row for row in rows}
        answers: list[tuple[int, bool, bool]] = []
        for n, event in enumerate(events):
            if n not in found:
                raise TransientError(f"event {event.id!r} existed, but was removed just now")
            _, seq, ours, same, *stored = found[n]
            answers.append((seq, ours, not same and self._opener.is_other(event, *stored)))
        return answers

    # --- requests ---------------------------------------------------------------------------------------------------
    async def _request(self, batch: Batch, owners: set[str | None]) -> list[RequestAnswer]:
        """Store requests, then cancel at once where possible. A worker that claims the instance meanwhile sees them."""
        requests = list(batch.requests)
        instances = [findable(request.instance) for request in requests]
        ats = [r.at for r in requests]
        whos = [r.who for r in requests]
        is_named = any(who is not None for who in whos)
        stored = await self._connections.do(
            "insert_named_requests" if is_named else "insert_requests",
            instances=instances,
            kinds=[r.kind for r in requests],
            payloads=[r.payload for r in requests],
            ats=ats,
            token=batch.token,
            before=batch.asked,
            **({"whos": whos} if is_named else {}),
        )
        cancels = [(findable(r.instance), r.at, r) for r in requests if r.kind == CANCEL]
        owners |= await self._cancel_at_once(cancels, blocked=True)
        numbered = {"token": batch.token, "before": batch.asked}
        rows = await self._connections.do("request_answers", instances=instances, ats=ats, **numbered)
        found, taken = {row["n"] - 1: row for row in rows}, {n - batch.asked - 1 for (n,) in stored}
        answers = [_request_answer(found.get(n), request.kind, n in taken) for n, request in enumerate(requests)]
        owners |= {answer.owner for answer in answers if answer.id}
        return answers

    async def _cancel_at_once(
        self, cancels: Sequence[tuple[str, int, Ask | Request]], *, blocked: bool
    ) -> set[str | None]:
        """Cancel those of these instances (id, time, by what) that never ran, or are `blocked`. Return whom to wake."""
        given = {
            "instances": [id for id, _, _ in cancels],
            "ats": [at for _, at, _ in cancels],
            "errors": [by.cancellation for _, _, by in cancels],
            "reasons": [by.payload for _, _, by in cancels],
        }
        rows = await self._connections.do("cancel_at_once", blocked=blocked, **given)
        return {owner for (owner,) in rows}

    # --- notices ----------------------------------------------------------------------------------------------------
    def _announce(self, batch: Batch, answer: BatchResult, owners: set[str | None]) -> None:
        if any(s.created and not s.owned for s in answer.starts):
            owners.add(None)
        ended = False
        for commit, applied in zip(batch.commits, answer.commits, strict=True):
            if applied and (commit.children or commit.rejoins):
                owners.add(None)
            if applied and commit.is_final:
                ended = True
            elif applied and commit.continuation is not None:
                if commit.continuation.run.workflow not in batch.workflows:
                    owners.add(None)
            elif applied and commit.release:
                ended = True  # blocked: wake those who wait for its result
                owners.add(None)
        emitted = any(ok and commit.emitted for commit, ok in zip(batch.commits, answer.commits, strict=True))
        ended = ended or any(r.status == "cancelled" for r in answer.requests)
        owners.discard(batch.worker if batch.worker is not None else "")
        if owners or ended or emitted:
            self._tell(owners, ended, emitted)


def _letters(row: Any) -> list[Letter]:
    if row is None or not row.get("letters"):
        return []
    return [
        Letter(int(id), instance, owner, int(kind), payload, op)
        for (id, instance, owner, kind, op), payload in zip(row["letters"], row["letter_payloads"], strict=True)
    ]


def _admitted(row: Any) -> Sequence[Admitted]:
    if row is None or not row.get("admitted"):
        return ()
    known = zip(row["admitted_numbers"], row["admitted_inputs"], row["admitted_deadlines"], strict=True)
    found: list[Admitted] = []
    for (id, *names), (numbers, input, deadline) in zip(row["admitted"], known, strict=True):
        is_mine = names[1] is not None
        unread = None if input is None else to_row(id, names, numbers, input, deadline)
        found.append(Admitted(id, names[0], is_mine, unread))
    return found


def _request_answer(row: Any, kind: int, is_stored: bool) -> RequestAnswer:
    """`is_stored`: stored just now. The row shows one that an earlier submission stored."""
    if row is None:
        return RequestAnswer(None, None)
    status, took = STATUS_NAMES.get(row["status"], "blocked"), is_stored or row["took"]
    if kind == HASTEN:
        took = is_stored or row["id"] is not None
    if row["status"] >= FIRST_FINAL:
        return RequestAnswer(status, None, took=took)
    return RequestAnswer(status, row["owner"], row["id"] or 0, took)
