"""The handshake of CloudEvents senders: `OPTIONS /` asks whether this server accepts their events.

Consent is in the headers, not in the status: an origin that is not in `HTTPOptions(allowed_origins=...)` gets the same
answer without them. `WebHook-Request-Callback` is ignored: the server does not call URLs that strangers send.
"""

from __future__ import annotations

from romancy.http.responses import Response
from romancy.http.routes import Request, Route


async def handshake(request: Request) -> Response:
    """The webhook handshake: whether events from the requesting origin are accepted."""
    options = request.runtime.http
    headers = [(b"allow", b"POST, OPTIONS")]
    origin = (request.head.get(b"webhook-request-origin") or b"").decode("latin-1").strip().lower()
    allowed = [known.lower() for known in options.allowed_origins]
    if origin and ("*" in allowed or origin in allowed):
        rate = "*" if options.allowed_rate is None else str(options.allowed_rate)
        granted = origin if origin in allowed else "*"
        headers += [(b"webhook-allowed-origin", granted.encode("latin-1")), (b"webhook-allowed-rate", rate.encode())]
    return Response(200, None, headers)


ROUTE = Route("OPTIONS", "/", handshake, {200: None}, scope="events", query=None)
