"""A receiver on a real socket, whose answers a test decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from romancy import App, DeadLetter


@dataclass
class Request:
    line: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


async def accept(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")


def reply(status: int, body: bytes = b"", *headers: str) -> Answer:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        head = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *headers]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    return answer


@dataclass
class Receiver:
    url: str = ""
    answer: Answer = accept
    requests: list[Request] = field(default_factory=list[Request])
    connections: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list[asyncio.StreamWriter])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *lines = head.strip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
                request = Request(line, headers, await reader.readexactly(int(headers["content-length"])))
                self.requests.append(request)
                await self.answer(request, writer)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/events?tenant=7"
    try:
        yield receiver
    finally:
        server.close()
        for writer in receiver.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


async def until(check: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that no event tells."""
    async with asyncio.timeout(seconds):
        while not check():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def gave_up(app: App) -> Sequence[DeadLetter]:
    """Wait for dead letters, and return them."""
    async with asyncio.timeout(20):
        while not (letters := (await app.list_dead_letters()).items):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return letters
