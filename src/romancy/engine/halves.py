"""Taking a batch apart that is too much at once. What follows goes by the batch's own token; pure.

Whether an earlier submission got through may be unknown, so the halves stay parts of the same batch: what was stored
under its token is recognised as theirs. For that, items that are told apart only within a batch stay together (twins:
the same event twice, the same instance started twice), and requests keep their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from romancy.storage.batch import Batch

Item = tuple[str, Any, Any]
"""(kind, what is to be stored, whom to tell)"""

_EVENTS = ("accepts", "groups")


def fill(batch: Batch, items: list[Item]) -> Batch:
    """Put items into an empty batch."""
    batch.commits = [item for kind, item, _ in items if kind == "commits"]
    if len(batch.commits) < len(items):
        batch.starts = [item for kind, item, _ in items if kind == "starts"]
        batch.requests = [item for kind, item, _ in items if kind == "requests"]
        batch.looks = [item for kind, item, _ in items if kind == "looks"]
        accepts = [[item] if kind == "accepts" else item for kind, item, _ in items if kind in _EVENTS]
        batch.accepts = [item for group in accepts for item in group]
    return batch


def halves(batch: Batch, items: list[Item]) -> list[tuple[Batch, list[Item]]]:
    """Two batches instead of one; none where it can't be taken apart."""
    groups = _groups(items)
    middle = len(groups) // 2
    if not middle:
        return []
    first = [item for group in groups[:middle] for item in group]
    second = [item for group in groups[middle:] for item in group]
    asked = sum(kind == "requests" for kind, _, _ in first)
    empty = replace(batch, starts=(), commits=(), accepts=(), requests=(), looks=())
    return [(fill(replace(empty), first), first), (fill(replace(empty, asked=batch.asked + asked), second), second)]


def _groups(items: list[Item]) -> list[list[Item]]:
    """Items that have a name in common, directly or by way of others, in one group each."""
    groups: dict[int, list[Item]] = {}
    group_of: dict[object, int] = {}
    for n, item in enumerate(items):
        names = _names(item)
        home, *others = sorted({group_of[name] for name in names if name in group_of}) or [n]
        group = groups.setdefault(home, [])
        for other in others:
            group += groups.pop(other)
            group_of.update({name: home for name, of in group_of.items() if of == other})
        group.append(item)
        group_of.update(dict.fromkeys(names, home))
    return list(groups.values())


def _names(item: Item) -> Iterable[object]:
    """What must not be in two parts of a batch."""
    kind, what, _ = item
    if kind == "starts":
        return [what.id]
    events = what.sent if kind == "commits" else [what] if kind == "accepts" else what if kind == "groups" else ()
    return [(each.event.source, each.event.id) for each in events]


def describe(item: Item) -> str:
    """For people: what it is, and whose."""
    kind, what, _ = item
    if kind == "commits":
        return f"a step of instance {what.instance!r}"
    if kind == "starts":
        return f"the start of instance {what.id!r}"
    if kind == "requests":
        return f"a request to instance {what.instance!r}"
    if kind == "looks":
        return f"a look for events for instance {what[0]!r}"
    event = (what if kind == "accepts" else what[0]).event
    return f"event {event.id!r} from {event.source!r}"
