"""For monitoring: is the process alive, and does its database answer?

No token is needed, and all machines are answered even if the app has no tokens: probes (of a kubelet or a load
balancer) come from other machines and can't log in. In return, only clients with the scope `read` are told the reason.
"""

from __future__ import annotations

from romancy.errors import AppNotRunning, StorageError
from romancy.http import schemas
from romancy.http.responses import HTTPError, Response, error_answer, json_answer
from romancy.http.routes import Handler, Request, Route


async def live(request: Request) -> Response:
    """Whether the process answers at all; does not check the database."""
    return json_answer(200, {"status": "alive"})


async def ready(request: Request) -> Response:
    """Whether the app is running, and its database can be read and takes writes as far as known."""
    if request.stopping.is_set():
        raise AppNotRunning("the server is stopping")
    if request.runtime.engine.outdated is not None:
        raise request.runtime.engine.outdated
    await request.runtime.engine.storage.existing([""])
    if request.backpressure.is_stalled:
        raise HTTPError(503, "the database does not accept writes at the moment", kind="DatabaseUnavailable")
    return json_answer(200, {"status": "ready"})


def failed(request: Request, error: Exception) -> Response:
    """Errors of the database may name servers and files, so they are not shown to everyone."""
    if isinstance(error, StorageError) and "read" not in request.scopes:
        text = "the database is unavailable; send a token with the scope 'read' to see the reason"
        error = HTTPError(503, text, kind="DatabaseUnavailable")
    return error_answer(error, f"{request.scope['method']} {request.scope['path']!r}")


def _route(path: str, handler: Handler) -> Route:
    answers = {200: schemas.Health}
    return Route(
        "GET", path, handler, answers, scope=None, is_public=True, query=None, needs_room=False, on_error=failed
    )


ROUTES = (_route("/health/live", live), _route("/health/ready", ready))
