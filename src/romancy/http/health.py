"""For whoever watches the process: is it alive, and does its database answer?

No token is needed, and an app without tokens answers from everywhere: probes (a kubelet's, a load balancer's) come from
other machines and can't log in. In return it says yes or no, and why only to those who may look.
"""

from __future__ import annotations

from romancy.errors import AppNotRunning, StorageError
from romancy.http import schemas
from romancy.http.responses import HTTPError, Response, error_answer, json_answer
from romancy.http.routes import Handler, Request, Route


async def live(request: Request) -> Response:
    """Whether the process answers at all; the database is not asked."""
    return json_answer(200, {"status": "alive"})


async def ready(request: Request) -> Response:
    """Whether the app runs and its database can be read and is not known to refuse writes."""
    if request.stopping.is_set():
        raise AppNotRunning("the server is stopping")
    if request.runtime.engine.outdated is not None:
        raise request.runtime.engine.outdated
    await request.runtime.engine.storage.instance("")
    if request.backpressure.is_stalled:
        raise HTTPError(503, "the database does not take what is to be stored", kind="DatabaseUnavailable")
    return json_answer(200, {"status": "ready"})


def failed(request: Request, error: Exception) -> Response:
    """What is wrong with the database may name servers and files."""
    if isinstance(error, StorageError) and "read" not in request.scopes:
        text = "the database is unavailable; a token with the scope 'read' is told more"
        error = HTTPError(503, text, kind="DatabaseUnavailable")
    return error_answer(error, f"{request.scope['method']} {request.scope['path']!r}")


def _route(path: str, handler: Handler) -> Route:
    return Route("GET", path, handler, {200: schemas.Health}, scope=None, is_public=True, query=None, on_error=failed)


ROUTES = (_route("/health/live", live), _route("/health/ready", ready))
