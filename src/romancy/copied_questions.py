"""Open questions in the history that a fork copies. They are asked again: an answer is for one instance only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from romancy.core.dropped import standing
from romancy.core.history import Entry, Kind, unpack_event
from romancy.core.questions import ANSWERED, ASKED, CLOSED, REFUSED, SOURCE, read_asked
from romancy.core.retrial import Fact, facts_of
from romancy.engine.engine import Engine


async def ask_again(engine: Engine, fork: str, entries: Sequence[Entry]) -> None:
    """Ask the open questions among the copied entries of a fork in its own name. Copied answers count."""
    counted = standing(entries)[0]
    sent = [json.loads(entry.input or b"{}") for entry in counted if entry.kind == Kind.EVENT_SENT]
    closed = {event["subject"] for event in sent if event.get("type") == CLOSED}
    for question in (event for event in sent if event.get("type") == ASKED and event["subject"] not in closed):
        found = await engine.storage.catalog.exact.event(SOURCE, question["id"])
        if found is not None:
            asked = replace(read_asked(found.event), given=_given(question["subject"], counted))
            await engine.accept(asked.to_event(fork))


def _given(key: str, entries: Sequence[Entry]) -> Sequence[int]:
    """Return the places of the people whose answers to a question were received, and not refused.

    The last one can still be: the fork reads it once more, and what its original did then is not copied.
    """
    places: set[int] = set()
    for fact in facts_of(entries):
        if fact.entry is not None and fact.entry.kind == Kind.EVENT_RECEIVED and not _refuses(fact):
            event = unpack_event(fact.entry.payload or b"{}")
            if event.type == ANSWERED and event.subject == key:
                places.add(json.loads(event.data or b"{}")["person"])
    return sorted(places)


def _refuses(fact: Fact) -> bool:
    """Return whether the code refused an answer as soon as it had it. The id may be that of an original's answer."""
    marks = (json.loads(mark.input or b"{}") for mark in fact.marks if mark.kind == Kind.EVENT_SENT)
    return any(sent.get("type") == REFUSED for sent in marks)
