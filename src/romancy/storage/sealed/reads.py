"""Opens what the engine reads. A value that can't be opened is noted, and does not affect other instances.

Results of batches and mail concern many instances: such a value becomes `Unopened`, and raises its error where it would
be used. A snapshot has a `problem`: the instance is set aside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from romancy.core.history import Entry, unpack_event
from romancy.core.inputs import EVENT
from romancy.core.model import Event
from romancy.core.operations import Sought
from romancy.errors import CodecError
from romancy.storage.attempts import Attempt
from romancy.storage.batch import (
    CHILD_CANCELLED,
    CHILD_COMPLETED,
    CHILD_FAILED,
    CHILD_SPENT,
    RETRY,
    BatchResult,
    Start,
    Started,
)
from romancy.storage.inbox_items import InboxItem, Unreadable
from romancy.storage.instances import Admitted, InstanceRow
from romancy.storage.records import Finished, Mail, Snapshot, StoredRequest
from romancy.storage.rows import triggered_id
from romancy.storage.sealed.copies import clone
from romancy.storage.sealed.vault import Vault, event_place, name, with_data
from romancy.storage.unopened import Unopened

READERS = 16
"""How many values of a history are read at a time, if they are kept outside the database."""
_ERRORS = (CHILD_FAILED, CHILD_CANCELLED)


class Reader:
    """Opens values. With a closed vault, or if a key is missing, each method raises `CodecError` or notes it."""

    def __init__(self, vault: Vault) -> None:
        self._vault, self._open = vault, vault.open

    # --- instances -------------------------------------------------------------------------------------------------
    def input(self, row: InstanceRow | Started) -> bytes:
        """Open the input of an instance: as it was given, or as its event or its schedule has it."""
        is_copy = isinstance(row, InstanceRow) and row.seed is not None
        begun = not isinstance(row, InstanceRow) or row.generation == 0
        if row.input_kind == EVENT and begun and not is_copy:
            return self._event_input(row)
        if isinstance(row, InstanceRow) and row.schedule is not None and begun and not is_copy:
            return self._open(row.input, f"schedules/{name(row.schedule)}")
        return self._open(row.input, f"instances/{name(row.id)}/input")

    def _event_input(self, row: InstanceRow | Started) -> bytes:
        """Open an event that started an instance. Its id says which event that was."""
        payload = self._open(row.input, None)
        event = unpack_event(payload)
        if triggered_id(row.workflow, event.source, event.id) != row.id:
            raise CodecError(f"the input of instance {row.id!r} belongs to another one: it was moved in the database")
        return payload

    def row(self, row: InstanceRow) -> InstanceRow:
        id, opened = name(row.id), clone(row)
        opened.input = self.input(row)
        if row.output is not None:
            opened.output = self._open(row.output, f"instances/{id}/output")
        if row.error is not None:
            opened.error = self._vault.open_error(row.error, f"instances/{id}/error")
        return opened

    def entries(self, entries: Sequence[Entry], instance: str) -> list[Entry]:
        opened = partial(self._entry, name(instance))
        if self._vault.outside is None:
            return list(map(opened, entries))
        files = [e for e in entries if self._vault.is_outside(e.payload) or self._vault.is_outside(e.input)]
        if len(files) < 2:
            return list(map(opened, entries))
        with ThreadPoolExecutor(min(READERS, len(files))) as pool:  # it would take long to read one after the other
            read = {e.n: entry for e, entry in zip(files, pool.map(opened, files), strict=True)}
        return [read[e.n] if e.n in read else opened(e) for e in entries]

    def _entry(self, id: str, e: Entry) -> Entry:
        place = f"history/{id}/{e.n}"
        input = None if e.input is None else self._open(e.input, f"{place}/input")
        payload = None if e.payload is None else self._open(e.payload, f"{place}/payload")
        return Entry(e.n, e.kind, e.op, e.at, input, payload, e.event)

    def _attempt(self, attempt: Attempt, id: str) -> Attempt:
        if attempt.error is None and attempt.progress is None:
            return attempt
        opened, place = clone(attempt), f"attempts/{id}/{name(attempt.op)}"
        if attempt.error is not None:
            opened.error = self._vault.open_error(attempt.error, f"{place}/error")
        if attempt.progress is not None:
            opened.progress = self._open(attempt.progress, f"{place}/progress")
        return opened

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        row = snapshot.row
        try:
            return replace(
                snapshot,
                row=self.row(row),
                history=self.entries(snapshot.history, row.id),
                attempts=[self._attempt(attempt, name(row.id)) for attempt in snapshot.attempts],
                requests=[self.request(request) for request in snapshot.requests],
                sought=self._sought(snapshot.sought, name(row.id)),
            )
        except CodecError as error:
            return replace(snapshot, attempts=list(map(self._shown_attempt, snapshot.attempts)), problem=error)

    def _sought(self, sought: Mapping[str, Sought], id: str) -> dict[str, Sought]:
        """Open what waits look for. What can't be opened is left as the code asks for it."""
        opened = ((op, wait, self._safely(wait.spec, f"waits/{id}")) for op, wait in sought.items())
        return {op: wait._replace(spec=spec) for op, wait, spec in opened if not isinstance(spec, Unopened)}

    def _shown_attempt(self, attempt: Attempt) -> Attempt:
        shown = clone(attempt)
        shown.error = None if attempt.error is None else self._vault.peek_error(attempt.error, None)
        shown.progress = None if attempt.progress is None else self._vault.peek(attempt.progress, None)
        return shown

    def snapshots(self, found: Mapping[str, Snapshot | None]) -> dict[str, Snapshot | None]:
        return {id: None if snapshot is None else self.snapshot(snapshot) for id, snapshot in found.items()}

    def finished(self, row: Finished) -> Finished:
        id, opened = name(row.id), clone(row)
        if row.output is not None:
            opened.output = self._safely(row.output, f"instances/{id}/output")
        if row.error is not None:
            opened.error = self._safe_error(row.error, f"instances/{id}/error")
        return opened

    def admitted(self, one: Admitted) -> Admitted:
        if one.row is None or self._vault.is_outside(one.row.input):
            return replace(one, row=None)  # it is read, which takes a while
        try:
            return replace(one, row=self.row(one.row))
        except CodecError:
            return replace(one, row=None)  # it is read, and then set aside

    # --- requests --------------------------------------------------------------------------------------------------
    def request(self, request: StoredRequest) -> StoredRequest:
        return StoredRequest(request.id, request.kind, self.payload(request.kind, request.payload), request.op)

    def payload(self, kind: int, payload: bytes) -> bytes:
        """Open what a request says. A child's result lies where its parent finds it, not where it was sealed for."""
        if kind == RETRY:
            head, newline, error = payload.partition(b"\n")
            return head + newline + (self._vault.open_error(error, None) if error else b"")
        if kind in _ERRORS or (kind == CHILD_SPENT and payload.startswith(b"{")):
            return self._vault.open_error(payload, None)
        return self._open(payload, None, lenient=kind != CHILD_COMPLETED)

    def mail(self, mail: Mail) -> Mail:
        requests = [(id, self._safe_request(request)) for id, request in mail.requests]
        return Mail(mail.deliveries, requests, mail.end)

    def _safe_request(self, request: StoredRequest) -> StoredRequest:
        return StoredRequest(request.id, request.kind, self._safe_payload(request.kind, request.payload), request.op)

    def _safe_payload(self, kind: int, payload: bytes) -> bytes:
        try:
            return self.payload(kind, payload)
        except CodecError as error:
            return Unopened.because(error)

    # --- batches ---------------------------------------------------------------------------------------------------
    def result(self, result: BatchResult, known: Mapping[bytes, bytes]) -> BatchResult:
        """Open the result of a batch, in place. `known`: values that need not be opened."""
        for offer in result.offers:
            offer.event = self._offered(offer.event, known)
            if offer.group is not None:
                spec, model = offer.group
                offer.group = self._safely(spec, f"waits/{name(offer.instance)}"), model
        for accepted in (*result.accepts, *result.sent):
            for match in accepted.matched:
                match.spec = self._safely(match.spec, f"waits/{name(match.instance)}")
            for started in accepted.started:
                self._open_started(started, known)
        for letter in result.letters:
            letter.payload = self._safe_payload(letter.kind, letter.payload)
        if result.admitted:
            result.admitted = [self.admitted(one) for one in result.admitted]
        return result

    def _open_started(self, started: Started, known: Mapping[bytes, bytes]) -> None:
        plain = known.get(started.input)
        try:
            started.input = self.input(started) if plain is None else plain
        except CodecError:
            started.owner = None  # it does not begin here: it is read, and then set aside

    def _offered(self, event: Event, known: Mapping[bytes, bytes]) -> Event:
        if event.data is None:
            return event
        plain = known.get(event.data)
        return with_data(event, self._safely(event.data, event_place(event)) if plain is None else plain)

    def event(self, event: Event) -> Event:
        return event if event.data is None else with_data(event, self._open(event.data, event_place(event)))

    def outgoing(self, event: Event) -> Event:
        """Open an event for a sink. If that fails, its delivery fails, and not that of others."""
        return self._offered(event, {})

    def arrival(self, item: InboxItem) -> InboxItem:
        """Open what was left in the inbox. What can't be opened here is left there."""
        content = item.content
        try:
            if isinstance(content, Start):
                opened = clone(content)
                opened.input = self._open(content.input, f"instances/{name(content.id)}/input")
                return InboxItem(item.number, opened)
            return item if isinstance(content, Unreadable) else InboxItem(item.number, self.event(content))
        except CodecError as error:
            return InboxItem(item.number, Unreadable(str(error), item.size))

    def _safely(self, raw: bytes, place: str) -> bytes:
        try:
            return self._open(raw, place) if raw else raw
        except CodecError as error:
            return Unopened.because(error)

    def _safe_error(self, raw: bytes, place: str) -> bytes:
        try:
            return self._vault.open_error(raw, place)
        except CodecError as error:
            return Unopened.because(error)
