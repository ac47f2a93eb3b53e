"""Who runs an instance, in the words of `romancy why`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from romancy.core.model import from_us
from romancy.storage.protocol import InstanceRow, WorkerRow


@dataclass(frozen=True)
class Runner:
    """A worker, or that there is none. `until`: when its lease is over; `advice` follows where it was over already."""

    said: str
    is_alive: bool
    until: datetime | None = None
    advice: str = ""


def runner_of(row: InstanceRow, worker: WorkerRow | None, now: int) -> Runner:
    """Who runs it, and whether that worker is alive."""
    hint = f"that has workflow {row.workflow!r}: romancy worker MODULE"
    runs, ran = ("runs", "ran") if row.status == "running" else ("holds", "held")
    if row.owner is None:
        return Runner(f"no worker {runs} it; start one {hint}", is_alive=False)
    if worker is None:
        return Runner(f"worker {row.owner}, which {ran} it, is gone; start one {hint}", is_alive=False)
    who, until = f"worker {row.owner} on {worker.host} {runs} it", from_us(worker.until)
    if worker.until > now:
        return Runner(f"{who} and is alive", True, until)
    return Runner(f"{who}, but its lease ran out", False, until, f"it is gone or hangs; another takes over, {hint}")
