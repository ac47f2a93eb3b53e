"""Seals what the engine writes: batches, and everything in them. Each value is sealed for its place.

Columns that statements copy keep the place they were sealed for: a child's result on its way to its parent, the error
of an instance in the request to retry it, the input of a schedule in the instances it starts. See `reads.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from romancy.core.given_back import COPY_OF
from romancy.core.history import Entry
from romancy.core.model import Event
from romancy.core.operations import WaitRow
from romancy.storage.attempts import Attempt
from romancy.storage.batch import (
    CHILD_COMPLETED,
    Accept,
    Ask,
    Batch,
    Commit,
    Consumption,
    Ending,
    Misfit,
    Request,
    Start,
)
from romancy.storage.forks import Fork
from romancy.storage.inbox_items import START
from romancy.storage.sealed.copies import clone
from romancy.storage.sealed.emissions import sealed_row
from romancy.storage.sealed.vault import Vault, event_place, name, with_data


class Sealer:
    """Seals items of batches. `known`: what the sealed values of the events of a batch were, so that none is opened.

    Large values are kept outside the database if the codec does that. Writing one takes a while: unless it `may_wait`,
    `MustWait` is raised instead. What statements copy stays in the database, because a file belongs to one owner.
    """

    def __init__(self, vault: Vault, *, may_wait: bool = False) -> None:
        self._vault, self._seal, self._error = vault, vault.seal, vault.seal_error
        self._store = vault.seal if vault.outside is None else partial(vault.store, may_wait=may_wait)

    def batch(self, batch: Batch, known: dict[bytes, bytes]) -> Batch:
        sealed = clone(batch)
        sealed.starts = [self.start(start) for start in batch.starts]
        sealed.commits = [self.commit(commit, known) for commit in batch.commits]
        sealed.accepts = [self.accept(item, known) for item in batch.accepts]
        sealed.requests = [self.request(request) for request in batch.requests]
        return sealed

    def start(self, start: Start) -> Start:
        sealed = clone(start)
        sealed.input = self._store(start.input, f"instances/{name(start.id)}/input")
        return sealed

    def accept(self, item: Accept, known: dict[bytes, bytes]) -> Accept:
        event, place = item.event, event_place(item.event)
        seal = self._seal if COPY_OF in (event.extensions or ()) else self._store
        data = None if event.data is None else seal(event.data, place)
        payload = self._seal(item.payload, f"{place}/input")
        known[payload] = item.payload
        if data is not None and event.data is not None:
            known[data] = event.data
        sealed = clone(item)
        sealed.event, sealed.payload = with_data(event, data), payload
        return sealed

    def request(self, request: Request) -> Request:
        if self._vault.is_closed:
            return request  # an operator can cancel without the codec
        id = name(request.instance)
        sealed = clone(request)
        sealed.error = self._error(request.cancellation, f"instances/{id}/error") if request.payload else None
        sealed.payload = self._seal(request.payload, f"requests/{id}") if request.payload else request.payload
        return sealed

    # --- commits ---------------------------------------------------------------------------------------------------
    def commit(self, commit: Commit, known: dict[bytes, bytes]) -> Commit:
        id = name(commit.instance)
        if commit.append_only:
            c = commit
            entries = self.entries(c.entries, id)
            return Commit(c.instance, c.version, c.status, c.at, c.same_status, entries, append_only=True)
        sealed = clone(commit)
        if commit.entries:
            sealed.entries = self.entries(commit.entries, id)
        if commit.output is not None:
            seal = self._store if commit.ending is None else self._seal  # statements copy a child's result
            sealed.output = seal(commit.output, f"instances/{id}/output")
        if commit.error is not None:
            sealed.error = self._error(commit.error, f"instances/{id}/error")
        if commit.has_only_entries and commit.ending is None and not commit.children:
            return sealed
        self._seal_rest(sealed, commit, id, known)
        return sealed

    def _seal_rest(self, sealed: Commit, commit: Commit, id: str, known: dict[bytes, bytes]) -> None:
        sealed.opened = [self._wait(wait, id) for wait in commit.opened]
        sealed.consumed = [Consumption(t.event, t.type, self._wait(t.wait, id)) for t in commit.consumed]
        sealed.misfits = [self._misfit(misfit, id) for misfit in commit.misfits]
        sealed.sent = [self.accept(item, known) for item in commit.sent]
        sealed.attempts = [self._attempt(attempt, id) for attempt in commit.attempts]
        sealed.children = [self.start(child) for child in commit.children]
        sealed.asks = [self._ask(ask) for ask in commit.asks]
        if commit.emitted:
            sealed.emitted = [sealed_row(self._vault, row) for row in commit.emitted]
        if commit.ending is not None:
            sealed.ending = self._ending(commit.ending, id)
        if commit.publication is not None and commit.publication.view is not None:
            sealed.publication = replace(commit.publication, view=self._seal(commit.publication.view, f"views/{id}"))
        if commit.continuation is not None:
            run = commit.continuation.run
            run = replace(run, input=self._store(run.input, f"instances/{id}/input"))
            sealed.continuation = replace(commit.continuation, run=run)

    def entries(self, entries: Iterable[Entry], id: str) -> list[Entry]:
        return [
            Entry(
                e.n,
                e.kind,
                e.op,
                e.at,
                None if e.input is None else self._store(e.input, f"history/{id}/{e.n}/input"),
                None if e.payload is None else self._store(e.payload, f"history/{id}/{e.n}/payload"),
                e.event,
            )
            for e in entries
        ]

    def _wait(self, wait: WaitRow, id: str) -> WaitRow:
        if not wait.spec:
            return wait  # a timer
        sealed = clone(wait)
        sealed.spec = self._seal(
            wait.spec, f"waits/{id}"
        )  # the same for all waits of an instance: it groups them by it
        return sealed

    def _misfit(self, misfit: Misfit, id: str) -> Misfit:
        return Misfit(misfit.op, misfit.model, misfit.event, self._vault.seal_text(misfit.error, f"misfits/{id}"))

    def _attempt(self, attempt: Attempt, id: str) -> Attempt:
        if attempt.error is None and attempt.progress is None:
            return attempt
        sealed, place = clone(attempt), f"attempts/{id}/{name(attempt.op)}"
        if attempt.error is not None:
            sealed.error = self._error(attempt.error, f"{place}/error")
        if attempt.progress is not None:
            sealed.progress = self._seal(attempt.progress, f"{place}/progress")
        return sealed

    def _ending(self, ending: Ending, id: str) -> Ending:
        """Seal what a child leaves for its parent as the child has it, because statements copy that, too."""
        if ending.kind == CHILD_COMPLETED:
            payload = self._seal(ending.payload, f"instances/{id}/output")
        else:
            payload = self._error(ending.payload, f"instances/{id}/error")
        return replace(ending, payload=payload)

    def _ask(self, ask: Ask) -> Ask:
        id = name(ask.child)
        reason = self._seal(ask.reason.encode(), f"requests/{id}") if ask.reason else None
        return replace(ask, sealed=(reason, self._error(ask.cancellation, f"instances/{id}/error")))

    def retry_head(self, payload: bytes, id: str) -> bytes:
        """Seal the error in the request to retry an instance: a line, then the error."""
        head, newline, error = payload.partition(b"\n")
        return head + newline + (self._error(error, f"instances/{id}/error") if error else b"")

    def inbox_row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Seal a row of the inbox: the data of an event, or the input of a start."""
        if row["data"] is None:
            return row
        if row["kind"] == START:
            place = f"instances/{name(row['instance'])}/input"
        else:
            place = event_place(Event(row["event"], row["source"], row["type"], target=row["target"]))
        return row | {"data": self._seal(row["data"], place)}

    def fork(self, fork: Fork, input: bytes) -> Fork:
        """Seal a copy of an instance: its values lie in other places than those of the original."""
        id = name(fork.id)
        return replace(
            fork,
            entries=self.entries(fork.entries, id),
            ask=self.retry_head(fork.ask, id),
            input=self._store(input, f"instances/{id}/input"),
            is_sealed=True,
        )
