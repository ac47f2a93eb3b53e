"""`python -m tests.soak [sim] [sqlite] [postgres]`: see the package."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.soak import real
from tests.soak.display import Display, Part
from tests.soak.world import simulate

Play = Callable[[int, Part], None]
"""Plays one round by a seed; raises `AssertionError` where a promise was broken."""


def _simulate(seed: int, part: Part) -> None:
    simulate(seed, part.counts)


def _on(site: type[real.Site]) -> Play:
    return lambda seed, part: real.play(seed, site(), part.counts)


PLAYS: dict[str, Play] = {"sim": _simulate, "sqlite": _on(real.SQLiteSite), "postgres": _on(real.PostgresSite)}


def main(names: list[str]) -> int:
    plays = PLAYS
    unknown = set(names) - set(plays)
    if unknown:
        print(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(plays)}", file=sys.stderr)
        return 2
    given = os.environ.get("ROMANCY_SOAK_SEED")
    log = os.environ.get("ROMANCY_SOAK_LOG")
    if given:
        name, _, number = given.rpartition("-")
        if name not in plays or not number.isdigit():
            print(f"ROMANCY_SOAK_SEED={given!r} is not a seed; one looks like sim-4711", file=sys.stderr)
            return 2
        parts = [Part(name)]
    else:
        parts = [Part(name) for name in names or plays]
    with Display(parts, Path(log) if log else None) as display:
        if given:
            _round(display, plays, parts[0], int(given.rpartition("-")[2]))
        else:
            _soak(display, plays, parts, float(os.environ.get("ROMANCY_SOAK_MINUTES", "10")) * 60)
    return 1 if any(part.counts["violations"] for part in parts) else 0


def _soak(display: Display, plays: dict[str, Play], parts: list[Part], seconds: float) -> None:
    """The part that had the least time so far is next."""
    seed = random.SystemRandom().randrange(1_000_000_000)
    display.print(f"seeds from {seed} on")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _round(display, plays, min(parts, key=lambda part: part.seconds), seed)
        seed += 1


def _round(display: Display, plays: dict[str, Play], part: Part, seed: int) -> None:
    begin = time.monotonic()
    try:
        plays[part.name](seed, part)
    except Exception as error:  # a soak that fails itself is to be looked at, too, and goes on
        if not isinstance(error, AssertionError):
            error.add_note(traceback.format_exc())
        part.counts["violations"] += 1
        notes = "\n".join(getattr(error, "__notes__", ()))
        repeat = f"ROMANCY_SOAK_SEED={part.name}-{seed} make soak"
        display.print(f"\nVIOLATION {part.name}-{seed}: {error}\n{notes}\nTo repeat it: {repeat}\n")
        display.write({"violation": f"{part.name}-{seed}", "message": str(error)[:2000]})
    part.seconds += time.monotonic() - begin
    part.counts["rounds"] += 1
    display.update()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of strings is part of a simulation
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.soak", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background, too: the workers must not outlive this
        signal.signal(number, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
