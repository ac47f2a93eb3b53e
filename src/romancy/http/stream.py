"""`GET /api/stream`: what changed, as server-sent events, at most three times a second however much happens.

A message is `{"changed": [ids] | null, "started": n, "events": n, "counts": {...}, "now": ms, "database": bool}`. If
`changed` is null, anything may have changed. A client that falls behind gets one such message for all it missed. A
stream begins with a `beat`, and a quiet one has another every few seconds: `{"database": bool}`, whether the database
can be read. While no client listens, nothing is collected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from romancy.core.clock import stopwatch
from romancy.engine.changes import Changes, Watcher
from romancy.errors import StorageError
from romancy.http.responses import HTTPError, Response, to_json
from romancy.http.routes import Request, Route

CAP = 10_001
"""Instances are counted up to here; this number means "more than 10,000"."""
MOST = 100
"""Maximum of open streams."""
_PAUSE, _SHARE = 0.35, 20
"""Minimum of seconds between messages; counting takes at most one part in `_SHARE` of the time."""
_POLL, _BEAT = 2.0, 5.0
"""Seconds between checks for unannounced changes, and between beats on a quiet stream."""
_PATIENCE = 5.0
"""Seconds without an answer after which the database counts as unavailable."""
Counts = dict[Any, int]
HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class Stream:
    """One listener, with the message that it has not been sent yet."""

    def __init__(self, reads: Callable[[], bool]) -> None:
        self._reads = reads
        self._pending: dict[str, Any] | None = None
        self._ready = asyncio.Event()
        self.is_over = False

    def put(self, message: dict[str, Any]) -> None:
        """Messages are not queued: a listener that missed one is told to refresh everything."""
        self._pending = message if self._pending is None else {**message, "changed": None}
        self._ready.set()

    def end(self) -> None:
        self.is_over = True
        self._ready.set()

    def beat(self) -> bytes:
        return b"event: beat\ndata: " + to_json({"database": self._reads()}) + b"\n\n"

    async def next(self) -> bytes:
        """The next message, or a beat."""
        try:
            async with asyncio.timeout(_BEAT):
                await self._ready.wait()
        except TimeoutError:
            return self.beat()
        self._ready.clear()
        message, self._pending = self._pending, None
        return b"" if message is None else b"data: " + to_json(message) + b"\n\n"


class Hub:
    """Watches the engine while there are listeners, and sends all of them the same."""

    def __init__(self) -> None:
        self._streams: set[Stream] = set()
        self._task: asyncio.Task[None] | None = None
        self._failed = False
        self._asked: float | None = None
        """When the database was asked, while it has not answered."""
        self.route = Route("GET", "/api/stream", self.listen, {200: str})

    def __repr__(self) -> str:
        return f"<Hub streams={len(self._streams)}>"

    def reads(self) -> bool:
        """Whether the database could be read when last asked."""
        return not self._failed and (self._asked is None or stopwatch() - self._asked < _PATIENCE)

    async def listen(self, request: Request) -> Response:
        """Live changes, as server-sent events."""
        if len(self._streams) >= MOST:
            raise HTTPError(503, f"too many open streams ({MOST}); close some pages of the viewer", kind="Overloaded")
        request.runtime.engine  # noqa: B018 - raises at once if the app is not running
        return Response(200, None, HEADERS, self._parts(request))

    async def _parts(self, request: Request) -> AsyncGenerator[bytes]:
        stream = Stream(self.reads)
        self._streams.add(stream)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(request), name="romancy-stream")
        endings = [asyncio.ensure_future(request.gone()), asyncio.ensure_future(request.stopping.wait())]
        for ending in endings:
            ending.add_done_callback(lambda _: stream.end())
        try:
            yield b"retry: 2000\n\n"
            yield stream.beat()
            checked = stopwatch()
            while not stream.is_over:
                yield await stream.next()
                if stopwatch() - checked >= _BEAT:
                    checked = stopwatch()
                    if not await is_welcome(request):
                        break
        finally:
            self._streams.discard(stream)
            for ending in endings:
                ending.cancel()

    async def _run(self, request: Request) -> None:
        """Repeat: wait for a change, count, tell all listeners, pause."""
        engine = request.runtime.engine
        watcher = engine.changes.watch()
        counts: Counts = {}
        try:
            while self._streams and request.app.is_running and request.runtime.engine is engine:
                await _changed(watcher)
                changes, before, begun = watcher.take(), counts, stopwatch()
                counts = await self._counted(engine.storage.catalog.counts, before)
                if _is_news(changes) or counts != before:
                    self._tell(changes, counts, engine.clock.now())
                # The length of an outage says nothing about the cost of counting.
                took = 0.0 if self._failed else stopwatch() - begun
                await asyncio.sleep(max(_PAUSE, took * _SHARE))
        finally:
            self._asked, self._failed = None, False  # the next listener asks again
            engine.changes.leave(watcher)
            for stream in self._streams:
                stream.end()

    async def _counted(self, count: Callable[[int], Awaitable[Counts]], before: Counts) -> Counts:
        self._asked = stopwatch()
        try:
            found = await count(CAP)
        except StorageError:  # keep the previous counts
            self._failed = True
            return before
        finally:
            self._asked = None
        self._failed = False
        return found

    def _tell(self, changes: Changes, counts: Counts, now: int) -> None:
        vague = changes.is_vague or not changes.instances
        message = {
            "changed": None if vague else sorted(changes.instances),
            "started": changes.started,
            "events": changes.accepted,
            "counts": counts,
            "now": now // 1000,
            "database": self.reads(),
        }
        for stream in self._streams:
            stream.put(message)


async def is_welcome(request: Request) -> bool:
    """Whether the session still exists. While the database is unavailable, streams are kept open."""
    try:
        return request.session is None or bool(await request.session())
    except StorageError:
        return True


def _is_news(changes: Changes) -> bool:
    return bool(changes.instances or changes.accepted or changes.is_vague)


async def _changed(watcher: Watcher) -> None:
    try:
        async with asyncio.timeout(_POLL):
            await watcher.changed.wait()
    except TimeoutError:
        pass  # look all the same: not every database announces the writes of others, but the counts reveal them
