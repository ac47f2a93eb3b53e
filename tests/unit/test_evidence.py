"""The rule that says which suspect killed its worker: pure, so it is tested as numbers, and in a simulated fleet."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from romancy.core.model import SECOND
from romancy.engine import evidence
from romancy.engine.evidence import Fleet, Verdict, after_death, chance, judge
from romancy.storage.attempts import Attempt, Suspicion
from romancy.storage.records import Death, Tally
from tests.unit.fleet import Simulation, innocents, pills


def tail(deaths: int, hits: int, share: float) -> float:
    """The exact chance of at least so many hits."""
    return sum(math.comb(deaths, k) * share**k * (1 - share) ** (deaths - k) for k in range(hits, deaths + 1))


@pytest.mark.parametrize("share", [0.001, 0.02, 0.2, 0.7])
@pytest.mark.parametrize("deaths", [1, 3, 10, 40])
def test_chance_is_never_less_than_it_is(deaths: int, share: float) -> None:
    for hits in range(deaths + 1):
        assert chance(deaths, hits, share) >= tail(deaths, hits, share) * 0.999999


def test_chance_is_exact_where_every_death_is_a_hit() -> None:
    assert chance(4, 4, 0.1) == pytest.approx(0.1**4)
    assert chance(0, 0, 0.5) == chance(10, 1, 1.0) == chance(10, 2, 0.2) == 1.0


def test_the_fleet_adds_up_as_counting_does() -> None:
    luck = random.Random(5)
    deaths = [Death(since := luck.randrange(1000), since + luck.randrange(300)) for _ in range(200)]
    fleet = Fleet(deaths)
    for time in range(0, 1400, 7):
        assert fleet.deaths_since(time) == sum(death.at >= time for death in deaths)
        assert fleet.lived_since(time) == sum(max(0, death.at - max(death.since, time)) for death in deaths)


# --- what is recorded -------------------------------------------------------------------------------------------------
def test_the_first_death_makes_a_suspect_and_no_more() -> None:
    record = after_death("a:1", 5, None, 100)
    assert record == Attempt("a:1", 0, 5, crashes=1, suspicion=Suspicion(100))
    assert after_death("a:1", 5, record, 200) is None, "it had not begun again"
    resting = Attempt("a:1", 2, 5, next_due=500)
    assert after_death("a:1", 5, resting, 200) is None, "it waited for its next attempt"


def test_how_long_a_suspect_ran_is_recorded_before_it_has() -> None:
    record = evidence.begun(Attempt("a:1", 0, 5, crashes=1, suspicion=Suspicion(100)), True)
    tried: list[tuple[int, int]] = []
    for _ in range(4):
        assert record.suspicion is not None
        tried.append((record.suspicion.tried, record.suspicion.tried_alone))
        record = evidence.running_on(record)
    first = evidence.FIRST_RUN
    assert tried == [(n * first, n * first) for n in (1, 2, 4, 8)]
    record = evidence.running_on(evidence.accompanied(record))
    assert record.suspicion is not None
    assert (record.suspicion.tried, record.suspicion.tried_alone) == (32 * first, 16 * first)
    dead = after_death("a:1", 5, record, 900)
    assert dead is not None
    assert dead.suspicion == replace(record.suspicion, run=0)
    assert (dead.crashes, dead.started) == (2, False)


def test_only_a_death_while_it_was_the_only_suspect_counts_against_it() -> None:
    suspect = Attempt("a:1", 0, 5, crashes=1, suspicion=Suspicion(100))
    for is_alone in (True, False):
        dead = after_death("a:1", 5, evidence.begun(suspect, is_alone), 900)
        assert dead is not None
        assert dead.suspicion is not None
        assert dead.suspicion.alone == is_alone


# --- the verdict ------------------------------------------------------------------------------------------------------
def lives(count: int, seconds: float = 10.0, begin: float = 0.0) -> list[Death]:
    return [Death(int((begin + n * seconds) * SECOND), int((begin + (n + 1) * seconds) * SECOND)) for n in range(count)]


def suspect(crashes: int, tried: float, *, alone: int | None = None) -> Attempt:
    hits, us = crashes - 1 if alone is None else alone, int(tried * SECOND)
    return Attempt("a:1", 0, 0, crashes=crashes, suspicion=Suspicion(0, us, us, hits), culprit="a")


def verdict(record: Attempt, fleet: Fleet) -> Verdict:
    return judge(record, record.culprit, fleet).verdict


def test_one_that_is_there_for_moments_and_for_every_death_is_guilty() -> None:
    assert verdict(suspect(5, 0.4), Fleet(lives(5))) is Verdict.GUILTY


def test_deaths_without_it_speak_for_it() -> None:
    assert verdict(suspect(5, 0.4), Fleet(lives(5) + lives(200, 0.5))) is not Verdict.GUILTY


def test_one_that_meets_somewhat_more_deaths_than_others_is_not_guilty() -> None:
    """In a long storm a small difference is no chance any more: kills hit the workers that are up."""
    storm = Fleet(lives(300, 1.0))
    assert chance(300, 40, 15 / 300) < evidence.GUILTY
    assert verdict(suspect(41, 15.0), storm) is Verdict.DOUBTFUL
    assert verdict(suspect(81, 15.0), storm) is Verdict.GUILTY


def test_one_that_is_there_most_of_the_time_is_there_for_most_deaths() -> None:
    assert verdict(suspect(9, 60.0), Fleet(lives(9))) is Verdict.CLEAR


def test_deaths_in_company_lead_to_doubt_and_no_further() -> None:
    assert verdict(suspect(9, 0.8, alone=0), Fleet(lives(9))) is Verdict.DOUBTFUL


def test_two_deaths_prove_nothing() -> None:
    assert verdict(suspect(2, 0.0001), Fleet(lives(2, 1e6))) is not Verdict.GUILTY
    assert verdict(suspect(3, 0.0001), Fleet(lives(3, 1e6))) is Verdict.GUILTY


def test_doubtful_ones_rest_longer_the_second_time() -> None:
    now = 10**9
    found = judge(suspect(4, 0.3, alone=0), "a", Fleet(lives(4)))
    first = evidence.rested(suspect(4, 0.3, alone=0), found, now).next_due
    later = evidence.rested(suspect(5, 0.3, alone=1), found, now).next_due
    assert (first, later) == tuple(now + rest for rest in evidence.RESTS)


def test_one_that_leaves_no_time_to_compare_with_pauses() -> None:
    """With one worker that comes up at once it would be there all the time, and never convicted."""
    record, fleet = suspect(4, 0.3), Fleet(lives(4, 0.11))
    found = judge(record, "a", fleet)
    assert found.verdict is Verdict.CLEAR
    assert evidence.rested(record, found, 0).next_due == evidence.PAUSE


def test_calls_of_an_activity_that_is_known_to_kill_need_less_evidence() -> None:
    deaths = lives(40, 1.0)
    known = Fleet(deaths, {"a": Tally(0, int(1.5 * SECOND), 15)})
    innocent = Fleet(deaths, {"a": Tally(0, int(15 * SECOND), 15)})
    new, record = Attempt("a:1", 0, 0, culprit="a"), suspect(3, 0.2, alone=2)
    assert verdict(new, known) is Verdict.DOUBTFUL
    assert verdict(new, innocent) is Verdict.CLEAR
    assert verdict(replace(record, culprit="b"), known) is not Verdict.GUILTY
    assert verdict(suspect(4, 0.1, alone=3), Fleet(lives(18, 5.0), {"a": Tally(0, SECOND, 15)})) is Verdict.GUILTY


def test_two_deaths_convict_a_call_of_such_an_activity_if_they_are_no_chance() -> None:
    fleet = Fleet(lives(18, 5.0), {"a": Tally(0, SECOND, 15)})
    assert verdict(suspect(2, 0.001, alone=1), fleet) is Verdict.GUILTY
    assert verdict(suspect(2, 0.001, alone=1), Fleet(lives(18, 5.0))) is not Verdict.GUILTY
    assert evidence.GUILTY_IF_KNOWN < chance(4, 1, 0.3 / 90) < 0.1
    assert verdict(suspect(2, 0.3, alone=1), fleet) is Verdict.DOUBTFUL


def test_deaths_by_other_calls_of_the_same_activity_do_not_speak_for_a_call() -> None:
    """In a stream of pills each is there for its own deaths only, and all others are no control group."""
    stream = Fleet(lives(200, 1.0), {"a": Tally(0, 20 * SECOND, 200)})
    assert verdict(suspect(3, 0.1, alone=2), stream) is Verdict.GUILTY
    assert verdict(suspect(3, 0.1, alone=2), Fleet(lives(200, 1.0))) is not Verdict.GUILTY


def test_an_activity_most_of_whose_calls_survive_is_not_known_to_kill() -> None:
    fleet = Fleet(lives(40, 1.0))
    assert evidence.is_killer(Tally(0, SECOND, 15, ended=3), fleet)
    assert not evidence.is_killer(Tally(0, SECOND, 15, ended=16), fleet)


def test_the_evidence_is_told_in_numbers() -> None:
    said = judge(suspect(5, 0.4), "a", Fleet(lives(5))).describe()
    assert said == (
        "was running 5 times when its worker died: 4 of 5 worker deaths fell into the time it ran as the only suspect, "
        "0.4 s of the 50.0 s that these workers lived. Chance explains that less than once in 10,000 times"
    )


# --- a fleet ----------------------------------------------------------------------------------------------------------
Plan = Callable[[int], Simulation]


STORMS: dict[str, Plan] = {
    "1.5 s": lambda seed: Simulation(seed, innocents(12, 1.5), kill_every=0.6),
    "3 s": lambda seed: Simulation(seed, innocents(20, 3.0, 0.2), kill_every=0.6),
    "10 ms": lambda seed: Simulation(seed, innocents(100, 0.01, 0.3), kill_every=0.25),
    "after a quiet hour": lambda seed: Simulation(
        seed, innocents(12, 1.5, 0, 3600), kill_every=0.6, kills=(3600, 3660), limit=4200
    ),
    "too long to get through": lambda seed: Simulation(
        seed, innocents(20, 2.8, 0.3), workers=2, kill_every=0.6, kills=(0, 300), limit=900
    ),
    "an hour": lambda seed: Simulation(
        seed, innocents(20, 3600.0, 10), kill_every=1200, kills=(0, 20000), limit=100_000
    ),
}


@pytest.mark.parametrize("storm", STORMS)
def test_random_kills_convict_nobody(storm: str) -> None:
    deaths = 0
    for seed in range(8):
        played = STORMS[storm](seed).run()
        deaths += len(played.deaths)
        assert not [job.id for job in played.jobs if job.blocked is not None], f"seed {seed}"
        assert all(job.done is not None for job in played.jobs), f"seed {seed}: somebody did not finish"
    assert deaths > 10


PILLS: dict[str, tuple[Plan, float]] = {
    "an activity": (lambda seed: Simulation(seed, innocents(20, 1.5, 0.5) + pills(1, 0.005)), 40),
    "an activity, one worker": (
        lambda seed: Simulation(seed, innocents(20, 1.5, 0.5) + pills(1, 0.005), workers=1),
        40,
    ),
    "code": (lambda seed: Simulation(seed, innocents(20, 1.5, 0.5) + pills(1, 0.005, in_body=True)), 40),
    "code, one worker": (
        lambda seed: Simulation(seed, innocents(20, 1.5, 0.5) + pills(1, 0.005, in_body=True), workers=1),
        45,
    ),
    "five, and kills": (lambda seed: Simulation(seed, innocents(20, 1.5, 0.5) + pills(5, 0.005), kill_every=2), 80),
    "a stream, and kills": (
        lambda seed: Simulation(
            seed, innocents(20, 0.3, 0.5) + pills(26, 0.005, 0.7, 1.0), kill_every=0.6, kills=(0, 20)
        ),
        400,
    ),
    "after ten minutes": (
        lambda seed: Simulation(seed, innocents(20, 1200.0, 0.5) + pills(1, 600.0), limit=100_000),
        40_000,
    ),
}


@pytest.mark.parametrize("poison", PILLS)
def test_pills_are_found_and_nobody_else(poison: str) -> None:
    plan, limit = PILLS[poison]
    for seed in range(3):
        played = plan(seed).run()
        blocked = {job.id for job in played.jobs if job.blocked is not None}
        assert blocked == {job.id for job in played.jobs if job.is_pill}, f"seed {seed}"
        assert all(job.done is not None for job in played.jobs if not job.is_pill), f"seed {seed}"
        found = [job.blocked / SECOND - job.born for job in played.jobs if job.blocked is not None]
        assert max(found) < limit, f"seed {seed}: it took {max(found):.0f} s"
