"""Where a request comes from: which machine, a proxy or not, and which web page.

The peer is what the server says about the connection (`client` in the ASGI scope), never what a header claims. Headers
can only count against a request: one that only proxies add shows that the request comes from another machine.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import cast
from urllib.parse import urlsplit

from romancy.http.body import Head
from romancy.http.responses import Header, Scope

_PROXY_PREFIXES = (b"x-forwarded-", b"x-envoy-")
_PROXY_HEADERS = frozenset(
    {
        b"cdn-loop",
        b"cf-connecting-ip",
        b"fastly-client-ip",
        b"fly-client-ip",
        b"forwarded",
        b"true-client-ip",
        b"via",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-original-forwarded-for",
        b"x-originating-ip",
        b"x-real-ip",
    }
)


def not_local(scope: Scope) -> str | None:
    """Why a request is not from this machine, as the end of a sentence; None if it came over loopback."""
    client = cast("tuple[str, int] | None", scope.get("client"))
    if client is None:
        return "came over a Unix socket, or through a server that does not tell the client's address"
    if not is_loopback(client[0]):
        return f"came from {client[0][:100] or 'an unknown address'}"
    for name, _ in cast("list[Header]", scope["headers"]):
        if name in _PROXY_HEADERS or name.startswith(_PROXY_PREFIXES):
            return f"came through a proxy (it has the header {name.decode('latin-1')!r})"
    return None


@lru_cache(1024)
def is_loopback(name: str) -> bool:
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@lru_cache(1024)
def host_name(host: bytes) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host.decode('latin-1')}").hostname or "").rstrip(".")
    except ValueError:
        return ""


# --- web pages ------------------------------------------------------------------------------------------------------
class Pages:
    """Tells our own web pages from those of other sites, by what the browser says about the requesting page."""

    def __init__(self, public_url: str | None) -> None:
        self._origin = None if public_url is None else origin_of(public_url)

    @property
    def host(self) -> str | None:
        """The host name of the public URL, if there is one."""
        return None if self._origin is None else host_name(self._origin.partition(b"://")[2])

    def are_ours(self, head: Head) -> bool:
        """Whether the browser confirms that the request comes from one of our pages."""
        if head.get(b"origin") is not None and not self.is_origin_ours(head):
            return False
        site = head.get(b"sec-fetch-site")
        return site == b"same-origin" if site is not None else head.get(b"origin") is not None

    def is_origin_ours(self, head: Head) -> bool:
        """Whether the page's origin is the host of the request, or the public URL."""
        origin, host = (head.get(b"origin") or b"").lower(), head.get(b"host")
        return origin == self._origin or (host is not None and origin.partition(b"://")[2] == host.lower())

    def explain(self, head: Head) -> str:
        """Why a page was taken for another site's, and what to do if that is wrong."""
        origin, host = (head.get(name) for name in (b"origin", b"host"))
        if origin is None:
            return "the browser did not say which page sent the request (no Origin header)"
        where = f"its Origin is {_quoted(origin)}, and the requested Host is {_quoted(host or b'')}"
        if head.get(b"sec-fetch-site") == b"cross-site":
            return where
        return (
            f"{where}; if you opened this app at that Origin, a proxy in between changes the Host: let the proxy pass "
            'it on (nginx: proxy_set_header Host $http_host), or set App(public_url="https://...")'
        )


def origin_of(url: str) -> bytes:
    """The origin of a URL, without the default port: `https://shop.example` for `https://shop.example/path`."""
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = "" if parts.port in (None, usual) else f":{parts.port}"
    return f"{parts.scheme}://{name}{port}".encode("ascii")


def _quoted(value: bytes) -> str:
    return repr(value[:100].decode("latin-1"))
