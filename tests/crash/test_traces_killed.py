"""Workers that are killed while they run and while they wait: the instance is still one trace, and nothing is twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

from romancy import App, Database
from tests.crash.processes import spawn
from tests.crash.traced_worker import long, telemetry
from tests.helpers import eventually


def spans(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.glob("spans.*") for line in path.read_text().splitlines()]


async def test_a_trace_survives_its_workers(place: tuple[str, str], tmp_path: Path) -> None:
    url, schema = place
    worker = spawn("tests.crash.traced_worker", url, schema, str(tmp_path))
    try:
        app = App(Database(url, schema=schema or None), worker=False, middleware=telemetry(str(tmp_path)))
        async with app:
            handle = await app.start_workflow("long", instance_id="x")
            await asyncio.to_thread(eventually, (tmp_path / "running").exists, 30, "the activity")
            for _ in range(2):  # first while it runs, then while it waits
                worker.kill()
                worker.wait()
                worker = spawn("tests.crash.traced_worker", url, schema, str(tmp_path))
                async with asyncio.timeout(60):
                    while not (await app.list_waits(type="go")).items:  # noqa: ASYNC110 - another process is at it
                        await asyncio.sleep(0.02)
            await app.send_event("go", "test", 4, id="go")
            assert await app.handle("x", long).result(timeout=30) == 7
            await asyncio.to_thread(
                eventually, lambda: any(s["name"] == "workflow long" for s in spans(tmp_path)), 10, "the last span"
            )
        assert handle.created
    finally:
        worker.kill()
        worker.wait()
    found = spans(tmp_path)
    own = [span for span in found if span["name"] != "send go"]
    assert Counter(span["name"] for span in own) == {
        "start long": 1, "run prepare": 1, "run deadly": 1, "lost deadly": 1, "wait go": 1, "workflow long": 1,
    }  # fmt: skip
    [start] = [span for span in own if span["name"] == "start long"]
    assert {span["trace"] for span in own} == {start["trace"]}
    assert {span["parent"] for span in own if span is not start} == {start["id"]}
    [sent], [wait] = [s for s in found if s["name"] == "send go"], [s for s in found if s["name"] == "wait go"]
    assert wait["links"] == [sent["id"]]
