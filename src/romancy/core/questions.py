"""Questions to people, as they are stored: three kinds of events, all of Romancy's own and sent to the instance.

    romancy.asked     the question: what to show, to whom, until when. Sent when the workflow asks
    romancy.answered  the answer of one person. Sent by the page, the viewer or a program
    romancy.refused   the workflow's own validators refused an answer; the person can give another one
    romancy.closed    no more answers count. Sent in the commit with which the workflow goes on

The key of a question is never used again: it is the id of its operation, with a digest of what was asked and the time
its instance was started. A retry can ask something else under the same id, and ids of instances can be used again after
retention: an old link or answer must not answer a new question. On replay, the recorded key counts, so the words of a
question can be improved. The id of an answer contains the person, so the first answer of a person is stored and a
second one is a duplicate.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from romancy.core.events import MAX_TEXT, check_text
from romancy.core.model import Event

SOURCE = "romancy:ask"
ASKED, ANSWERED, REFUSED, CLOSED = "romancy.asked", "romancy.answered", "romancy.refused", "romancy.closed"
MOST_PEOPLE = 1000
MOST_ANSWERS = 5
"""How often one person can answer until the workflow accepts it."""
LONGEST_TITLE, LONGEST_TEXT = 300, 10_000
LONGEST_ASK_ID = 200
"""Bytes. The key adds up to 50, and a ticket has room for 255."""
COPIED = 0
"""The number of an answer that a fork has copied, in the fork's own name."""
_DIGEST = 12


@dataclass(frozen=True, slots=True)
class Asked:
    """A question."""

    key: str
    title: str
    text: str
    people: Sequence[str]
    schema: Mapping[str, Any]
    """The type of the answer, as JSON Schema."""
    expires_at: int | None = None
    """Microseconds since 1970."""
    needed: int | None = None
    """Of a vote: how many must agree."""
    given: Sequence[int] = ()
    """The places of the people whose answers a fork has copied: they have answered, unless the fork refuses it."""

    @property
    def data(self) -> Mapping[str, Any]:
        """What is asked, without its key."""
        return {
            "title": self.title,
            "text": self.text,
            "people": list(self.people),
            "schema": self.schema,
            "expires_at": self.expires_at,
            "needed": self.needed,
            **({"given": list(self.given)} if self.given else {}),
        }

    def to_event(self, instance: str) -> Event:
        return _event(ASKED, asked_id(instance, self.key), self.key, instance, self.data)


def read_asked(event: Event) -> Asked:
    data = json.loads(event.data or b"{}")
    return Asked(event.subject or "", **data)


def key_of(operation: str, started_at: int, data: Mapping[str, Any], before: Sequence[str] = ()) -> str:
    """Return the key of a question. `before`: the keys of those that retries have dropped, oldest first.

    The last of them is asked again if nothing has changed. An earlier one was closed when another one replaced it.
    """
    for number in itertools.count():
        words = json.dumps([number, data], sort_keys=True).encode()
        key = f"{operation}.{hashlib.sha256(words).hexdigest()[:_DIGEST]}.{started_at:x}"
        if key not in before or key == before[-1]:
            return key
    raise AssertionError  # unreachable


def operation_of(key: str) -> str:
    return key.rsplit(".", 2)[0]


def started_of(key: str) -> int:
    """Return when the instance of a question was started, as its code knows it."""
    try:
        return int(key.rpartition(".")[2], 16)
    except ValueError:
        return 0


def asked_id(instance: str, key: str) -> str:
    return f"{instance}/{key}"


def answer_id(instance: str, key: str, person: int, number: int) -> str:
    """Return the id of the answer of a person: the first, or another one after so many were refused."""
    return f"{instance}/{key}/{person}.{number}"


def refusal_id(answer: str) -> str:
    return f"{answer}/refused"


def closing_id(instance: str, key: str) -> str:
    return f"{instance}/{key}/closed"


def answer_event(instance: str, key: str, person: int, number: int, answer: Any, by: str, via: str) -> Event:
    """Return the answer of a person, given by itself or by someone else: `by` is who, `via` how it was given."""
    data = {"person": person, "answer": answer, "by": by, "via": via}
    return _event(ANSWERED, answer_id(instance, key, person, number), key, instance, data)


def refused_event(instance: str, key: str, answer: str, why: str) -> Event:
    """Return the refusal of an answer. That of a copied one is the fork's own: its original may have refused it too."""
    asked, _, given = answer.rpartition("/")
    if asked != asked_id(instance, key):
        answer = answer_id(instance, key, int(given.partition(".")[0]), COPIED)
    return _event(REFUSED, refusal_id(answer), key, instance, {"why": why[:MAX_TEXT]})


def closed_event(instance: str, key: str, how: str, by: str | None) -> Event:
    return _event(CLOSED, closing_id(instance, key), key, instance, {"how": how, "by": by})


def _event(type: str, id: str, key: str, instance: str, data: Mapping[str, Any]) -> Event:
    raw = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    for name, text in (("id", id), ("subject", key)):
        check_text(name, text)
    return Event(id, SOURCE, type, raw, key, datacontenttype="application/json", target=instance)


def check_people(people: Sequence[str]) -> Sequence[str]:
    if isinstance(people, str):
        raise ValueError(f"people must be a list: people=[{people!r}]")
    if not isinstance(people, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"people must be a list of texts, not {people!r}")
    for person in people:
        if not isinstance(person, str) or not person or len(person) > MAX_TEXT or not person.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"people are texts, such as addresses, not {person!r}")
    if not people or len(people) > MOST_PEOPLE:
        raise ValueError(f"a question has 1 to {MOST_PEOPLE:,} people, not {len(people):,}")
    twice, times = Counter(people).most_common(1)[0]
    if times > 1:
        raise ValueError(f"{twice!r} is among the people twice")
    return tuple(people)


def check_ask_id(ask_id: str) -> None:
    if " " in ask_id or "/" in ask_id or not ask_id.isprintable():
        raise ValueError(f"an ask_id has no spaces, slashes and control characters, got {ask_id!r}")
    if len(ask_id.encode()) > LONGEST_ASK_ID:
        raise ValueError(f"an ask_id has at most {LONGEST_ASK_ID} bytes, because links contain it, got {ask_id!r}")


def check_words(name: str, text: Any, most: int) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > most:
        raise ValueError(f"{name} must be a text of 1 to {most:,} characters")
    return text
