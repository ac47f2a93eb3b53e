"""`/metrics`: true counts in Prometheus' words."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.http.conftest import Live


def read(live: Live) -> dict[tuple[str, ...], float]:
    """Every sample as (name, label values in order of their names) -> value."""
    answer = live.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    samples = (s for family in text_string_to_metric_families(answer.text) for s in family.samples)
    return {(s.name, *(v for _, v in sorted(s.labels.items()))): s.value for s in samples}


def test_everything_has_a_value_before_anything_happens(live: Live) -> None:
    found = read(live)
    assert found["romancy_events_total", "new"] == 0
    assert found["romancy_waits_ended_total", "timed_out"] == 0
    assert found[("romancy_commit_queue",)] == 0
    assert found[("romancy_resident_instances",)] == 0


def test_what_happens_is_counted(live: Live) -> None:
    live.start("pay", id="one")
    live.until("one", "waiting_for_event")
    assert read(live)[("romancy_resident_instances",)] == 1
    live.send("e1", data={"amount": "not a number"})
    live.send("e2", data={"amount": 5})
    live.send("e2", data={"amount": 5})
    live.send("e3", type="nobody.wants.it")
    live.start("odd", "x", id="two")
    live.start("fails", id="three")
    for id in ("one", "two", "three"):
        live.result(id)
    found = read(live)
    assert found["romancy_workflows_started_total", "pay"] == 1
    assert found["romancy_workflows_ended_total", "completed", "pay"] == 1
    assert found["romancy_workflows_ended_total", "failed", "fails"] == 1
    assert found["romancy_workflow_duration_seconds_count", "pay"] == 1
    assert found["romancy_activity_attempts_total", "odd_values", "completed"] == 1
    assert found["romancy_activity_duration_seconds_count", "odd_values"] == 1
    assert (found["romancy_events_total", "new"], found["romancy_events_total", "duplicate"]) == (3, 1)
    assert found["romancy_event_outcomes_total", "delivered"] == 1
    assert found["romancy_event_outcomes_total", "mismatched"] == 1
    assert found["romancy_event_outcomes_total", "unmatched"] == 1
    assert found["romancy_waits_ended_total", "received"] == 1
    assert found[("romancy_wait_duration_seconds_count",)] == 1
    assert found[("romancy_delivery_lag_seconds_count",)] >= 1
    assert found[("romancy_commit_items_count",)] == found[("romancy_commit_duration_seconds_count",)] > 0
    assert found[("romancy_commit_items_sum",)] >= found[("romancy_commit_items_count",)]


def test_timers_are_counted_with_their_lag(live: Live) -> None:
    live.start("nap", 0.05, id="one")
    live.result("one")
    assert read(live)[("romancy_timer_lag_seconds_count",)] == 1
