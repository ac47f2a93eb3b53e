"""The scheduler: feeds the instances that are ready. Everything their code does up to its next wait is one commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from romancy.core import garbage
from romancy.core.admission import Admission
from romancy.core.clock import Clock
from romancy.core.queues import Queue
from romancy.engine.children import Children
from romancy.engine.committer import Committer
from romancy.engine.delivery import Delivery
from romancy.engine.exits import Exits
from romancy.engine.followup import Followup
from romancy.engine.hook_runner import HookRunner
from romancy.engine.inbox import Inboxes
from romancy.engine.inquest import Inquest
from romancy.engine.resident import COMMITTING, IDLE, Resident
from romancy.engine.step import Step
from romancy.engine.turns import grant
from romancy.engine.watchdog import Watchdog

MANY = 100
"""With more ready instances than this, the garbage collector is off while they are fed: it would scan all of memory."""


MOST = 500
"""Instances that are fed in one turn of the loop. The database stores their commits while the next ones are fed."""


class Scheduler:
    """Runs the code of instances, step by step."""

    def __init__(
        self,
        clock: Clock,
        inboxes: Inboxes,
        committer: Committer,
        delivery: Delivery,
        inquest: Inquest,
        exits: Exits,
        children: Children,
        followup: Followup,
        watchdog: Watchdog,
        hooks: HookRunner,
        successor: Callable[[Queue, str], Admission | None],
    ) -> None:
        """`successor` returns who gets the slot of an instance when it ends."""
        self._clock, self._hooks, self.watchdog = clock, hooks, watchdog
        self._ready, self.residents, self._committer = inboxes.ready, inboxes.residents, committer
        self._delivery, self._exits = delivery, exits
        self._children, self._followup = children, followup
        self.inquest, self._successor = inquest, successor

    def __repr__(self) -> str:
        return f"<Scheduler {self.residents!r} ready={len(self._ready)}>"

    def feed(self) -> None:
        """Feed the instances that are ready now, and store the results."""
        self._committer.gather()
        ready = min(len(self._ready), MOST)
        # Objects made here are in use until their commit is stored: there is no garbage to find.
        is_paused = ready > MANY and garbage.pause()
        try:
            for _ in range(ready):
                resident = self._ready.popleft()
                if not resident.is_gone:
                    resident.state = IDLE
                    if resident.asking is None or not grant(resident):
                        self._step(resident)
        finally:
            if is_paused:
                garbage.resume()
            self._committer.flush()

    def _step(self, resident: Resident) -> None:
        step = Step(resident, self._clock.now(), self._delivery.prepare, self._hooks.wanted)
        self.watchdog.begin(resident.instance)
        try:
            step.run()
        except Exception as error:  # errors of user code end the workflow; those that arrive here concern its history
            self._exits.block(resident, error)
            return
        finally:
            self.watchdog.end()
        if resident.crashed:
            resident.crashed = False
            guilty = self.inquest.count_death(resident, step)
            if guilty is not None:
                self._exits.block(resident, *guilty)
                return
        if step.is_empty:
            self._followup.follow(step)
        elif step.births:
            self._children.store_with(step, partial(self._commit, step))
        else:
            self._commit(step)

    def _commit(self, step: Step) -> None:
        resident = step.resident
        resident.state = COMMITTING
        queue = resident.instance.definition.queue
        if queue is not None and step.commit.is_final:
            step.commit.admits = self._successor(queue, resident.instance.id)
        self._committer.commit(step.commit, partial(self._followup.committed, step))
