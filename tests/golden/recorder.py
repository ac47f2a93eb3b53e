"""Records golden histories: `python -m tests.golden.recorder`. Adds what is missing; never rewrites a file.

Each file has the name of its workflow in `workflows.py` and the status in which the history leaves the instance.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from romancy.testing import Environment, environment
from romancy.testing.histories import dump
from tests.golden import workflows as w

FOLDER = Path(__file__).parent / "histories"
Scene = Callable[[Environment], Awaitable[str]]


def plays(wf: Any, *args: Any) -> Scene:
    """Start it, and let it run to its end."""

    async def scene(env: Environment) -> str:
        handle = await env.start(wf, *args)
        await env.advance(90 * 24 * 3600)
        return handle.instance_id

    return scene


async def waiting(env: Environment) -> str:
    handle = await env.start(w.waits, "a")
    await env.send_event("plain", "golden", [1, "two", None], id="1")
    await env.send_event("typed", "golden", {"id": "b", "amount": 1}, id="2")
    await env.send_event("typed", "golden", {"id": "a", "amount": 2}, id="3")
    return handle.instance_id


async def waited(env: Environment) -> str:
    id = await waiting(env)
    await env.send_event("right", "golden", b"\x00\xff", id="4", subject="here", extensions={"tenant": "x"})
    return id


async def cancelled(env: Environment) -> str:
    handle = await env.start(w.cancelled)
    await env.cancel(handle, "not wanted")
    return handle.instance_id


async def changed(env: Environment) -> str:
    return (await env.start(w.changed)).instance_id


async def changed_and_done(env: Environment) -> str:
    id = await changed(env)
    await env.send_event("go", "golden", id="1")
    return id


async def started(env: Environment) -> str:
    env.app.register(w.started)
    await env.send_event("begin", "golden", {"id": "a", "amount": 7}, id="1")
    await env.advance(2)
    (instance,) = (await env.app.list_instances(workflow="started")).items
    return instance.instance_id


async def failed_again(env: Environment) -> str:
    """It fails, is retried, and fails otherwise."""
    w.DOWN.update("b")
    handle = await env.start(w.retried)
    w.DOWN.clear()
    await env.app.retry_workflow(handle.instance_id)
    await env.settle()
    await env.advance(61)
    return handle.instance_id


async def retried(env: Environment) -> str:
    """It is retried after its timeout, too, and completes."""
    id = await failed_again(env)
    await env.app.retry_workflow(id)
    await env.settle()
    await env.send_event("go", "golden", "at last", id="1")
    return id


async def forked(env: Environment) -> str:
    handle = await env.start(w.forked)
    copy = await env.app.fork_workflow(handle.instance_id, at=1)
    await env.settle()
    return copy.instance_id


async def undone(env: Environment) -> str:
    handle = await env.start(w.blocks)
    await env.send_event("go", "golden", id="1")
    await env.send_event("end", "golden", id="2")
    return handle.instance_id


SCENES: dict[str, Scene] = {
    "activities": plays(w.activities, w.Order("a", 1)),
    "failures": plays(w.failures),
    "retries": plays(w.retries),
    "fails": plays(w.fails),
    "waits-open": waiting,
    "waits": waited,
    "timers": plays(w.timers),
    "sends": plays(w.sends),
    "cancelled": cancelled,
    "gathers": plays(w.gathers),
    "limits": plays(w.limits),
    "too_long": plays(w.too_long),
    "changed-open": changed,
    "changed": changed_and_done,
    "started": started,
    "retried-failed": failed_again,
    "retried": retried,
    "forked": forked,
    "blocks": undone,
    "blocks-before": undone,  # as it was when blocks did not wait for what had begun in them
}
"""By the name of the file; what follows a `-` is not part of the workflow's name."""


async def record(scene: Scene) -> str:
    async with environment() as env:
        id = await scene(env)
        instance = await env.app.get_instance(id)
        history = [_anonymous(entry) for entry in json.loads(dump(await env.app.get_history(id)))]
    about = {"status": instance.status, "output": instance.output}
    return json.dumps({**about, "history": history}, indent=1) + "\n"


def _anonymous(entry: dict[str, Any]) -> dict[str, Any]:
    """Tracebacks name files: without the folders of the machine that recorded them."""
    for name in ("input", "payload"):
        if entry[name] is not None:
            raw = base64.b64decode(entry[name]["b"])
            for root in (Path(__file__).parents[2], Path(asyncio.__file__).parents[1]):
                raw = raw.replace(f"{root}/".encode(), b"")
            entry[name]["b"] = base64.b64encode(raw).decode()
    return entry


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, scene in SCENES.items():
        file = FOLDER / f"{name}.json"
        if not file.exists():
            file.write_text(asyncio.run(record(scene)))
            print(f"recorded {file.name}")


if __name__ == "__main__":
    main()
