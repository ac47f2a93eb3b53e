"""Who runs an instance, in words: for `romancy why` and for its page. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from romancy.core.model import Status, from_us
from romancy.storage.records import WorkerRow


@dataclass(frozen=True)
class Runner:
    """A worker, or that there is none. `until`: when its lease is over; `advice` follows where it was over already."""

    said: str
    is_alive: bool
    until: datetime | None = None
    advice: str = ""


def runner_of(
    workflow: str, status: Status, owner: str | None, worker: WorkerRow | None, now: int, *, is_wanted: bool
) -> Runner:
    """Who runs it, and whether that worker is alive. `is_wanted`: there is something for it that a worker must do."""
    hint = f"that has workflow {workflow!r}: romancy worker MODULE"
    runs, ran = ("runs", "ran") if status == "running" else ("holds", "held")
    if worker is None and status != "running" and not is_wanted:
        said = f"no worker holds it now; when what it waits for comes, it is taken up by one {hint}"
        return Runner(said, is_alive=False)
    if owner is None:
        return Runner(f"no worker {runs} it; start one {hint}", is_alive=False)
    if worker is None:
        return Runner(f"worker {owner}, which {ran} it, is gone; start one {hint}", is_alive=False)
    who, until = f"worker {owner} on {worker.host} {runs} it", from_us(worker.until)
    if worker.until > now:
        return Runner(f"{who} and is alive", True, until)
    return Runner(f"{who}, but its lease ran out", False, until, f"it is gone or hangs; another takes over, {hint}")
