"""Measures the viewer's pages with very many instances: `python -m bench.pages [COUNT [DATABASE_URL]]`.

Creates a SQLite database with COUNT instances (default: a million), half of them finished and half of them waiting.
With a PostgreSQL URL, it is first copied there by `romancy copy`. Then every page is fetched from `romancy viewer`,
with filters that find much, little and nothing.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2
from rich.console import Console
from rich.table import Table

from tests.viewer.make_many import RARE, make

TIMES = 7
PAGES = (
    "",
    "retrying",
    "overdue",
    "instances",
    "instances?status=failed",
    "instances?status=waiting_for_event",
    "instances?workflow=payment",
    f"instances?workflow={RARE}",
    "instances?text=ORD-1234",
    "instances?text=declined",
    "instances?text=nosuch",
    "instances?text=nosuch&status=completed",
    "waiting",
    "waits?type=order.approved",
    "instances/order-0000005",
    "events",
    "events?show=unmatched",
    "events?type=invoice.paid",
    "events?text=nosuch",
    "events?before=2020-01-01T00:00",
    "queues",
    "schedules",
    "sinks",
    "workflows",
    "send",
)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "many.db")
        with console.status(f"Making {count:,} instances ..."):
            make(database, count)
        if len(sys.argv) > 2:
            with console.status("Copying them to PostgreSQL ..."):
                _romancy("copy", database, sys.argv[2])
            database = sys.argv[2]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "romancy", "viewer", "--database", database, "--port", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _show(console, count, _fetch(f"http://127.0.0.1:{port}/viewer/"))
        finally:
            server.terminate()
            server.wait()


def _romancy(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "romancy", *arguments], check=True, stdout=subprocess.DEVNULL)


def _fetch(base: str) -> dict[str, list[float]]:
    """Return milliseconds by page; the first fetch of each page counts, too."""
    taken: dict[str, list[float]] = {}
    with httpx2.Client(timeout=60, transport=httpx2.HTTPTransport(retries=20)) as client:
        _wait_for(client, base)
        for _ in range(TIMES):
            for page in PAGES:
                begin = time.perf_counter()
                client.get(base + page).raise_for_status()
                taken.setdefault(page, []).append((time.perf_counter() - begin) * 1000)
    return taken


def _wait_for(client: httpx2.Client, base: str) -> None:
    for _ in range(100):
        try:
            client.get(f"{base}login")
            return
        except httpx2.ConnectError:
            time.sleep(0.1)
    raise SystemExit("the viewer did not start")


def _show(console: Console, count: int, taken: dict[str, list[float]]) -> None:
    table = Table("page", "median ms", "worst ms", title=f"pages among {count:,} instances")
    for page, times in taken.items():
        table.add_row(f"/viewer/{page}", f"{statistics.median(times):.0f}", f"{max(times):.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
