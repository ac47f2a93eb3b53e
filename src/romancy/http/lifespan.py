"""The lifespan of a server: an app starts and stops with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from romancy.http.responses import Receive, Send
from romancy.service import Service

_logger = logging.getLogger("romancy")


async def live(app: Service, stopping: asyncio.Event, drain: Callable[[], None], receive: Receive, send: Send) -> None:
    """Start and stop the app with the server, unless it was already started. `drain` is called before the stop."""
    is_ours = False
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            stopping.clear()
            is_ours = not app.is_running
            try:
                if is_ours:
                    await app.start()
            except Exception as error:
                _logger.error("the app failed to start: %s", error)
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
        else:
            drain()
            if is_ours:
                await app.stop()
            await send({"type": "lifespan.shutdown.complete"})
            return
