"""Tests that only `make plays` runs on PostgreSQL: they are about what lies above the storage."""

from __future__ import annotations

import pytest

LATER = {
    f"{folder}/test_{name}.py"
    for folder, names in {
        "engine": """
            attempt_marks builds changed_parents desk event_patterns faults_elsewhere migrated_away named_times
            quarantine queue_sources reading schedule_changes transactions_and_verbs
            activities acts alike_waits app_life attributes bad_input bulk capacity children compensation composition
            asking continuing fake_children families forked forked_apart forked_families forked_identity forked_twice
            forked_undoing given_up_children kept_events lifecycle long_histories many_results patched
            queued_verbs resilience retried retried_attacks retried_children retried_ends retried_events
            retried_families runaways schedules sinks slots steps streams sync versions views
            anyio emissions hooks_and_logs middleware outside pydantic_ai queue_reports schedule_reports sealed
            sealed_keys guest_drivers outdated passing_on queues telemetry transaction_reports transactions
            transactions_cut waiting
        """,
        "crash": "emission_kills too_long traces_killed unknown_outcome",
        "viewer": "catalog",
        "contrib": "mcp_command mcp_tasks",
    }.items()
    for name in names.split()
}


def put_off(items: list[pytest.Item]) -> None:
    """Mark such tests as plays."""
    for item in items:
        file = "/".join(item.path.parts[-2:])
        if file in LATER and "postgres" in item.name:
            item.add_marker(pytest.mark.play)
