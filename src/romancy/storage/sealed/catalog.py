"""Reads for people from a database whose values are sealed: the catalog, the desk, sinks and schedules.

What can't be opened is shown as "sealed (k2)", with the name of the key it needs. `exact` raises instead.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from romancy.core.history import Entry, Kind, Payload
from romancy.core.inputs import EVENT
from romancy.core.model import Event, Status
from romancy.core.operations import meaning_of
from romancy.errors import CodecError
from romancy.storage.catalog import Catalog, Found, Position, Search, Shown, ShownEntry, ShownEvent, Summary, Whole
from romancy.storage.desk import BEGINNING, DeskRows, FailureRow, Place, RetryRow
from romancy.storage.inbox_items import InboxRow
from romancy.storage.instances import InstanceRow
from romancy.storage.records import UNREAD, ShownAttempt, StoredWait
from romancy.storage.schedules import Order, ScheduleRow, Schedules
from romancy.storage.sealed.copies import clone
from romancy.storage.sealed.reads import Reader
from romancy.storage.sealed.vault import (
    Form,
    Vault,
    error_form,
    event_form,
    event_place,
    json_form,
    label_of,
    name,
    with_data,
)
from romancy.storage.sinks import DeadRow, Outgoing, Parked, Reading, SinkCounts, Sinks
from romancy.storage.sinks import Place as SinkPlace

T = TypeVar("T")
_LINE = re.compile(rb'"message": "(sealed:[A-Za-z0-9+/=]+)"')


_ANY = Search()
_MARKS = frozenset({Kind.RETRIED, Kind.ATTEMPT_FAILED})
"""Their input is read by lists: an object."""


def _mark_form(text: str) -> bytes:
    return b"{}"


_FORMS: dict[Payload, Form] = {
    Payload.NOTHING: json_form,
    Payload.VALUE: json_form,
    Payload.FAILURE: error_form,
    Payload.EVENT: event_form,
    Payload.TEXT: str.encode,
}


class SealedCatalog(Catalog):
    """The catalog, with opened values. Before it is returned, nothing is known to be whole."""

    def __init__(self, inner: Catalog, vault: Vault, *, is_exact: bool = False) -> None:
        super().__init__(inner.ask)
        self._vault, self._reader, self._is_exact = vault, Reader(vault), is_exact
        self._inner = inner

    @property
    def exact(self) -> Catalog:
        return SealedCatalog(self._inner, self._vault, is_exact=True)

    def _peek(
        self, raw: bytes | None, place: str | None, size: int | None = None, form: Form = json_form
    ) -> bytes | None:
        if raw is None:
            return None
        return self._vault.open(raw, place) if self._is_exact else self._vault.peek(raw, place, size, form)

    def _peek_error(self, raw: bytes | None, place: str | None) -> bytes | None:
        if raw is None:
            return None
        return self._vault.open_error(raw, place) if self._is_exact else self._vault.peek_error(raw, place)

    async def _off_loop(self, read: Callable[[], T]) -> T:
        """Open values, in a thread if some of them may have to be read from outside the database."""
        return read() if self._vault.outside is None else await asyncio.to_thread(read)

    # --- instances -------------------------------------------------------------------------------------------------
    def _row(self, row: InstanceRow, input_size: int | None = None, output_size: int | None = None) -> InstanceRow:
        if self._is_exact:
            return self._reader.row(row)
        id, opened = name(row.id), clone(row)
        form = event_form if row.input_kind == EVENT else json_form
        try:
            is_cut = input_size is not None and (input_size > len(row.input) or self._vault.is_outside(row.input))
            opened.input = self._vault.peek(row.input, None, input_size, form) if is_cut else self._reader.input(row)
        except CodecError:
            opened.input = self._vault.peek(row.input, "", form=form)
        opened.output = self._peek(row.output, f"instances/{id}/output", output_size)
        opened.error = self._peek_error(row.error, f"instances/{id}/error")
        return opened

    async def instances(
        self,
        search: Search = _ANY,
        limit: int = 50,
        cursor: Position | None = None,
    ) -> list[InstanceRow]:
        rows = await super().instances(search, limit, cursor)
        return await self._off_loop(lambda: list(map(self._row, rows)))

    async def _search(
        self, search: Search, status: Status | None, limit: int, cursor: Position | None, scan: int
    ) -> Found:
        found = await super()._search(search, status, limit, cursor, scan)
        found.rows = list(map(self._summary, found.rows))
        return found

    async def summaries(self, ids: Collection[str]) -> list[Summary]:
        return list(map(self._summary, await super().summaries(ids)))

    def _summary(self, row: Summary) -> Summary:
        id = name(row.id)
        opened = clone(row)
        opened.error = self._peek_error(row.error, f"instances/{id}/error")
        opened.output = self._peek(row.output, f"instances/{id}/output", len(row.output or b""))
        return opened

    async def instance(self, id: str) -> InstanceRow | None:
        row = await super().instance(id)
        return None if row is None else await self._off_loop(lambda: self._row(row))

    async def whole(self, instance: str) -> Whole | None:
        whole = await super().whole(instance)
        if whole is not None:
            whole.row = self._row(whole.row, whole.input_size, whole.output_size)
        return whole

    async def shown(self, ids: Collection[str]) -> dict[str, Shown]:
        found = await super().shown(ids)
        for id, shown in found.items():
            shown.view = self._peek(shown.view, f"views/{name(id)}")
        return found

    async def view(self, id: str) -> tuple[bytes | None] | None:
        found = await super().view(id)
        return None if found is None else (self._peek(found[0], f"views/{name(id)}"),)

    async def misfits(self, instance: str) -> list[tuple[int, str, str]]:
        place = f"misfits/{name(instance)}"
        return [
            (event, op, self._vault.peek_text(error, place)) for event, op, error in await super().misfits(instance)
        ]

    # --- history ---------------------------------------------------------------------------------------------------
    async def history(self, instance: str) -> list[Entry]:
        entries = await super().history(instance)
        return await self._off_loop(lambda: [self._entry(instance, entry) for entry in entries])

    def _entry(self, instance: str, e: Entry, input_size: int | None = None, payload_size: int | None = None) -> Entry:
        place = f"history/{name(instance)}/{e.n}"
        input = self._peek(e.input, f"{place}/input", input_size, _mark_form if e.kind in _MARKS else json_form)
        payload = self._peek(e.payload, f"{place}/payload", payload_size, _FORMS[meaning_of(e.kind).payload])
        return Entry(e.n, e.kind, e.op, e.at, input, payload, e.event)

    async def entries(self, instance: str, after: int, limit: int) -> list[ShownEntry]:
        found = await super().entries(instance, after, limit)
        return [
            ShownEntry(self._entry(instance, e.entry, e.input_size, e.payload_size), e.input_size, e.payload_size)
            for e in found
        ]

    async def retries(self, instance: str, after: int) -> list[tuple[int, int, bytes | None]]:
        place = f"history/{name(instance)}"
        return [
            (n, at, self._peek(input, f"{place}/{n}/input", form=_mark_form))
            for n, at, input in await super().retries(instance, after)
        ]

    async def attempts(self, instance: str, limit: int) -> list[ShownAttempt]:
        return [self._attempt(instance, row) for row in await super().attempts(instance, limit)]

    def _attempt(self, instance: str, row: ShownAttempt) -> ShownAttempt:
        place = f"attempts/{name(instance)}/{name(row.op)}"
        progress = self._peek(row.progress, f"{place}/progress", row.size)
        return replace(row, error=self._peek_error(row.error, f"{place}/error"), progress=progress)

    # --- waits -----------------------------------------------------------------------------------------------------
    async def _waits(self, waits: Sequence[StoredWait]) -> list[StoredWait]:
        """Open waits. Of those that can't be opened, only the types are known, from their keys."""
        opened, closed = list[StoredWait](), list[StoredWait]()
        for wait in waits:
            shown, id = clone(wait), name(wait.instance)
            opened.append(shown)
            shown.error = self._peek_error(wait.error, f"attempts/{id}/{name(wait.op)}/error")
            try:
                shown.spec = self._vault.open(wait.spec, f"waits/{id}") if wait.spec else wait.spec
            except CodecError:
                if self._is_exact:
                    raise
                closed.append(shown)
        types = await self.types_of_waits({wait.instance for wait in closed}) if closed else {}
        for wait in closed:
            unread = {"types": types.get((wait.instance, wait.op), []), UNREAD: label_of(wait.spec)}
            wait.spec = json.dumps(unread).encode()
        return opened

    async def waits(self, **given: Any) -> list[StoredWait]:
        return await self._waits(await super().waits(**given))

    async def waits_of(self, ids: Collection[str], each: int) -> list[StoredWait]:
        return await self._waits(await super().waits_of(ids, each))

    async def waits_for(self, type: str, limit: int, after: Any) -> list[tuple[Any, StoredWait]]:
        found = await super().waits_for(type, limit, after)
        opened = await self._waits([wait for _, wait in found])
        return [(place, wait) for (place, _), wait in zip(found, opened, strict=True)]

    async def coming(self, after: int, before: int, limit: int) -> list[StoredWait]:
        return await self._waits(await super().coming(after, before, limit))

    async def inbox(self, after: int, limit: int) -> list[InboxRow]:
        return [
            row if row.refused is None else replace(row, refused=self._vault.peek_text(row.refused, None))
            for row in await super().inbox(after, limit)
        ]

    # --- events ----------------------------------------------------------------------------------------------------
    async def events(self, **given: Any) -> list[ShownEvent]:
        return await self._whole(await self._inner.events(**given))

    async def event(self, source: str, id: str) -> ShownEvent | None:
        found = await self._inner.event(source, id)
        return None if found is None else (await self._whole([found]))[0]

    async def _whole(self, found: Sequence[ShownEvent]) -> list[ShownEvent]:
        """Open events, unless they are too large to have been read. In lists, data outside the database is not read."""

        def opened(shown: ShownEvent) -> ShownEvent:
            is_cut = shown.size > len(shown.event.data or b"")
            return replace(shown, event=self._event(shown.event, shown.size if is_cut else None))

        return await self._off_loop(lambda: list(map(opened, found)))

    async def _events(self, rows: Sequence[Any]) -> list[ShownEvent]:
        found = await super()._events(rows)
        for shown in found:
            shown.event = self._event(shown.event, shown.size)
        return found

    def _event(self, event: Event, size: int | None = None) -> Event:
        return with_data(event, self._peek(event.data, event_place(event), size))

    async def sent_to(self, instance: str, type: str, limit: int) -> list[Event]:
        events = await super().sent_to(instance, type, limit)
        return await self._off_loop(lambda: list(map(self._event, events)))


class SealedDesk(DeskRows):
    """What operators look at. Of errors only the beginning is read."""

    def __init__(self, inner: DeskRows, vault: Vault) -> None:
        super().__init__(*inner.runs)
        self._vault = vault

    async def retrying(self, now: int, limit: int, after: Place = BEGINNING) -> list[RetryRow]:
        rows = await super().retrying(now, limit, after)
        return [replace(row, error=self._head(row.error, _attempt_error(row))) for row in rows]

    async def failures(self) -> tuple[list[FailureRow], bool]:
        rows, are_more = await super().failures()
        return [row._replace(head=self._head(row.head, f"instances/{name(row.id)}/error")) for row in rows], are_more

    def _head(self, head: bytes | None, place: str) -> bytes | None:
        def opened(found: re.Match[bytes]) -> bytes:
            line = self._vault.peek_text(found[1].decode(), f"{place}/line")
            return b'"message": ' + json.dumps(line).encode()

        return None if head is None else _LINE.sub(opened, head, count=1)


def _attempt_error(row: RetryRow) -> str:
    return f"attempts/{name(row.instance)}/{name(row.op)}/error"


class SealedSinks(Sinks):
    """Sinks get events as they were sent."""

    def __init__(self, inner: Sinks, vault: Vault) -> None:
        super().__init__(*inner.runs)
        self._vault, self._reader = vault, Reader(vault)

    async def events(self, types: Sequence[str], after: SinkPlace, limit: int, bytes: int) -> Reading:
        reading = await super().events(types, after, limit, bytes)
        return reading._replace(events=await self._opened(reading.events))

    async def due(self, sink: str, now: int, lines: int, each: int) -> list[Outgoing]:
        return await self._opened(await super().due(sink, now, lines, each))

    async def _opened(self, found: Sequence[Outgoing]) -> list[Outgoing]:
        if any(self._vault.is_outside(one.event.data) for one in found):
            return await asyncio.to_thread(lambda: list(map(self._outgoing, found)))
        return list(map(self._outgoing, found))

    def _outgoing(self, one: Outgoing) -> Outgoing:
        return replace(one, event=self._reader.outgoing(one.event))

    async def settle(
        self,
        sink: str,
        worker: str,
        types: Sequence[str],
        place: SinkPlace,
        gone: Sequence[int],
        parked: Sequence[Parked],
        at: int,
    ) -> bool:
        errors = f"sinks/{name(sink)}/error"
        sealed = [
            one if one.error is None else replace(one, error=self._vault.seal_text(one.error, errors)) for one in parked
        ]
        return await super().settle(sink, worker, types, place, gone, sealed, at)

    async def all(self) -> list[SinkCounts]:
        return [
            one if one.error is None else replace(one, error=self._vault.peek_text(one.error, None))
            for one in await super().all()
        ]

    async def dead_letters(self, sink: str | None, limit: int, after: tuple[str, int]) -> list[DeadRow]:
        return [self._dead(row) for row in await super().dead_letters(sink, limit, after)]

    def _dead(self, row: DeadRow) -> DeadRow:
        event = row.event.event
        data = None if event.data is None else self._vault.peek(event.data, event_place(event), row.event.size)
        shown = replace(row.event, event=with_data(event, data))
        return replace(row, error=self._vault.peek_text(row.error, None), event=shown)


class SealedSchedules(Schedules):
    """Schedules: their inputs, and the errors that say why one could not fire."""

    def __init__(self, inner: Schedules, vault: Vault) -> None:
        super().__init__(*inner.runs)
        self._vault = vault

    def _opened(self, row: ScheduleRow) -> ScheduleRow:
        """Open a row as far as possible: statements copy the input, so a schedule fires even without the key."""
        opened = clone(row)
        opened.order = replace(row.order, input=self._vault.peek(row.order.input, f"schedules/{name(row.name)}"))
        opened.error = None if row.error is None else self._vault.peek_text(row.error, None)
        return opened

    def _sealed(self, order: Order) -> Order:
        return replace(order, input=self._vault.seal(order.input, f"schedules/{name(order.name)}"))

    async def get(self, name: str) -> ScheduleRow | None:
        row = await super().get(name)
        return None if row is None else self._opened(row)

    async def all(self) -> list[ScheduleRow]:
        return list(map(self._opened, await super().all()))

    async def declared(self) -> list[ScheduleRow]:
        return list(map(self._opened, await super().declared()))

    async def due(self, now: int, after: tuple[int, str], limit: int) -> list[ScheduleRow]:
        return list(map(self._opened, await super().due(now, after, limit)))

    async def insert(self, order: Order, next_at: int | None) -> bool:
        return await super().insert(self._sealed(order), next_at)

    async def change(self, row: ScheduleRow, order: Order, next_at: int | None, former: Any = ()) -> bool:
        return await super().change(row, self._sealed(order), next_at, former)

    async def blame(self, row: ScheduleRow, error: str) -> None:
        await super().blame(row, self._vault.seal_text(error, f"schedules/{name(row.name)}/error"))
