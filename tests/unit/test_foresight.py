"""Who is next in a full queue, read ahead: which slots count as free when instances have ended since."""

from __future__ import annotations

from typing import Any

import pytest

from romancy.core.admission import Glance, KeyState, QueueState, room, room_of_key
from romancy.core.queues import Queue
from romancy.engine import foresight
from romancy.engine.foresight import Foresight
from romancy.storage.instances import Admitted

ONE = Queue("q", max_concurrent=1)
ONE_OF_KEY = Queue("q", max_concurrent_per_key=1)


def full(running: int = 1, of_key: int = 1, key: str = "k") -> Glance:
    return Glance(QueueState(7, "k", 0, running, True), KeyState(key, of_key, 0), True, ["next"])


def test_nothing_is_foreseen_until_a_holder_has_ended() -> None:
    foresight = Foresight()
    foresight.keep("q", full(), {"a": "k"})
    assert foresight.take("q") is None
    foresight.freed("q", "another, which may have ended before that was read")
    assert foresight.take("q") is None
    foresight.freed("q", "a")
    glance = foresight.take("q")
    assert glance is not None
    assert (glance.state.version, room(ONE, glance.state, 0)) == (7, 1)
    assert foresight.take("q") is None  # once


def test_nobody_held_a_slot_for_certain() -> None:
    foresight = Foresight()
    foresight.keep("q", full(), {})
    foresight.freed("q", "a")
    assert foresight.take("q") is None


def test_more_than_the_limit_hold_slots() -> None:
    """The limit was lowered. One of three has ended, and the others still count."""
    foresight = Foresight()
    foresight.keep("q", full(running=2), {"a": "k"})
    foresight.freed("q", "a")
    glance = foresight.take("q")
    assert glance is not None
    assert room(ONE, glance.state, 0) == 0


def test_the_slot_of_another_key_is_not_one_of_this_key() -> None:
    foresight = Foresight()
    foresight.keep("q", full(running=2, key="k"), {"a": "another"})
    foresight.freed("q", "a")
    glance = foresight.take("q")
    assert glance is not None
    assert glance.key is not None
    assert room_of_key(ONE_OF_KEY, glance.key, 0) == 0


def test_others_may_have_come_since(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr(foresight, "stopwatch", lambda: now[0])
    ahead: Any = Foresight()
    ahead.keep("q", full(), {"a": "k"})
    now[0] += foresight.FRESH + 0.001
    ahead.freed("q", "a")
    assert ahead.take("q") is None


def test_an_admission_that_was_refused_is_forgotten_when_its_instance_moves_to_another_queue() -> None:
    foresight, other = Foresight(), Queue("other", max_concurrent=1)
    for queue in (ONE, other):
        foresight.keep(queue.name, full(), {"a": "k"})
        assert foresight.successor(queue, "a", 0) is not None
    assert foresight.admitted(Admitted("next", "wf", is_mine=True)) == ("other", "k")
