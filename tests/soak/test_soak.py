"""That the soak runs, repeats itself, and notices what it is there to notice. `make soak` is the real thing."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import pytest

from romancy.engine.step import Step
from romancy.storage.sqlite.event_lookup import Looker
from tests import direct_offers
from tests.soak import real
from tests.soak.world import simulate


def test_a_simulated_world_keeps_all_promises_and_is_the_same_every_time() -> None:
    first, second = Counter[str](), Counter[str]()
    assert simulate(4, first).story == simulate(4, second).story
    assert first == second
    assert first["events"] > 10
    assert first["commit lost after"] > 0


def _first_violation(seeds: range) -> str:
    for seed in seeds:
        try:
            simulate(seed, Counter())
        except AssertionError as error:
            return str(error)
        finally:
            gc.collect()
    return ""


def test_an_engine_that_drops_cancellations_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(step: Step, input: Any) -> None:
        step.commit.requests_done = [*step.commit.requests_done, input.request]

    monkeypatch.setattr(Step, "_cancel", drop)
    assert "the cancellation is lost" in _first_violation(range(1, 10))


def test_a_storage_that_overlooks_events_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Looker, "look", lambda self, *wait: [])
    monkeypatch.setattr(direct_offers, "wrong", [])  # the looks that they are held against find nothing
    assert _first_violation(range(1, 10))


@pytest.mark.play
@pytest.mark.timeout(600)  # on a busy machine; a few seconds elsewhere
@pytest.mark.parametrize("site", [real.SQLiteSite, real.PostgresSite])
def test_real_processes_keep_all_promises(site: type[real.Site]) -> None:
    counts = Counter[str]()
    real.play(1, site(), counts, chaos=2.0)
    assert counts["programs"] > 0
