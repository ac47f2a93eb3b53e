"""Children: starts them after the commit that asked for them.

Whoever replays the parent asks for them again, and a start is idempotent. Until all its children are known to exist, a
parent counts as running, so that another worker claims it if this one dies, and it is fed nothing: a start and a
request to cancel the same child must not share a batch.

After a parent was read, the database is asked which of its children exist: those that its code has only since a change
do not. If one exists under another id, because changed code chooses another one, the parent is blocked. Otherwise a
second child would be started. It is also blocked if a child was started by another operation, because changed code
starts another workflow under its id: its end would be told to an operation that is not there. A child of a former run
does not count, nor does one that the same code started by another call: to start it again is refused. After a retry, a
few children are just started again, which finds them.

Children that were started before their parent sent or showed something in the same step are stored with it, so that
they get the events to which it leads. Then they are started like the others, which finds them. If they may be older,
they are looked for before that. Activities begin when the children that were started before them are stored, for the
same reason.

Changed code may also do something else before it reaches an open child. If the child ends meanwhile, its end is told to
an operation that the parent does not have yet, and is lost. So when a child turns out to exist already, the storage is
asked to tell its end again if it has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from romancy.core.clock import Clock
from romancy.core.divergence import left_history
from romancy.core.failure import Failure
from romancy.core.history import Kind
from romancy.core.instance import Instance
from romancy.core.model import WAITING
from romancy.core.operations import ChildCall
from romancy.core.registry import Registry
from romancy.engine.committer import Committer
from romancy.engine.exits import Exits
from romancy.engine.inbox import Inboxes
from romancy.engine.mail import child_start
from romancy.engine.outage import Outage
from romancy.engine.resident import IDLE, MANY_CHILDREN, STARTING, Answered, ChildEnded, ChildFound, Resident
from romancy.engine.revival import Revival
from romancy.engine.step import Step
from romancy.errors import NonDeterminismError
from romancy.storage.batch import Start, StartAnswer
from romancy.storage.errors import TransientError
from romancy.storage.protocol import Storage
from romancy.storage.records import KnownChild

_logger = logging.getLogger("romancy")

T = TypeVar("T")


@dataclass(slots=True)
class _Found:
    """What the database knows of the children that an instance asks for."""

    missing: Sequence[ChildCall]
    sound: Sequence[ChildCall]
    """Missing children that were not started under another id. They can be stored even if there is an error."""
    there: Sequence[ChildFound]
    error: NonDeterminismError | None


ASKED = 1000
"""How many children are looked for at a time."""
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
        storage: Storage,
        outage: Outage,
    ) -> None:
        self._clock, self._registry, self._inboxes = clock, registry, inboxes
        self._residents, self._committer = inboxes.residents, committer
        self._exits, self._revival = exits, revival
        self._storage, self._outage = storage, outage
        self._searches: set[asyncio.Task[None]] = set()
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return f"<Children searches={len(self._searches)}>"

    @property
    def is_idle(self) -> bool:
        return not self._searches

    async def found(self) -> None:
        """Wait until all children are found that are looked for. Meanwhile nothing is stored of their parents."""
        while self._searches:
            await asyncio.wait(self._searches)

    def stop(self) -> None:
        """Stop looking for children."""
        for search in self._searches:
            search.cancel()

    def store_with(self, step: Step, store: Callable[[], None]) -> None:
        """Let the commit of a step store children. `store` submits it."""
        parent = step.resident
        if parent.is_read and step.retrial is None and step.asked.outcome is None:
            self._search(parent, step.births, partial(self._looked, step, store))
        else:
            self._store(step, step.births, store)

    def _looked(self, step: Step, store: Callable[[], None], found: _Found) -> None:
        if not step.resident.is_gone:
            # The step is stored in any case, for it may have been fed results. The parent is blocked after that.
            # So are its other children: the events that the step sends are for them, and are not sent again.
            self._store(step, found.sound, store)

    def _store(self, step: Step, calls: Sequence[ChildCall], store: Callable[[], None]) -> None:
        first = {call.child: call for call in reversed(calls)}  # later ones are refused when they are started
        once = [call for call in calls if first[call.child] is call]
        step.commit.children = [self._start_of(step.resident, call, step.now) for call in once]
        store()

    def _start_of(self, parent: Resident, call: ChildCall, now: int) -> Start:
        start = child_start(parent.instance, call, now)
        if start.place is not None:
            start.created_at = self._registry.arrivals.next(now)
        definition = self._registry.latest(call.workflow) if call.definition is None else call.definition
        if definition is not None:
            start.workflow = definition.name
        return start

    def find(self, parent: Resident, calls: Sequence[ChildCall]) -> None:
        """Start those children that don't exist yet."""
        if len(calls) <= MANY_CHILDREN and _may_have_old(parent):
            self.start(parent, calls)
        else:
            self._search(parent, calls, partial(self._found, parent))

    def _search(self, parent: Resident, calls: Sequence[ChildCall], done: Callable[[_Found], None]) -> None:
        parent.state = STARTING
        search = asyncio.create_task(self._look_for(parent, calls, done))
        self._searches.add(search)
        search.add_done_callback(self._searches.discard)

    async def _look_for(self, parent: Resident, calls: Sequence[ChildCall], done: Callable[[_Found], None]) -> None:
        what = f"children of {parent.instance.id}"
        try:
            found = await self._look(parent, calls, what)
        finally:
            self._outage.left(what)
        # What follows may run user code, which must not happen inside a task.
        asyncio.get_running_loop().call_soon(done, found)

    async def _look(self, parent: Resident, calls: Sequence[ChildCall], what: str) -> _Found:
        missing: list[ChildCall] = []
        there: list[ChildCall] = []
        known: dict[str, KnownChild] = {}
        instance = parent.instance
        for first in range(0, len(calls), ASKED):
            asked = calls[first : first + ASKED]
            known |= await self._ask(what, partial(self._storage.children, instance.id, [call.child for call in asked]))
            if instance.dropped is None:
                known = {id: kid for id, kid in known.items() if kid.op is not None and instance.run.owns(kid.op)}
            found = {call.id for call in asked if call.child in known and not _is_taken(instance, call, known)}
            missing += [call for call in asked if call.id not in found]
            there += [call for call in asked if call.id in found]
        error, sound = None, missing
        if instance.dropped is None:
            error = _changed_operation(instance, there, known)
            if missing:
                stored = await self._ask(what, partial(self._storage.catalog.started_children, instance.id))
                sound = [call for call in missing if stored.get(call.id, call.child) == call.child]
                error = error or _changed_id(instance, missing, stored)
        if not (may_be_old := _may_have_old(parent)):
            there = [call for call in there if known[call.child].has_ended]
        return _Found(missing, sound, [ChildFound(call.id, may_be_old) for call in there], error)

    async def _ask(self, what: str, read: Callable[[], Awaitable[T]]) -> T:
        pause = 0.1
        while True:
            try:
                found = await read()
            except Exception as error:  # the parent can't go on before this is known, whatever it is
                if isinstance(error, TransientError):
                    self._outage.noticed(what, error)
                else:
                    _logger.error("%s can't be read (%s); they are looked for again in %.1f s", what, error, pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 30.0)
            else:
                self._outage.over(what)
                return found

    def _found(self, parent: Resident, found: _Found) -> None:
        if parent.is_gone:
            return
        if found.error is not None:
            self._exits.block(parent, found.error)
            return
        ended = {input.op for input in parent.inbox if isinstance(input, ChildEnded)}
        missing = [call for call in found.missing if call.id not in ended]  # others were removed since they ended
        parent.inbox += found.there
        if missing:
            self.start(parent, missing)
        else:
            self._all_started(parent)

    def start(self, parent: Resident, calls: Sequence[ChildCall], *, rejoined: bool = False) -> None:
        """Start the children that a stored commit asked for. `rejoined`: it took care of those that are there."""
        parent.state, parent.starting = STARTING, len(calls)
        may_be_old = _may_have_old(parent)
        for n, call in enumerate(calls):
            start = self._start_of(parent, call, self._clock.now())
            is_here = self._registry.get(start.workflow) is not None
            if not is_here and call.definition is not None:
                self._warn(start.workflow, call.child)
            may_keep = not self._storage.is_remote or n < KEPT
            may_keep = may_keep and start.place is None  # it has no owner before it is admitted
            start.mine = may_keep and is_here and self._residents.reserve()
            found = None if rejoined else ChildFound(call.id, may_be_old)
            done = partial(self._started, parent, call, start, found)
            self._committer.start_child(start, self._revival.begin, done)

    def _warn(self, workflow: str, child: str) -> None:
        """Say once that this app does not run a workflow whose code it has: that may be an oversight."""
        if workflow not in self._warned:
            self._warned.add(workflow)
            text = "workflow %r is not in workflows=[...] of this app, so instance %r waits for a worker that has it"
            _logger.warning(text, workflow, child)

    def _started(
        self,
        parent: Resident,
        call: ChildCall,
        start: Start,
        found: ChildFound | None,
        answer: StartAnswer | Exception,
    ) -> None:
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
        elif found is not None and not answer.created:
            parent.inbox.append(found)
        if parent.starting == 0:
            self._all_started(parent)

    def _all_started(self, parent: Resident) -> None:
        parent.state = IDLE
        after, parent.after_children = parent.after_children, None
        if parent.lost:
            self._exits.reload(parent)
            return
        if after is not None:
            after()
        self._inboxes.schedule(parent)  # it is stored that it only waits now

    def _refuse(self, parent: Resident, call: ChildCall, problem: str) -> None:
        failure = Failure("InstanceExists", problem)
        parent.inbox.append(Answered(call.id, Kind.CHILD_REFUSED, failure.encode()))


def _may_have_old(parent: Resident) -> bool:
    """Return whether children that are found can be from before a retry. Those of one that waits were all started."""
    return parent.instance.dropped is not None and parent.status not in WAITING


def _is_taken(instance: Instance, call: ChildCall, known: Mapping[str, KnownChild]) -> bool:
    """Return whether the same code started the child by another call. Then to start it again is refused.

    After a retry, any other call counts: the end of the child is not told to this one.
    """
    op = known[call.child].op
    return op != call.id and (instance.dropped is not None or instance.run.has_given(op or ""))


def _changed_id(
    instance: Instance, missing: Sequence[ChildCall], stored: Mapping[str, str]
) -> NonDeterminismError | None:
    """Return the error if an open child was started under another id than the code chooses now."""
    for call in missing:
        started = stored.get(call.id)
        if started is not None and started != call.child:
            recorded = f"child {call.id} was started with the id {started!r}"
            asked = f"starts {call} with the id {call.child!r}"
            return left_history(instance.id, instance.definition.name, recorded, asked)
    return None


def _changed_operation(
    instance: Instance, there: Sequence[ChildCall], known: Mapping[str, KnownChild]
) -> NonDeterminismError | None:
    """Return the error if a child was started by another operation than the one that waits for it now."""
    for call in there:
        if (op := known[call.child].op) != call.id:
            recorded = f"child {call.child!r} was started by {op}"
            return left_history(instance.id, instance.definition.name, recorded, f"starts it by {call}")
    return None
