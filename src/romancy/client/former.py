"""Lets a client use a transport of httpx, which httpx2 succeeds: programs and test suites may still have one."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import httpx2

if TYPE_CHECKING:
    from collections.abc import Generator


class FormerTransport(Protocol):
    """What a transport of httpx can do. Its requests and answers are httpx's own classes."""

    async def handle_async_request(self, request: Any) -> Any: ...
    async def aclose(self) -> None: ...


Transport = httpx2.AsyncBaseTransport | FormerTransport


def adapted(transport: Transport | None) -> httpx2.AsyncBaseTransport | None:
    """Return a transport that httpx2 can use."""
    if transport is None or isinstance(transport, httpx2.AsyncBaseTransport):
        return transport
    httpx = sys.modules.get("httpx")  # whoever has a transport of it has imported it
    if httpx is not None and isinstance(transport, httpx.AsyncBaseTransport):
        return _Adapted(transport, httpx)
    kind = type(transport)
    raise TypeError(f"transport must be an httpx2.AsyncBaseTransport, not {kind.__module__}.{kind.__qualname__}")


class _Adapted(httpx2.AsyncBaseTransport):
    def __init__(self, inner: FormerTransport, httpx: Any) -> None:
        self._inner, self._httpx = inner, httpx

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        given = self._httpx.Request(
            request.method,
            str(request.url),
            headers=request.headers.raw,
            content=await request.aread(),
            extensions=request.extensions,
        )
        with self._translated():
            answer = await self._inner.handle_async_request(given)
        extensions = {name: value for name, value in answer.extensions.items() if name != "network_stream"}
        stream = _Stream(answer.stream, self)
        return httpx2.Response(answer.status_code, headers=answer.headers.raw, stream=stream, extensions=extensions)

    async def aclose(self) -> None:
        await self._inner.aclose()

    @contextmanager
    def _translated(self) -> Generator[None]:
        """Raise httpx2's error of the same name."""
        try:
            yield
        except self._httpx.RequestError as error:
            kind = getattr(httpx2, type(error).__name__, httpx2.TransportError)
            raise kind(str(error)) from error


class _Stream(httpx2.AsyncByteStream):
    def __init__(self, inner: Any, adapted: _Adapted) -> None:
        self._inner, self._adapted = inner, adapted

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with self._adapted._translated():  # pyright: ignore[reportPrivateUsage]
            async for part in self._inner:
                yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
