"""Who may: tokens with scopes; and without tokens, no web page of somebody else's.

An app without tokens is open to whoever can reach it. `romancy serve` then listens on this machine only, but a browser
on this machine can reach it too, on behalf of any web page. Two things give such a page away. A request that changes
something names the page's origin: an `Origin` that is not the `Host` asked for is refused. And a page whose own name
was made to point to 127.0.0.1 ("DNS rebinding") asks by that name: on a loopback address only names of this machine are
answered, and those in `HTTPOptions(allowed_hosts=...)`. With tokens neither is needed: the page does not know one.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import unquote_to_bytes, urlsplit

from romancy.http.answers import Header, Refusal, Scope
from romancy.http.body import Head
from romancy.options import HTTPOptions, Token, digest

PRIVATE: Header = (b"cache-control", b"private")
"""On what was asked with the token in the URL: no cache in between may keep it."""
_CHALLENGE: Header = (b"www-authenticate", b"Bearer")


class Access:
    """Lets requests in, or raises why not."""

    def __init__(self, tokens: Sequence[Token], options: HTTPOptions) -> None:
        self.is_open = not tokens
        self._tokens = tokens
        self._hosts = frozenset(host.lower() for host in options.allowed_hosts)

    def check(self, head: Head, scope: Scope, wanted: str | None, *, in_query: bool = False) -> Sequence[Header]:
        """Headers the answer must carry. `wanted`: the scope it takes; None: any valid token will do.

        `in_query`: a token may also come as `?access_token=`.
        """
        found = _taken_out(scope) if b"access_token=" in scope.get("query_string", b"") else None
        if self.is_open:
            self._check_browser(head, scope)
            return ()
        presented = _bearer(head)
        if presented is None and in_query:
            presented = found
        self._check_token(presented, wanted)
        return () if found is None else (PRIVATE,)

    def _check_token(self, presented: bytes | None, wanted: str | None) -> None:
        offered = digest(presented or b"")
        # Every token is compared, whichever fits: how long it takes says nothing.
        fitting = [token for token in self._tokens if hmac.compare_digest(token.digest, offered)]
        if presented is None or not fitting:
            text = "this needs a valid token: send it as 'Authorization: Bearer TOKEN'"
            raise Refusal(401, text, kind="Unauthorized", headers=[_CHALLENGE])
        if wanted is not None and not any(wanted in token.scopes for token in fitting):
            raise Refusal(403, f"this token does not have the scope {wanted!r} that this needs", kind="Forbidden")

    def _check_browser(self, head: Head, scope: Scope) -> None:
        host, origin = head.get(b"host"), head.get(b"origin")
        if origin is not None and not self._is_same(origin, host):
            raise _foreign("another site's page can't use this (its Origin is not the Host asked for)")
        if host is None or "*" in self._hosts or not _is_loopback((scope.get("server") or ("",))[0]):
            return
        name = _host_name(host)
        if name != "localhost" and not _is_loopback(name) and name not in self._hosts:
            raise _foreign(
                f"without tokens only this machine's own names are answered here, not {name[:100]!r}; set tokens, or "
                "name it in HTTPOptions(allowed_hosts=[...])"
            )

    def _is_same(self, origin: bytes, host: bytes | None) -> bool:
        return host is not None and origin.partition(b"://")[2].lower() == host.lower()


def _foreign(text: str) -> Refusal:
    return Refusal(403, text, kind="Forbidden")


def _bearer(head: Head) -> bytes | None:
    scheme, _, token = (head.get(b"authorization") or b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


def _taken_out(scope: Scope) -> bytes | None:
    """The token in the URL. It is removed from the scope, so that no access log can show it."""
    pairs: list[bytes] = scope["query_string"].split(b"&")
    tokens = [pair for pair in pairs if pair.startswith(b"access_token=")]
    scope["query_string"] = b"&".join(pair for pair in pairs if pair not in tokens)
    return unquote_to_bytes(tokens[0].partition(b"=")[2]) if len(tokens) == 1 else None


@lru_cache(1024)
def _host_name(host: bytes) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host.decode('latin-1')}").hostname or "").rstrip(".")
    except ValueError:
        return ""


@lru_cache(1024)
def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
