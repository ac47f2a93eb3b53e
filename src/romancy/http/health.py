"""For whoever watches the process: is it alive, and does its database answer? No token is needed."""

from __future__ import annotations

from romancy.errors import AppNotRunning
from romancy.http import schemas
from romancy.http.answers import Answer, Refusal, json_answer
from romancy.http.routes import Request, Route


async def live(request: Request) -> Answer:
    """Whether the process answers at all; the database is not asked."""
    return json_answer(200, {"status": "alive"})


async def ready(request: Request) -> Answer:
    """Whether the app runs and its database can be read and is not known to refuse writes."""
    if request.stopping.is_set():
        raise AppNotRunning("the server is stopping")
    if request.app.engine.outdated is not None:
        raise request.app.engine.outdated
    await request.app.engine.storage.instance("")
    if request.intake.is_stalled:
        raise Refusal(503, "the database does not take what is to be stored", kind="DatabaseUnavailable")
    return json_answer(200, {"status": "ready"})


ROUTES = (
    Route("GET", "/health/live", live, {200: schemas.Health}, scope=None, query=None),
    Route("GET", "/health/ready", ready, {200: schemas.Health}, scope=None, query=None),
)
