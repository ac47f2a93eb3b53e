"""The children of an instance, as `show` and `why` present them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from romancy.cli.target import Standing, Target
from romancy.cli.words import clean, one_line
from romancy.core.model import Status
from romancy.errors import InstanceNotFound
from romancy.records import Instance, Wait
from romancy.storage.batch import STATUS_CODES
from romancy.verbs import Verbs

_UNSUCCESSFUL = frozenset[Status]({"failed", "cancelled"})
_CHILD_FAILURES = frozenset({"child_failed", "child_cancelled"})
SHOWN = 20
"""Children that are shown one by one."""


@dataclass(frozen=True)
class Children:
    """The newest children of an instance, and how many there are of each status."""

    items: Sequence[Instance]
    counts: Mapping[Status, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


async def children_of(verbs: Verbs, id: str) -> Children:
    """Return the children of an instance."""
    page = await verbs.list_instances(parent=id, limit=SHOWN)
    if page.cursor is None:
        found = [item.status for item in page.items]
        counts: dict[Status, int] = {status: found.count(status) for status in STATUS_CODES}
    else:
        counts = {status: await verbs.count_instances(parent=id, status=status) for status in STATUS_CODES}
    return Children(page.items, {status: n for status, n in counts.items() if n})


async def awaited(verbs: Verbs, waits: Sequence[Wait]) -> list[str]:
    """Describe the children that an instance waits for: `it waits for child p/pay:1, which is running`."""
    found = [(wait.child, wait.is_free) for wait in waits if wait.child is not None]
    lines = [_relation(clean(id), is_free) + await _state(verbs, id) for id, is_free in found[:SHOWN]]
    return lines if len(found) <= SHOWN else [*lines, f"{len(found) - SHOWN} more of its children are open"]


def _relation(child: str, is_free: bool) -> str:
    return f"child {child} goes on by itself, and " if is_free else f"it waits for child {child}, which "


async def is_replaced_with_parent(target: Target, child: Standing) -> bool:
    """Whether a retry of its parent starts another child in the place of this one, because it has undone its steps."""
    instance = child.instance
    if instance.parent is None or not child.has_undone or instance.status not in _UNSUCCESSFUL:
        return False
    try:
        parent = await target.standing(instance.parent)
    except InstanceNotFound:
        return False
    if parent.has_undone or parent.instance.status not in _UNSUCCESSFUL:
        return False
    led = {entry.operation for entry in parent.led_to_end if entry.kind in _CHILD_FAILURES}
    _, slash, op = instance.instance_id.partition(f"{instance.parent}/")
    return op.split("~")[0] in led if slash else bool(led)  # an id that the code chose does not tell the operation


async def _state(verbs: Verbs, id: str) -> str:
    try:
        child = await verbs.get_instance(id)
    except InstanceNotFound:
        return "was deleted"
    if child.status == "blocked" and child.error:
        return f"is blocked: {one_line(child.error['message'], 300)}; `romancy why {clean(id)}` shows more"
    return f"is {child.status}"
