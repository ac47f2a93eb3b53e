"""What killed the worker: a verdict by evidence. Pure: numbers in, a finding out.

Anything that ran when its worker died is a *suspect*: a call of an activity, or the code of a workflow (its *body*).
One death proves nothing, so suspects run again. From then on we record how long they run, and how often their worker
dies meanwhile. That is compared with all deaths of workers since: if a suspect ran for a thousandth of the time but
during most of the deaths, chance does not explain it. No rate of deaths is assumed or configured: the rest of the time
is the control group. Kills from outside raise the number of deaths without the suspect, and so speak in its favor.

Suspects that began together, the culprit and its neighbors, can't be told apart. So there are two verdicts. `doubtful`:
it ran during conspicuously many deaths. Then it rests for some seconds and begins while no other suspect does, which
separates it from its neighbors. `guilty`: the same, counting only deaths while it was the only suspect that ran.

An activity that kills can have a thousand calls, each of them new. So the numbers of all its calls are added up in a
*tally*. Once the activity is known to kill, each of its calls begins apart from others, and less evidence convicts it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate

from romancy.core.failure import Failure
from romancy.core.model import SECOND
from romancy.storage.attempts import Attempt, Suspicion
from romancy.storage.records import Death, Tally

GUILTY = 1e-4
"""A suspect is convicted if the probability that chance explains the deaths is below this."""
GUILTY_IF_KNOWN = 1e-3
"""The same for a call of an activity that is known to kill."""
DOUBTFUL = 0.05
"""A suspect runs apart from others if the probability that it ran during the deaths by chance is below this."""
TIMES = 4
"""A suspect is convicted only if workers died this many times as often while it ran alone. Kills from outside are
uneven: they hit the workers that are up, where suspects run again. In a long run that looks like more than chance."""
LEAST_DEATHS = 3
RESTS = (2 * SECOND, 6 * SECOND)
"""How long a doubtful suspect rests: before it first runs apart, and later."""
PAUSE, MUCH = SECOND, 0.2
"""The pause after a death for a suspect that ran for more than this share of the time: there is little to compare."""
FIRST_RUN = SECOND // 10
"""The running time that is recorded for a suspect before it begins. It is doubled each time it has passed."""
LONGEST_RUN = 24 * 3600 * SECOND
BODY_RUN = SECOND // 5
"""A body that survived this long is no longer suspected: whatever it does next begins with a call or an event."""
PER_ENTRY = 100
"""Microseconds that replaying an entry can take; nothing can be recorded during a replay."""


# --- records of suspects --------------------------------------------------------------------------------------------
def after_death(
    op: str, first_at: int, old: Attempt | None, now: int, *, may_have_waited: bool = False
) -> Attempt | None:
    """Return the record of an operation that was open when its worker died; None if there is nothing to record.

    `may_have_waited`: only some of the calls run at a time, and it is not known which. Then this death is not counted,
    unless it is recorded that the call had begun. From now on, that is recorded.
    """
    if old is None or (old.crashes == 0 and old.suspicion is None):
        first = old or Attempt(op, 0, first_at)
        is_resting = first.next_due is not None and first.next_due > now
        return None if is_resting else _with(first, Suspicion(now), crashes=int(first.started or not may_have_waited))
    if not old.started:
        return None  # it was resting, or waiting for its turn
    known = suspicion_of(old)
    known = replace(known, alone=known.alone + known.is_alone, run=0, is_alone=False)
    return _with(old, known, crashes=old.crashes + 1)


def begun(record: Attempt, is_alone: bool, run: int = FIRST_RUN) -> Attempt:
    """Return the record of a suspect that is about to begin. The next record is due after `run`."""
    known = replace(suspicion_of(record), is_alone=is_alone, run=0)
    return _with(record, _ran(known, run), record.crashes, started=True)


def running_on(record: Attempt, ran: int = 0) -> Attempt:
    """Return the record of a suspect that ran for the recorded time and may run for twice as long.

    `ran`: how long it really ran, which can be much longer, for example because the machine was suspended.
    """
    known = suspicion_of(record)
    return _with(record, _ran(known, 2 * max(known.run, ran)), record.crashes, started=True)


def accompanied(record: Attempt) -> Attempt:
    """Return the record of a running suspect that is no longer the only one."""
    return _with(record, replace(suspicion_of(record), is_alone=False), record.crashes, started=True)


def rested(record: Attempt, finding: Finding, since: int) -> Attempt:
    """Return the record of a suspect after a death. It may have to rest for a while, counted from `since`."""
    known = suspicion_of(record)
    if finding.verdict is Verdict.DOUBTFUL:
        rest, then = RESTS[min(known.alone, len(RESTS) - 1)], "begins while no other suspect does"
    elif finding.lacks_comparison:
        rest, then = PAUSE, "begins again"
    else:
        return record
    times = "a worker" if record.crashes < 2 else f"{record.crashes} workers"
    failure = Failure("WorkerDied", f"{times} died while it ran; it is left out for a while, and then {then}")
    return _with(replace(record, error=record.error or failure.encode()), known, record.crashes, due=since + rest)


def suspicion_of(record: Attempt) -> Suspicion:
    return record.suspicion or Suspicion(record.first_at)


def body_run(record: Attempt, entries: int) -> int:
    """Return how long a body can run until the next record is due. Most are done by then."""
    return (BODY_RUN if record.crashes == 1 else FIRST_RUN) + entries * PER_ENTRY


def is_through(record: Attempt) -> bool:
    """Whether a body that ran for the recorded time is no longer suspected."""
    return suspicion_of(record).run >= BODY_RUN


def _ran(known: Suspicion, run: int) -> Suspicion:
    """Return the evidence once the current run is recorded to last this long in all."""
    added = run - known.run
    alone = known.tried_alone + (added if known.is_alone else 0)
    return replace(known, tried=known.tried + added, tried_alone=alone, run=run)


def _with(old: Attempt, known: Suspicion, crashes: int, *, started: bool = False, due: int | None = None) -> Attempt:
    return replace(old, next_due=due, crashes=crashes, started=started, suspicion=known)


# --- the control group ----------------------------------------------------------------------------------------------
class Fleet:
    """The workers that died, and the tallies by name. Workers that live, or stopped, are not a control group.

    They could be one only if they ran under the same conditions. The workers that died did.
    """

    def __init__(self, deaths: Collection[Death] = (), tallies: Mapping[str, Tally] | None = None) -> None:
        self.tallies: Mapping[str, Tally] = tallies or {}
        self._ends = sorted(death.at for death in deaths)
        self._begins = sorted(min(death.since, death.at) for death in deaths)
        self._ends_from = _sums_from(self._ends)
        self._begins_from = _sums_from(self._begins)

    def __repr__(self) -> str:
        return f"<Fleet deaths={len(self._ends)} tallies={len(self.tallies)}>"

    @property
    def last_death(self) -> int | None:
        return self._ends[-1] if self._ends else None

    def deaths_since(self, time: int) -> int:
        return len(self._ends) - bisect_left(self._ends, time)

    def lived_since(self, time: int) -> int:
        """Microseconds that the dead workers lived after this time."""
        ended, began = bisect_left(self._ends, time), bisect_left(self._begins, time)
        return self._ends_from[ended] - self._begins_from[began] - time * (began - ended)


def _sums_from(values: list[int]) -> list[int]:
    """Return for each index the sum of the values from there on."""
    return [*accumulate(reversed(values), initial=0)][::-1]


def chance(deaths: int, hits: int, share: float) -> float:
    """Bound (Chernoff) the probability that at least `hits` deaths fall into this share of the time by chance."""
    deaths = max(deaths, hits)
    if hits <= 0 or share >= 1 or hits <= deaths * share:
        return 1.0
    log = hits * math.log(deaths * max(share, 1e-12) / hits)
    if deaths > hits:
        log += (deaths - hits) * math.log(deaths * (1 - share) / (deaths - hits))
    return math.exp(log)


# --- the verdict ----------------------------------------------------------------------------------------------------
class Verdict(Enum):
    CLEAR = "runs with others"
    DOUBTFUL = "runs apart from other suspects"
    GUILTY = "is not run again"


@dataclass(slots=True, frozen=True)
class Finding:
    """A verdict, and the numbers it is based on."""

    verdict: Verdict
    crashes: int = 0
    alone: int = 0
    """Deaths while it ran as the only suspect."""
    tried: int = 0
    """Microseconds it ran as the only suspect."""
    deaths: int = 0
    """Deaths of all workers in the compared time."""
    lived: int = 0
    """Microseconds those workers lived in that time."""
    is_known: bool = False
    """Other calls of the same activity are known to kill."""
    lacks_comparison: bool = False
    """There is too little time without it to compare with."""

    def describe(self) -> str:
        """Describe the evidence for people."""
        times = f"was running {self.crashes} times when its worker died"
        share = f"{_seconds(self.tried)} of the {_seconds(self.lived)} that these workers lived"
        odds = round(1 / (GUILTY_IF_KNOWN if self.is_known else GUILTY))
        more = ", and other calls of the same activity did the same" if self.is_known else ""
        return (
            f"{times}: {self.alone} of {self.deaths} worker deaths fell into the time it ran as the only suspect, "
            f"{share}. Chance explains that less than once in {odds:,} times{more}"
        )


def _seconds(us: int) -> str:
    return f"{us / SECOND:,.1f} s"


_CLEAR, _DOUBTFUL = Finding(Verdict.CLEAR), Finding(Verdict.DOUBTFUL)
_INCOMPARABLE = Finding(Verdict.CLEAR, lacks_comparison=True)


def judge(record: Attempt, culprit: str, fleet: Fleet) -> Finding:
    """Return the finding about a suspect. `culprit`: the name of its tally."""
    known, tally = record.suspicion, fleet.tallies.get(culprit)
    is_known = tally is not None and is_killer(tally, fleet)
    if known is None or record.crashes == 0:
        return _DOUBTFUL if is_known else _CLEAR
    deaths, lived = fleet.deaths_since(known.since), fleet.lived_since(known.since)
    if is_known and tally is not None:
        # Deaths caused by other calls of the same activity don't belong to the control group.
        by_others = tally.alone - known.alone
        deaths = max(deaths - by_others, known.alone)
    if known.alone and record.crashes >= LEAST_DEATHS - is_known:
        limit = GUILTY_IF_KNOWN if is_known else GUILTY
        if _kills(known.alone, known.tried_alone, deaths, lived, limit):
            found = known.alone, known.tried_alone, max(deaths, known.alone), lived
            return Finding(Verdict.GUILTY, record.crashes, *found, is_known)
    # The first death made it a suspect. It was not compared with anything, so it does not count.
    if is_known or chance(deaths, record.crashes - 1, known.tried / max(lived, 1)) < DOUBTFUL:
        return _DOUBTFUL
    return _INCOMPARABLE if record.crashes > 1 and known.tried > MUCH * lived else _CLEAR


def is_killer(tally: Tally, fleet: Fleet) -> bool:
    """Whether all calls of an activity together show that it kills: most of those that ran alone did."""
    if tally.alone < LEAST_DEATHS or tally.alone < tally.ended:
        return False
    deaths, lived = fleet.deaths_since(tally.since), fleet.lived_since(tally.since)
    return _kills(tally.alone, tally.tried_alone, deaths, lived, GUILTY)


def _kills(hits: int, tried: int, deaths: int, lived: int, limit: float) -> bool:
    """Whether neither chance nor uneven kills from outside explain the deaths in the time it ran alone."""
    is_often = hits * (lived - tried) >= TIMES * (deaths - hits) * tried
    return is_often and chance(deaths, hits, tried / max(lived, 1)) < limit
