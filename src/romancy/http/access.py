"""Who may: tokens with scopes; and without tokens, no web page of somebody else's.

An app without tokens is open to whoever can reach it. `romancy serve` then listens on this machine only, but a browser
on this machine can reach it too, on behalf of any web page. Two things give such a page away. A request that changes
something names the page's origin: an `Origin` that is not the `Host` asked for is refused. And a page whose own name
was made to point to 127.0.0.1 ("DNS rebinding") asks by that name: on a loopback address only names of this machine are
answered, and those in `HTTPOptions(allowed_hosts=...)`. With tokens neither is needed: the page does not know one.

The viewer's visitors bring their token in a cookie, which a browser may send along for other pages too. So a cookie
counts for what changes something only if the browser says that a page of ours asks. (What is only read, no other page
gets to see.)
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Collection, Sequence
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import unquote_to_bytes, urlsplit

from romancy.http.answers import Header, Refusal, Scope
from romancy.http.body import Head
from romancy.options import SCOPES, HTTPOptions, Token, digest

PRIVATE: Header = (b"cache-control", b"private")
"""On what was asked with the token in the URL: no cache in between may keep it."""
COOKIE = "romancy"
_CHALLENGE: Header = (b"www-authenticate", b"Bearer")
_SAFE = ("GET", "HEAD", "OPTIONS")


class Access:
    """Lets requests in, or raises why not."""

    def __init__(self, tokens: Sequence[Token], options: HTTPOptions, allows: Collection[str] = SCOPES) -> None:
        self.is_open = not tokens
        self._allows = frozenset(allows)
        self._tokens = tokens
        self._hosts = frozenset(host.lower() for host in options.allowed_hosts)

    def check(self, head: Head, scope: Scope, wanted: str | None, in_url: bytes | None = None) -> Sequence[Header]:
        """Headers the answer must carry. `wanted`: the scope it takes; None: any valid token will do.

        `in_url`: the token that came as `?access_token=`, where that counts.
        """
        if self.is_open:
            self._check_browser(head, scope)
        else:
            presented = _bearer(head)
            if presented is None:
                presented = in_url
            if presented is None and (presented := from_cookie(head)) is not None:
                _check_own_page(head, scope)
            head.token = self._check_token(presented, wanted).digest
        if wanted is not None and wanted not in self._allows:
            raise Refusal(
                403, "this server only shows; `romancy viewer --allow-actions` lets you act", kind="Forbidden"
            )
        return () if in_url is None or self.is_open else (PRIVATE,)

    def scopes(self, head: Head, scope: Scope) -> frozenset[str]:
        """What a visitor may do here; nothing, if it is not known who it is."""
        presented = _bearer(head) or from_cookie(head)
        if self.is_open:
            return self._allows
        found = [] if presented is None else self._fitting(presented)
        return frozenset(name for token in found for name in token.scopes) & self._allows

    def _fitting(self, presented: bytes) -> list[Token]:
        offered = digest(presented)
        # Every token is compared, whichever fits: how long it takes says nothing.
        return [token for token in self._tokens if hmac.compare_digest(token.digest, offered)]

    def _check_token(self, presented: bytes | None, wanted: str | None) -> Token:
        fitting = self._fitting(presented or b"")
        if presented is None or not fitting:
            text = "this needs a valid token: send it as 'Authorization: Bearer TOKEN'"
            raise Refusal(401, text, kind="Unauthorized", headers=[_CHALLENGE])
        if wanted is not None and not any(wanted in token.scopes for token in fitting):
            raise Refusal(403, f"this token does not have the scope {wanted!r} that this needs", kind="Forbidden")
        return fitting[0]

    def _check_browser(self, head: Head, scope: Scope) -> None:
        host, origin = head.get(b"host"), head.get(b"origin")
        if origin is not None and not _is_same(origin, host):
            raise _foreign("another site's page can't use this (its Origin is not the Host asked for)")
        if host is None or "*" in self._hosts or not _is_loopback((scope.get("server") or ("",))[0]):
            return
        name = _host_name(host)
        if name != "localhost" and not _is_loopback(name) and name not in self._hosts:
            raise _foreign(
                f"without tokens only this machine's own names are answered here, not {name[:100]!r}; set tokens, or "
                "name it in HTTPOptions(allowed_hosts=[...])"
            )


def is_own_page(head: Head) -> bool:
    """Whether the browser vouches that a page of ours asks."""
    site, origin = head.get(b"sec-fetch-site"), head.get(b"origin")
    if origin is not None and not _is_same(origin, head.get(b"host")):
        return False
    return site == b"same-origin" if site is not None else origin is not None


def _check_own_page(head: Head, scope: Scope) -> None:
    if scope["method"] not in _SAFE and not is_own_page(head):
        raise _foreign("another site's page can't act with your session; a program sends its token as a header")


def to_cookie(token: str) -> str:
    """A token as a cookie can hold it."""
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def from_cookie(head: Head) -> bytes | None:
    """The token a visitor logged in with."""
    for pair in (head.get(b"cookie") or b"").replace(b",", b";").split(b";"):
        name, _, value = pair.strip().partition(b"=")
        if name == COOKIE.encode() and value:
            try:
                return base64.b64decode(value + b"=" * (-len(value) % 4), altchars=b"-_", validate=True)
            except ValueError:
                return None
    return None


def _is_same(origin: bytes, host: bytes | None) -> bool:
    return host is not None and origin.partition(b"://")[2].lower() == host.lower()


def _foreign(text: str) -> Refusal:
    return Refusal(403, text, kind="Forbidden")


def _bearer(head: Head) -> bytes | None:
    scheme, _, token = (head.get(b"authorization") or b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


def take_from_url(scope: Scope) -> bytes | None:
    """The token in the URL. It is removed from the scope, so that no access log can show it."""
    if b"access_token=" not in scope.get("query_string", b""):
        return None
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
        address = ip_address(name)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
