"""Stored values as pages show them: in full, or the beginning of what the catalog cut short."""

from __future__ import annotations

import codecs
import json
from dataclasses import replace
from typing import Any

from romancy.core.history import Payload, showable
from romancy.core.operations import meaning_of
from romancy.core.redaction import HIDDEN, is_redacting
from romancy.records import HistoryEntry, Instance, Wait, shown_event, to_history, to_instance
from romancy.storage.catalog import WHOLE, Shown, ShownEntry, ShownEvent, Whole
from romancy.viewer.attempts import failure_of
from romancy.viewer.words import pretty


def beginning(raw: bytes) -> Any:
    """A cut value as text, since half a value is not valid JSON. Bytes that are not text are shown as bytes.

    Nothing is shown of it if values are redacted: what is to be hidden can't be found.
    """
    if is_redacting():
        return HIDDEN
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(raw)  # drops half a character at the end
    except UnicodeDecodeError:
        return showable(raw)


def _event(payload: bytes) -> Any:
    """An event whose data, or even attributes, were cut short."""
    line, newline, data = payload.partition(b"\n")
    if not newline:
        return {"id": "", "source": "", "data": beginning(payload)}
    return {**shown_event(line), "data": beginning(data)}


def shown_instance(whole: Whole, waits: list[Wait], shown: Shown | None) -> Instance:
    """An instance, with the part of its input and output that was read."""
    row = whole.row
    short: dict[str, Any] = {}
    if whole.input_size > WHOLE:
        short["input"] = beginning(row.input)  # for an event: a line of attributes, then its data
        row = replace(row, input=b"null", input_kind=0)
    if whole.output_size > WHOLE:
        short["output"] = beginning(row.output or b"")
        row = replace(row, output=None)
    return replace(to_instance(row, waits, shown), **short)


def shown_entry(shown: ShownEntry) -> HistoryEntry:
    """An entry, with the part of its values that was read."""
    entry = shown.entry
    if shown.is_whole:
        return to_history(entry)
    holds = meaning_of(entry.kind).payload
    if holds is Payload.FAILURE:
        entry = replace(entry, payload=failure_of(entry.payload).encode())
    short: dict[str, Any] = {}
    if shown.input_size > WHOLE:
        short["input"] = beginning(entry.input or b"")
        entry = replace(entry, input=None)
    if shown.payload_size > WHOLE and holds is Payload.VALUE:
        short["result"] = beginning(entry.payload or b"")
        entry = replace(entry, payload=None)
    elif shown.payload_size > WHOLE and holds is Payload.EVENT:
        short["event"] = _event(entry.payload or b"")
        entry = replace(entry, payload=None)
    return replace(to_history(entry), **short)


def shown_value(raw: bytes, size: int) -> Any:
    """A stored value of that size, of which at least the beginning was read."""
    return beginning(raw) if size > WHOLE else showable(raw)


def data_text(shown: ShownEvent) -> str:
    """The data of an event as it was sent, or the beginning of it."""
    data = shown.event.data or b""
    return pretty(shown_value(data, shown.size)) if is_redacting() else data.decode("utf-8", "replace")


def preview(raw: bytes, size: int) -> str:
    """The beginning of a value, as JSON."""
    if is_redacting():
        return json.dumps(shown_value(raw, size), ensure_ascii=False)[:1000] if raw else ""
    return raw[:1000].decode("utf-8", "ignore")
