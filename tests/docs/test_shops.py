"""The two shops of the tutorials run as their pages say: with real servers, and workers that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from tests import pg_server
from tests.helpers import free_port

pytestmark = pytest.mark.play

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE = 30.0


@contextmanager
def running(command: Sequence[str], folder: Path, environ: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, *command], cwd=folder, env=os.environ | environ)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(condition: Callable[[], Any]) -> Any:
    """Wait for something that another process does."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            found = condition()
        except httpx2.TransportError:
            found = None
        if found:
            return found
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@pytest.fixture
async def database() -> AsyncIterator[str]:
    server = pg_server.url()
    name = f"shop_{uuid.uuid4().hex[:8]}"
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
        yield server.replace("/postgres?", f"/{name}?")
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()


def test_fastapi(database: str) -> None:
    port, folder = free_port(), EXAMPLES / "fastapi_shop"
    command = ["-m", "uvicorn", "shop:api", "--port", str(port), "--log-level", "warning"]
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}") as client:
        with running(command, folder, {"DATABASE_URL": database}) as server:
            until(lambda: client.get("/orders/0").status_code == 404)
            placed = client.post("/orders", json={"article": "book"})
            assert (placed.status_code, placed.json()) == (201, {"id": 1, "workflow": "order-1"})
            until(lambda: client.get("/romancy/api/instances/order-1").status_code == 200)
            server.kill()
        with running(command, folder, {"DATABASE_URL": database}):
            until(lambda: client.get("/orders/1").status_code == 200)
            assert client.post("/orders/7/payment", params={"amount": 5}).status_code == 404
            assert client.post("/orders/1/payment", params={"amount": 5}).status_code == 202
            until(lambda: client.get("/orders/1").json()["state"] == "paid")
            until(lambda: client.get("/romancy/api/instances/order-1").json()["status"] == "completed")


def test_django(tmp_path: Path) -> None:
    port, folder = free_port(), EXAMPLES / "django_shop"
    environ = {"SHOP_DATABASE": str(tmp_path / "shop.db"), "DJANGO_SETTINGS_MODULE": "settings"}
    subprocess.run(
        [sys.executable, "manage.py", "migrate"], cwd=folder, env=os.environ | environ, check=True, timeout=60
    )
    web = ["manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"]
    with ExitStack() as stack:
        client = stack.enter_context(httpx2.Client(base_url=f"http://127.0.0.1:{port}"))
        stack.enter_context(running(web, folder, environ))
        until(lambda: client.get("/orders/0").status_code == 404)
        placed = client.post("/orders", json={"article": "book"})
        assert (placed.status_code, placed.json()) == (201, {"id": 1, "workflow": "order-1"})
        with running(["manage.py", "work"], folder, environ) as worker:
            assert client.post("/orders/7/payment", json={"amount": 5}).status_code == 404
            assert client.post("/orders/1/payment", json={"amount": 5}).status_code == 202
            worker.kill()
        stack.enter_context(running(["manage.py", "work"], folder, environ))
        until(lambda: client.get("/orders/1").json()["state"] == "paid")
