"""Questions to people, as the interfaces see them: which is open for whom, and what an answer does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from romancy.core.actor import current_actor, origin_of
from romancy.core.model import FINAL, Event, from_us
from romancy.core.questions import (
    ANSWERED,
    ASKED,
    COPIED,
    MOST_ANSWERS,
    SOURCE,
    Asked,
    answer_event,
    answer_id,
    asked_id,
    closing_id,
    operation_of,
    read_asked,
    refusal_id,
    started_of,
)
from romancy.errors import CodecError, InvalidInput
from romancy.runtime import Runtime
from romancy.storage.catalog import WaitPosition
from romancy.storage.opener import PLAIN
from romancy.storage.records import UNREAD, StoredWait

MOST_OPEN = 1000
State = Literal["open", "refused", "answered", "closed", "expired"]
"""`refused`: the workflow has refused so many answers of this person that only an operator can answer for them."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a question stands, for one person."""

    instance: str
    asked: Asked
    person: int
    state: State
    number: int = 1
    """Which answer of this person the next one is."""
    refused: str = ""
    """Why the last one was refused."""
    closed_by: str | None = None

    @property
    def name(self) -> str:
        return self.asked.people[self.person]

    @property
    def is_open_to_operators(self) -> bool:
        return self.state in ("open", "refused")


async def standing(runtime: Runtime, instance: str, key: str, person: int) -> Standing | None:
    """Return where a question stands; None if there is no such question, or it was asked by an earlier instance."""
    found = await _event(runtime, asked_id(instance, key))
    row = await runtime.engine.storage.catalog.instance(instance)
    if found is None or row is None or max(found.accepted_at, started_of(key)) < row.created_at:
        return None  # either alone may be earlier: the clock was set back, or it is a fork
    asked = read_asked(found)
    if person >= len(asked.people):
        return None
    number, refused, answered = await _answers(runtime, instance, asked, person)
    closed = await _event(runtime, closing_id(instance, key))
    closing: dict[str, Any] = json.loads(closed.data or b"{}") if closed is not None else {}
    state: State = "open"
    if number == COPIED or (answered is not None and (closed is None or answered.seq < closed.seq)):
        state = "answered"
    elif closing.get("how") == "expired":
        state = "expired"
    elif closed is not None or answered is not None or row.status in FINAL or not row.run.owns(operation_of(key)):
        state = "closed"  # also if it has continued as new since
    elif asked.expires_at is not None and asked.expires_at <= runtime.engine.clock.now():
        state = "expired"
    elif number > MOST_ANSWERS:
        state = "refused"
    return Standing(instance, asked, person, state, number, refused, closing.get("by"))


@dataclass(frozen=True, slots=True)
class Open:
    """A question whose answers an instance waits for at present."""

    instance: str
    workflow: str
    asked: Asked
    since: datetime
    answered: Sequence[str] = ()
    """Of a vote: the people who have answered."""

    @property
    def until(self) -> datetime | None:
        return None if self.asked.expires_at is None else from_us(self.asked.expires_at)


async def asked_by(runtime: Runtime, instance: str, key: str) -> Asked | None:
    """Return a question of an instance."""
    event = await _event(runtime, asked_id(instance, key))
    return None if event is None else read_asked(event)


async def all_open(
    runtime: Runtime, limit: int, after: WaitPosition | None = None
) -> tuple[list[Open], WaitPosition | None]:
    """Return open questions of all instances, and where to go on."""
    rows = await runtime.engine.storage.catalog.waits_for(ANSWERED, limit + 1, after)
    found = await open_of(runtime, [wait for _, wait in rows[:limit]])
    return found, rows[limit - 1][0] if len(rows) > limit else None


async def open_of(runtime: Runtime, waits: Iterable[StoredWait]) -> list[Open]:
    """Return the questions whose answers these waits are for."""
    found: dict[tuple[str, str], Open] = {}
    for wait in waits:
        try:
            key = PLAIN.filter_of(wait.spec).subject or ""
            event = await _event(runtime, asked_id(wait.instance, key)) if (wait.instance, key) not in found else None
        except (CodecError, KeyError):
            found[wait.instance, wait.op] = _sealed(wait)
            continue
        if event is not None:
            asked = read_asked(event)
            answered = () if asked.needed is None else await _answered(runtime, wait.instance, asked)
            found[wait.instance, key] = Open(wait.instance, wait.workflow, asked, from_us(event.accepted_at), answered)
    return list(found.values())


def _sealed(wait: StoredWait) -> Open:
    """Return a question that can't be opened without the key: only that it was asked, and by whom."""
    label = json.loads(wait.spec).get(UNREAD, "") if wait.spec.startswith(b"{") else ""
    operation = wait.op.removeprefix("answer ").rpartition(":")[0]
    asked = Asked(f"{operation}..", f"sealed ({label})", "", (), {})  # its digest and its time are not known
    return Open(wait.instance, wait.workflow, asked, from_us(wait.created_at))


async def _answered(runtime: Runtime, instance: str, asked: Asked) -> Sequence[str]:
    """Return the people whose answers to a vote stand. Only ids are looked up: an answer can be large, or sealed."""
    exact = runtime.engine.storage.catalog.exact
    copied = {refusal_id(answer_id(instance, asked.key, place, COPIED)): place for place in asked.given}
    known = await exact.existing(SOURCE, [*copied]) if copied else set[str]()
    answered = {place for id, place in copied.items() if id not in known}
    left = [place for place in range(len(asked.people)) if place not in answered]
    for number in range(1, MOST_ANSWERS + 1):
        answers = {answer_id(instance, asked.key, place, number): place for place in left}
        ids = [*answers, *map(refusal_id, answers)]
        known = await exact.existing(SOURCE, ids) if ids else set[str]()
        left = [place for id, place in answers.items() if id in known and refusal_id(id) in known]
        answered |= {place for id, place in answers.items() if id in known} - {*left}
    return [person for place, person in enumerate(asked.people) if place in answered]


async def find_open(runtime: Runtime, instance: str, person: str, ask_id: str | None) -> Standing:
    """Return the open question of an instance to a person; raise `InvalidInput` if there is none, or several."""
    asked = await runtime.engine.storage.catalog.exact.sent_to(instance, ASKED, MOST_OPEN)
    found = {read_asked(event).key: read_asked(event) for event in asked}
    fitting = [q for q in found.values() if person in q.people and ask_id in (None, operation_of(q.key))]
    standings = [await standing(runtime, instance, q.key, q.people.index(person)) for q in fitting]
    open = [s for s in standings if s is not None and s.is_open_to_operators]
    if len(open) == 1:
        return open[0]
    last = next((s for s in standings if s is not None), None)
    if len(open) > 1:
        ids = ", ".join(operation_of(s.asked.key) for s in reversed(open))  # as they were asked
        why = f"it has several open questions to {person!r}, so give ask_id: {ids}"
    elif last is not None:
        why = f"{person!r} can't answer {last.asked.title!r}: it is {last.state}"
    else:
        people = ", ".join(dict.fromkeys(name for q in found.values() for name in q.people)) or "no one"
        why = f"it has no open question to {person!r}; it has asked {people}"
    raise InvalidInput(f"instance {instance!r}: {why}")


async def _answers(runtime: Runtime, instance: str, asked: Asked, person: int) -> tuple[int, str, Event | None]:
    """Return which answer of a person is next, why the last was refused, and the one that stands.

    One that a fork has copied has no event in the name of the fork, but comes first.
    """
    why = ""
    for number in itertools.count(COPIED if person in asked.given else COPIED + 1):
        id = answer_id(instance, asked.key, person, number)
        given = await _event(runtime, id)
        if given is None and number != COPIED:
            return number, why, None
        refused = await _event(runtime, refusal_id(id))
        if refused is None:
            return number, "", given
        why = json.loads(refused.data or b"{}").get("why", "")
    raise AssertionError  # unreachable


async def _event(runtime: Runtime, id: str) -> Event | None:
    shown = await runtime.engine.storage.catalog.exact.event(SOURCE, id)
    return None if shown is None else shown.event


def to_answer(standing: Standing, answer: Any, by: str, via: str) -> Event:
    """Return the answer as an event. The first one of a person that is stored counts; others are duplicates.

    If it is given by name, with a token, that is recorded with it.
    """
    key, who = standing.asked.key, current_actor()
    event = answer_event(standing.instance, key, standing.person, standing.number, answer, by, via)
    return event if who is None else replace(event, origin=origin_of(via, who))


def operator_for(person: str) -> str:
    """Return the signature of an answer that an operator gives in place of a person."""
    return f"{current_actor() or 'an operator'}, for {person}"
