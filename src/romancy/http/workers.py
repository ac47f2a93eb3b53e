"""The control API for operators: the workers, and attempts that are not to wait any longer."""

from __future__ import annotations

from typing_extensions import TypedDict

from romancy.desk import WorkerRecord
from romancy.http import schemas
from romancy.http.responses import Response, json_answer
from romancy.http.routes import Request, Route
from romancy.http.serialize import time_text


class WorkerItem(TypedDict):
    id: str
    host: str
    pid: int | None
    version: str | None
    build: str | None
    workflows: list[str]
    slots: int | None
    load: int | None
    started_at: schemas.Time
    until: schemas.Time
    is_alive: bool
    instances: int


class Workers(TypedDict):
    items: list[WorkerItem]


class RetriedNow(schemas.Standing):
    begins: bool


async def list_workers(request: Request) -> Response:
    """The workers, the longest-running first. Instances are counted up to 10,000."""
    return json_answer(200, {"items": [_worker(record) for record in await request.app.list_workers()]})


async def retry_now(request: Request) -> Response:
    """Begin attempts now that wait because earlier ones failed. 409 if the instance has ended or is blocked.

    `begins` is false if no activity of the instance waits for its next attempt.
    """
    app, id = request.app, request.path["instance_id"]
    unknown = "; it is unknown whether the attempts begin now: try again"
    begins = await request.backpressure.store(app.retry_now(id), 0, unknown)
    standing = {"instance_id": id, "status": (await app.get_instance(id)).status}
    return json_answer(200, {**standing, "begins": begins})


def _worker(record: WorkerRecord) -> WorkerItem:
    return {
        "id": record.id,
        "host": record.host,
        "pid": record.pid,
        "version": record.version,
        "build": record.build,
        "workflows": list(record.workflows),
        "slots": record.slots,
        "load": record.load,
        "started_at": time_text(record.started_at),
        "until": time_text(record.until),
        "is_alive": record.is_alive,
        "instances": record.instances,
    }


ROUTES = (
    Route("GET", "/api/workers", list_workers, {200: Workers}),
    Route(
        "POST",
        "/api/instances/{instance_id}/retry-now",
        retry_now,
        {200: RetriedNow},
        [404, 409],
        scope="control",
    ),
)
