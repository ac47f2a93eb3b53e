"""Batches in parts."""

from __future__ import annotations

from typing import Any

from romancy.core.model import Event
from romancy.engine.halves import halves
from romancy.engine.items import CommitItem, EventsItem, Item, LookItem, RequestItem, StartItem, fill
from romancy.storage.batch import CANCEL, Accept, Batch, Commit, Request, Start

FUTURE: Any = None
"""Nobody waits."""


def batch(*items: Item) -> tuple[Batch, list[Item]]:
    return fill(Batch("me", (), b"token", 0), list(items)), list(items)


def event(id: str) -> Accept:
    return Accept(Event(id=id, source="s", type="go"), b"")


def parts(*items: Item) -> list[list[str]]:
    return [[str(item) for item in part] for _, part in halves(*batch(*items))]


def test_halves_keep_order_and_token() -> None:
    items = [CommitItem(Commit(id, 0, "running", 0), FUTURE) for id in "abcde"]
    (first, _), (second, _) = halves(*batch(*items))
    assert [commit.instance for commit in first.commits] == ["a", "b"]
    assert [commit.instance for commit in second.commits] == ["c", "d", "e"]
    assert first.token == second.token == b"token"


def test_one_item_has_no_halves() -> None:
    assert halves(*batch(LookItem("a", None))) == []


def test_requests_keep_their_numbers() -> None:
    items = [RequestItem(Request(id, CANCEL, b"", 0), FUTURE) for id in "abcdefg"]
    whole, items = batch(*items)
    left = [(whole, items)]
    numbers: dict[str, int] = {}
    while left:
        part, of = left.pop()
        numbers |= {request.instance: part.asked + n for n, request in enumerate(part.requests)}
        left += halves(part, of)
    assert numbers == {id: n for n, id in enumerate("abcdefg")}


def test_twins_stay_together() -> None:
    start = StartItem(Start("a", "wf", b"", 0, 0), FUTURE, FUTURE)
    one, two = EventsItem([event("1")], True, FUTURE), EventsItem([event("2")], True, FUTURE)
    assert parts(start, one, start) == [["the start of instance 'a'"] * 2, ["event '1' from 's'"]]
    assert parts(one, two, one, two) == [["event '1' from 's'"] * 2, ["event '2' from 's'"] * 2]
    assert parts(one, one) == []


def test_groups_and_senders_have_twins_too() -> None:
    group = EventsItem([event("1"), event("2")], False, FUTURE)
    sending = CommitItem(Commit("a", 0, "running", 0, sent=[event("3"), event("2")]), FUTURE)
    single, other = EventsItem([event("3")], True, FUTURE), LookItem("b", None)
    assert parts(single, group, sending) == [], "the sender has one in common with each"
    assert [len(part) for part in parts(single, other, group, sending)] == [3, 1]
