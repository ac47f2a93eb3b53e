"""Open questions in the history that a fork copies. They are asked again: an answer is for one instance only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from romancy.core.dropped import standing
from romancy.core.history import Entry, Kind, unpack_event
from romancy.core.questions import ANSWERED, ASKED, CLOSED, SOURCE, read_asked, refusal_id
from romancy.engine.engine import Engine


async def ask_again(engine: Engine, fork: str, entries: Sequence[Entry]) -> None:
    """Ask the open questions among the copied entries of a fork in its own name. Copied answers count."""
    counted = standing(entries)[0]
    sent = [json.loads(entry.input or b"{}") for entry in counted if entry.kind == Kind.EVENT_SENT]
    closed = {event["subject"] for event in sent if event.get("type") == CLOSED}
    for question in (event for event in sent if event.get("type") == ASKED and event["subject"] not in closed):
        found = await engine.storage.catalog.exact.event(SOURCE, question["id"])
        if found is not None:
            asked = replace(read_asked(found.event), given=_given(question["subject"], counted, sent))
            await engine.accept(asked.to_event(fork))


def _given(key: str, entries: Sequence[Entry], sent: Sequence[Mapping[str, Any]]) -> Sequence[int]:
    """Return the places of the people whose answers to a question were received, and not refused."""
    ids = {event.get("id") for event in sent}
    received = [unpack_event(entry.payload or b"{}") for entry in entries if entry.kind == Kind.EVENT_RECEIVED]
    answers = [event for event in received if event.type == ANSWERED and event.subject == key]
    return sorted({json.loads(event.data or b"{}")["person"] for event in answers if refusal_id(event.id) not in ids})
