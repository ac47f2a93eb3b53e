"""The children of an instance: which are asked to cancel, and which are started before others or as it ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from romancy.core.dropped import Dropped
from romancy.core.operations import ChildCall, Operation
from romancy.core.outcome import Asked
from romancy.core.run import Run


class Offspring:
    """Gathers what is to be stored about children, until it is taken."""

    __slots__ = ("asks", "early", "opened", "unstarted")

    def __init__(self) -> None:
        self.asks: list[tuple[str, str]] = []
        """(child, reason) of children that are asked to cancel, with the commit of the step."""
        self.unstarted: list[ChildCall] = []
        """Free children that the run started just before it ended."""
        self.opened: list[ChildCall] = []
        """Children started in this step so far."""
        self.early = 0
        """How many of them were started before something was sent that may lead to an event for them."""

    def pass_on(
        self, ops: Iterable[Operation], before: int, run: Run, instance: str, dropped: Dropped | None, ended: str = ""
    ) -> None:
        """Give a fork children of its own from the cut on, instead of those that the original still waited for.

        Before the cut, the code sees the ids that it saw then. The child whose end is the last copied entry stays that
        of the original. A retry can drop that entry: then the cut comes with the next one. `before`: the entry that was
        fed before the last one; `ended`: the operation of the last one.
        """
        passed = [n for n, _, _ in run.seeds if before < n <= run.fed]
        if passed:
            kept = ended if run.fed in passed else None
            _adopt((op for op in ops if op.id != kept), run.alias(instance), dropped)

    def pass_cut(self, ops: Iterable[Operation], run: Run, instance: str, dropped: Dropped) -> None:
        """After a retry: a fork is past the cut, even if the retry dropped that entry and no later one was fed yet."""
        if run.fed < run.copied:
            _adopt(ops, instance, dropped)

    def end(self, opened: Iterable[Operation], endless: int | None) -> None:
        """The run ends. `opened`: operations that nobody knows of yet. `endless`: an activation that does not count."""
        children = [op for op in opened if isinstance(op, ChildCall) and op.activation != endless]
        self.unstarted = [child for child in children if child.is_free and not child.is_cancelled]

    def take(self, asked: Asked, ops: Mapping[str, Operation]) -> None:
        """Hand over what was asked since the last call."""
        asked.unstarted = self.unstarted
        asked.asks, self.asks = self.asks, []
        if asked.description is not None or asked.publication is not None:
            self.early = len(self.opened)  # a reader may send events to children at once
        asked.early = [call for call in self.opened[: self.early] if ops.get(call.id) is call]
        self.opened, self.early = [], 0

    def reload(self, ops: Iterable[Operation]) -> None:
        """After a replay: children that the code gave up were asked to cancel with the commit in which it did so."""
        self.asks = []
        for op in ops:
            if isinstance(op, ChildCall):
                op.is_asked = op.given_up


def with_child(offspring: Offspring | None, call: ChildCall) -> Offspring:
    """Note that the code has started a child."""
    offspring = Offspring() if offspring is None else offspring
    offspring.opened.append(call)
    return offspring


def note_sent(offspring: Offspring | None) -> None:
    """Note that children started in this step so far are to be stored with what was just sent or shown."""
    if offspring is not None:
        offspring.early = len(offspring.opened)


def _adopt(ops: Iterable[Operation], parent: str, dropped: Dropped | None) -> None:
    """Make open children those of a fork."""
    for op in ops:
        if isinstance(op, ChildCall):
            op.is_of_fork = True
            op.rename(parent, "" if dropped is None else dropped.suffix(op.id))
