"""Children: starts them after the commit that asked for them.

Whoever replays the parent asks for them again, and a start is idempotent. Until all its children are known to exist, a
parent counts as running, so that another worker claims it if this one dies, and it is fed nothing: a start and a
request to cancel the same child must not share a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from romancy.core.clock import Clock
from romancy.core.failure import Failure
from romancy.core.history import Kind
from romancy.core.operations import ChildCall
from romancy.core.registry import Registry
from romancy.engine.committer import Committer
from romancy.engine.exits import Exits
from romancy.engine.inbox import Inboxes
from romancy.engine.mail import child_start
from romancy.engine.resident import IDLE, STARTING, Answered, Resident
from romancy.engine.revival import Revival
from romancy.storage.batch import Start, StartAnswer

KEPT = 100
"""How many children of one step this worker runs itself where other workers could share the load."""


class Children:
    """Starts children."""

    def __init__(
        self,
        clock: Clock,
        registry: Registry,
        inboxes: Inboxes,
        committer: Committer,
        exits: Exits,
        revival: Revival,
        *,
        shares: bool,
    ) -> None:
        self._clock, self._registry, self._inboxes = clock, registry, inboxes
        self._residents, self._committer = inboxes.residents, committer
        self._exits, self._revival, self._shares = exits, revival, shares

    def start(self, parent: Resident, calls: Sequence[ChildCall]) -> None:
        """Start the children that a stored commit asked for."""
        parent.state, parent.starting = STARTING, len(calls)
        for n, call in enumerate(calls):
            start = child_start(parent.instance.id, call, self._clock.now())
            definition = self._registry.latest(call.workflow) if call.definition is None else call.definition
            if definition is not None:
                start.workflow = definition.name
            may_keep = not self._shares or n < KEPT
            start.mine = may_keep and self._registry.get(start.workflow) is not None and self._residents.reserve()
            self._committer.start_child(start, self._revival.begin, partial(self._started, parent, call, start))

    def _started(self, parent: Resident, call: ChildCall, start: Start, answer: StartAnswer | Exception) -> None:
        if start.mine:
            self._residents.unreserve()
        if parent.is_gone:
            return
        parent.starting -= 1
        if (call.given_up or call.is_cancelled) and parent.instance.offspring is not None:
            # Perhaps it was asked before: that makes no difference.
            parent.instance.offspring.asks.append((call.child, "its parent no longer waits for it"))
        if isinstance(answer, Exception):
            self._refuse(parent, call, str(answer))
        elif answer.lost:
            parent.lost = True
        elif not answer.created and not answer.same:
            self._refuse(
                parent, call, f"instance {call.child!r} exists already, and is not a child of {parent.instance.id!r}"
            )
        elif answer.created and not answer.owned:
            self._residents.on_work()
        if parent.starting == 0:
            self._all_started(parent)

    def _all_started(self, parent: Resident) -> None:
        parent.state = IDLE
        if parent.lost:
            self._exits.reload(parent)
        else:
            self._inboxes.schedule(parent)  # it is stored that it only waits now

    def _refuse(self, parent: Resident, call: ChildCall, problem: str) -> None:
        failure = Failure("InstanceExists", problem)
        parent.inbox.append(Answered(call.id, Kind.CHILD_REFUSED, failure.encode()))
