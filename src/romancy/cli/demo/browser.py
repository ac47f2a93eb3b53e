"""The viewer beside the story, on a free port of this machine, and the browser that opens it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from romancy.app import App, http_app
from romancy.http.listener import listen, url_of


@asynccontextmanager
async def serving(app: App) -> AsyncGenerator[str]:
    """Serve the viewer of an app that is running. Yields its address."""
    from romancy.http.server import Server  # imported lazily: uvicorn is slow to import

    face, started = http_app(app), asyncio.Event()
    with listen("127.0.0.1", 0) as bound:
        server = Server(face, app, started.set)
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        serving.add_done_callback(lambda _: started.set())
        try:
            await started.wait()
            yield f"{url_of(bound)}/viewer/"
        finally:
            face.drain()  # ends the streams of open pages, so that the server can stop
            server.should_exit = True
            await serving


def can_open(env: Mapping[str, str]) -> bool:
    """Return whether a browser would show up on the user's desktop, and not in this terminal or on another machine."""
    if env.get("BROWSER"):
        return True
    if env.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("darwin", "win32") or bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"))


def open_page(address: str) -> None:
    """Open a page in the user's browser. In a process of its own: browsers write to the terminal, and some block."""
    subprocess.Popen(
        [sys.executable, "-m", "webbrowser", address],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
