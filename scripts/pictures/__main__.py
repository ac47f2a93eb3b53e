"""`python -m scripts.pictures`: make the pictures of the documentation. Names after it: only these."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.pictures.animation import animate
from scripts.pictures.past import live_through
from scripts.pictures.recording import Line, paced, record
from scripts.pictures.window import Shot, at_work, take

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SHOTS = [
    Shot("now", ""),
    Shot("instance", "instances/ord-1043"),
    Shot("waiting", "waiting"),
]
COLUMNS, ROWS = 100, 32


async def photograph(shots: Sequence[Shot], folder: Path) -> list[Path]:
    """Write pictures of these pages of the viewer into a folder."""
    logging.getLogger("romancy").setLevel(logging.CRITICAL)  # the shop has its share of failures
    with TemporaryDirectory(prefix="romancy-pictures-") as place:
        database = Path(place, "shop.db")
        await live_through(database)
        async with at_work(database) as address:
            return await take(address, shots, folder)


def film(folder: Path) -> Path:
    """Record the demo, and write the animation into a folder."""
    lines = record([sys.executable, "-m", "romancy", "demo", "--once"], COLUMNS, ROWS)
    typed = [Line(0, "\x1b[1;32m$\x1b[0m romancy demo --once")]
    title = "romancy demo: four workflows wait, a worker is killed, another one takes over, nothing is lost"
    file = folder / "demo.svg"
    file.write_text(animate(typed + paced(lines, 0.8), COLUMNS, ROWS, title, hold=6), encoding="utf-8")
    return file


def main(names: Sequence[str]) -> None:
    """Make all pictures, or those of these names."""
    known = ["demo", *(shot.name for shot in SHOTS)]
    if unknown := set(names) - set(known):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    wanted = names or known
    written = [film(IMAGES)] if "demo" in wanted else []
    if shots := [shot for shot in SHOTS if shot.name in wanted]:
        written += asyncio.run(photograph(shots, IMAGES))
    for file in written:
        print(f"{file.relative_to(IMAGES.parents[1])}: {file.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main(sys.argv[1:])
