"""What `romancy why` says about queues: commands that can be pasted into a shell."""

from dataclasses import fields
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from romancy.cli.queues import queued_words
from romancy.records import Instance


def test_names_of_queues_are_quoted_for_a_shell() -> None:
    given: dict[str, Any] = {field.name: None for field in fields(Instance)}
    instance: Any = SimpleNamespace(**{**given, "queue": "it's; rm -rf /", "waits": ()})
    lines = queued_words(instance, None, datetime(2026, 1, 1, tzinfo=UTC))
    assert lines[-1] == "`romancy list --queue 'it'\"'\"'s; rm -rf /'` lists its instances"
