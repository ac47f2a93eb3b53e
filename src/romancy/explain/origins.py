"""Where an instance comes from, as text for people."""

from __future__ import annotations

from datetime import datetime

from romancy.records import Instance


def scheduled_by(instance: Instance) -> str:
    """Return the schedule that started an instance, and its tick, in words; empty if none did."""
    name = instance.schedule
    if name is None:
        return ""
    _, _, tick = instance.instance_id.partition(f"{name}/")
    try:
        return f"{name}, for its tick at {datetime.fromisoformat(tick):%Y-%m-%d %H:%M:%S %Z}"
    except ValueError:
        return f"{name}, outside its ticks"
