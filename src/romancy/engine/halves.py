"""Splits a batch that is too large. The parts keep the token of the batch. Pure.

An earlier submission with an unknown outcome may have been stored. So the halves stay parts of the same batch, and
items stored under its token are recognized as theirs. For that, items that can be told apart only within a batch stay
together (twins: the same event twice, the same instance started twice), and requests keep their numbers.
"""

from __future__ import annotations

from dataclasses import replace

from romancy.engine.items import Item, RequestItem, fill
from romancy.storage.batch import Batch


def halves(batch: Batch, items: list[Item]) -> list[tuple[Batch, list[Item]]]:
    """Split a batch in two. Return an empty list if it can't be split."""
    groups = _groups(items)
    middle = len(groups) // 2
    if not middle:
        return []
    first = [item for group in groups[:middle] for item in group]
    second = [item for group in groups[middle:] for item in group]
    asked = sum(isinstance(item, RequestItem) for item in first)
    empty = replace(batch, starts=(), commits=(), accepts=(), requests=(), looks=())
    return [(fill(replace(empty), first), first), (fill(replace(empty, asked=batch.asked + asked), second), second)]


def _groups(items: list[Item]) -> list[list[Item]]:
    """Group items that share a name, directly or through other items."""
    groups: dict[int, list[Item]] = {}
    group_of: dict[object, int] = {}
    for n, item in enumerate(items):
        names = item.names
        home, *others = sorted({group_of[name] for name in names if name in group_of}) or [n]
        group = groups.setdefault(home, [])
        for other in others:
            group += groups.pop(other)
            group_of.update({name: home for name, of in group_of.items() if of == other})
        group.append(item)
        group_of.update(dict.fromkeys(names, home))
    return list(groups.values())
