"""A fleet of workers that die, simulated: who is blamed. The rule and the quarantine are the real ones; no database.

Jobs are instances with one activity. A worker dies by a kill from outside, or by a pill: a job whose activity, or body,
kills it after some time. Everything that is recorded takes LATENCY; a death is noticed within a second.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from romancy.core.model import SECOND
from romancy.engine import evidence
from romancy.engine.evidence import Fleet, Verdict, judge
from romancy.engine.quarantine import Quarantine
from romancy.storage.attempts import Attempt, Suspicion
from romancy.storage.batch import BODY
from romancy.storage.records import Death, Tally

LATENCY = SECOND // 200
NOTICED = SECOND
BOOT = SECOND // 2


@dataclass(eq=False)
class Job:
    """An instance. `fatal`: seconds after which it kills its worker, with this probability; else it takes `takes`."""

    id: str
    takes: float
    born: float = 0.0
    fatal: float | None = None
    odds: float = 1.0
    in_body: bool = False
    activity: str = "work"
    attempts: dict[str, Attempt] = field(default_factory=dict)
    done: int | None = None
    blocked: int | None = None
    killed: int = 0

    @property
    def is_pill(self) -> bool:
        return self.fatal is not None

    @property
    def is_over(self) -> bool:
        return self.done is not None or self.blocked is not None


@dataclass(eq=False)
class Stay:
    """A job in the memory of a worker."""

    job: Job
    worker: Worker
    is_gone: bool = False
    open: set[str] = field(default_factory=set)

    @property
    def attempts(self) -> dict[str, Attempt]:
        return self.job.attempts


class _Alarm:
    def __init__(self) -> None:
        self.off = False

    def cancel(self) -> None:
        self.off = True


class Worker:
    """One life of a worker: it is the clock and the desk of its quarantine."""

    def __init__(self, fleet: Simulation, number: int) -> None:
        self.sim, self.number, self.since, self.is_up = fleet, number, fleet.time, True
        self.stays: dict[Job, Stay] = {}
        self.quarantine = Quarantine(self, 100, self)  # type: ignore[arg-type]

    # --- a clock
    def now(self) -> int:
        return self.sim.time

    def call_at(self, due: int, callback: Callable[[], None]) -> _Alarm:
        alarm = _Alarm()
        self.sim.at(due, lambda: None if alarm.off or not self.is_up else callback())
        return alarm

    # --- a desk
    def reserve(self, stay: Any, op: str, granted: Callable[[], None]) -> bool:
        return True

    def give_back(self, stay: Any, op: str) -> None: ...

    def begin(self, stay: Any, op: str, is_alone: bool) -> None:
        def recorded() -> None:
            if stay.is_gone:
                return
            run = evidence.body_run(stay.attempts[op], 0) if op == BODY else evidence.FIRST_RUN
            stay.attempts[op] = evidence.begun(stay.attempts[op], is_alone, run)
            self.quarantine.recorded(stay, op)
            self.run_body(stay) if op == BODY else self.run_call(stay)

        self.call_at(self.sim.time + LATENCY, recorded)

    def run_on(self, stay: Any, op: str, ran: int) -> None:
        def recorded() -> None:
            if not stay.is_gone and op in stay.attempts and stay.attempts[op].started:
                if op == BODY and evidence.is_through(stay.attempts[op]):
                    del stay.attempts[op]
                    self.quarantine.leave(stay, op)
                else:
                    stay.attempts[op] = evidence.running_on(stay.attempts[op], ran)
                    self.quarantine.recorded(stay, op)

        self.call_at(self.sim.time + LATENCY, recorded)

    def have_company(self, stay: Any, op: str) -> bool:
        def recorded() -> None:
            if not stay.is_gone and op in stay.attempts and stay.attempts[op].started:
                stay.attempts[op] = evidence.accompanied(stay.attempts[op])
                self.quarantine.recorded(stay, op)

        self.call_at(self.sim.time + LATENCY, recorded)
        return True

    def is_open(self, stay: Any, op: str) -> bool:
        return not stay.is_gone and (op == BODY or op in stay.open)

    # --- running
    def take(self, job: Job, crashed: bool) -> None:
        stay = self.stays[job] = Stay(job, self)
        if not crashed and BODY not in job.attempts:
            self.run_body(stay)
            return
        record = evidence.after_death(BODY, 0, job.attempts.get(BODY), self.sim.time) if crashed else None
        self.admit(stay, record, BODY, crashed)

    def admit(self, stay: Stay, news: Attempt | None, op: str, crashed: bool) -> None:
        job = stay.job
        record = news or job.attempts[op]
        culprit = f"{job.activity} body" if op == BODY else job.activity
        record.culprit = culprit
        finding = judge(record, culprit, self.sim.fleet)
        if finding.verdict is Verdict.GUILTY:
            job.attempts[op] = record
            job.blocked = self.sim.time
            self.drop(stay)
            return
        doubtful = finding.verdict is Verdict.DOUBTFUL
        if news is not None:
            record = evidence.rested(record, finding, self.sim.time)
        job.attempts[op] = record
        self.quarantine.admit(stay, record, is_doubtful=doubtful)  # type: ignore[arg-type]

    def run_body(self, stay: Stay) -> None:
        job = stay.job
        if job.in_body and job.fatal is not None and self.sim.luck.random() < job.odds:
            job.killed += 1
            self.die()
            return
        stay.open.add("call")
        old = job.attempts.get("call")
        news = evidence.after_death("call", 0, old, self.sim.time) if job in self.sim.crashed else None
        self.sim.crashed.discard(job)
        if news is not None or old is not None:
            self.admit(stay, news, "call", True)
        elif (finding := judge(self.sim.wary(job), job.activity, self.sim.fleet)).verdict is Verdict.DOUBTFUL:
            record = job.attempts["call"] = evidence.rested(self.sim.wary(job), finding, self.sim.time)
            self.quarantine.admit(stay, record, is_doubtful=True)  # type: ignore[arg-type]
        else:
            self.run_call(stay)

    def run_call(self, stay: Stay) -> None:
        job = stay.job
        kills = job.fatal is not None and not job.in_body and self.sim.luck.random() < job.odds
        seconds = job.fatal if kills and job.fatal is not None else job.takes

        def end() -> None:
            if stay.is_gone:
                return
            if kills:
                job.killed += 1
                self.die()
            else:
                job.done = self.sim.time
                self.sim.clear(job)
                self.drop(stay)

        self.call_at(self.sim.time + int(seconds * SECOND), end)

    def drop(self, stay: Stay) -> None:
        stay.is_gone = True
        self.stays.pop(stay.job, None)
        self.quarantine.leave(stay)  # type: ignore[arg-type]

    def die(self) -> None:
        self.is_up = False
        self.sim.died(self)


class Simulation:
    """Runs until every job is done or blocked, or the time is over."""

    def __init__(
        self,
        seed: int,
        jobs: Iterable[Job],
        *,
        workers: int = 3,
        kill_every: float | None = None,
        kills: tuple[float, float] = (0, 60),
        limit: float = 600,
        pooled: bool = True,
    ) -> None:
        self.luck, self.time, self.pooled = random.Random(seed), 0, pooled
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.jobs = list(jobs)
        self.deaths: list[Death] = []
        self.crashed: set[Job] = set()
        self.fleet = Fleet()
        self.kills = 0
        self._trials: list[tuple[str, int, int, int]] = []
        self._every, self._until, self._limit = kill_every, kills[1] * SECOND, int(limit * SECOND)
        self.workers = [Worker(self, n) for n in range(workers)]
        for job in self.jobs:
            self.at(int(job.born * SECOND), lambda job=job: self.give(job, False))
        if kill_every is not None:
            self.at(int(kills[0] * SECOND), self._plan_kill)

    def at(self, due: int, callback: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(due, self.time), next(self._numbers), callback))

    def run(self) -> Simulation:
        open_jobs = len(self.jobs)
        while self._events and open_jobs:
            time, _, callback = heapq.heappop(self._events)
            if time > self._limit:
                break
            self.time = time
            callback()
            open_jobs = sum(not job.is_over for job in self.jobs) if next(self._numbers) % 50 == 0 else open_jobs
        return self

    def give(self, job: Job, crashed: bool, to: Worker | None = None) -> None:
        up = [worker for worker in self.workers if worker.is_up]
        if not up:
            self.at(self.time + SECOND // 10, lambda: self.give(job, crashed))
        else:
            (to if to is not None and to.is_up else self.luck.choice(up)).take(job, crashed)

    def died(self, worker: Worker) -> None:
        found = self.time + int(self.luck.random() * NOTICED)
        orphans = list(worker.stays)
        for stay in worker.stays.values():
            stay.is_gone = True
        self.at(found, lambda: self._bury(worker, orphans))
        self.at(self.time + BOOT, lambda: self._boot(worker.number))

    def _boot(self, number: int) -> None:
        self.workers[number] = Worker(self, number)

    def _bury(self, worker: Worker, orphans: list[Job]) -> None:
        """One worker takes over all of them, as a claim does."""
        up = [w for w in self.workers if w.is_up]
        if not up:
            self.at(self.time + SECOND // 10, lambda: self._bury(worker, orphans))
            return
        self.deaths.append(Death(worker.since, self.time))
        self.fleet = Fleet(self.deaths, self.tallies())
        self.crashed.update(job for job in orphans if not job.is_over)
        heir = self.luck.choice(up)
        for job in orphans:
            if not job.is_over:
                self.give(job, True, heir)

    def tallies(self) -> dict[str, Tally]:
        found: dict[str, Tally] = {}
        rows = [(*trial, 1) for trial in self._trials]
        for job in self.jobs:
            for record in job.attempts.values():
                s = record.suspicion
                if s is not None and s.tried_alone and job.done is None:
                    rows.append((record.culprit, s.since, s.tried_alone, s.alone, 0))
        for name, since, tried, alone, ended in rows if self.pooled else ():
            old = found.get(name, Tally(since, 0, 0))
            sums = old.tried_alone + tried, old.alone + alone, old.ended + ended
            found[name] = Tally(min(since, old.since), *sums)
        return found

    def clear(self, job: Job) -> None:
        for record in job.attempts.values():
            s = record.suspicion
            if s is not None and s.tried_alone:
                self._trials.append((record.culprit, s.since, s.tried_alone, s.alone))
        job.attempts.clear()

    def wary(self, job: Job) -> Attempt:
        return Attempt("call", 0, self.time, suspicion=Suspicion(self.time), culprit=job.activity)

    def _plan_kill(self) -> None:
        assert self._every is not None
        self.at(self.time + int(self.luck.expovariate(1 / self._every) * SECOND), self._kill)

    def _kill(self) -> None:
        if self.time < self._until:
            up = [worker for worker in self.workers if worker.is_up]
            if up:
                self.kills += 1
                self.luck.choice(up).die()
            self._plan_kill()


def innocents(count: int, takes: float, every: float = 0.0, start: float = 0.0, name: str = "work") -> list[Job]:
    return [Job(f"i{n}", takes, start + n * every, activity=name) for n in range(count)]


def pills(
    count: int, fatal: float, every: float = 0.0, start: float = 5.0, in_body: bool = False, odds: float = 1.0
) -> list[Job]:
    return [Job(f"p{n}", 1.0, start + n * every, fatal, odds, in_body, "pill") for n in range(count)]
