"""Who may: tokens with scopes; and without tokens, no web page of somebody else's.

An app without tokens answers requests from this machine only, whatever address its server listens on, unless it was
told to be open (`HTTPOptions(open=True)`). A browser on this machine can reach it too, on behalf of any web page. Two
things give such a page away. A request that changes something names the page's origin: an `Origin` that is neither the
`Host` asked for nor the public URL is refused. And a page whose own name was made to point to 127.0.0.1 ("DNS
rebinding") asks by that name: on a loopback address only names of this machine are answered, and those in
`HTTPOptions(allowed_hosts=...)`. With tokens neither is needed: the page does not know one.

The viewer's visitors have a session (`sessions.py`), known by a cookie, which a browser may send along for other pages
too. So a session counts for what changes something only if the browser says that a page of ours asks. (What is only
read, no other page gets to see.)
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Collection, Sequence
from urllib.parse import unquote_to_bytes

from romancy.http.body import Head
from romancy.http.peers import Pages, host_name, is_loopback, not_local
from romancy.http.responses import Header, HTTPError, Scope
from romancy.options import SCOPES, HTTPOptions, Token, digest

_logger = logging.getLogger("romancy")
PRIVATE: Header = (b"cache-control", b"private, no-store")
"""On what was asked with the token in the URL, as the webhook specification wants it."""
_CHALLENGE: Header = (b"www-authenticate", b"Bearer")
_SAFE = ("GET", "HEAD", "OPTIONS")
_REMEDY = "give the App tokens=[...] or set ROMANCY_TOKENS; HTTPOptions(open=True) answers everybody without tokens"


class Access:
    """Lets requests in, or raises why not."""

    def __init__(
        self,
        tokens: Sequence[Token],
        options: HTTPOptions,
        allows: Collection[str] = SCOPES,
        public_url: str | None = None,
    ) -> None:
        self.is_open = not tokens
        self.pages = Pages(public_url)
        self._is_for_all = options.open
        self._allows = frozenset(allows)
        self._tokens = tokens
        self._hosts = frozenset(host.lower() for host in options.allowed_hosts)
        self._has_told = False

    def check_peer(self, scope: Scope) -> None:
        """Without tokens, only this machine is answered."""
        why = self._distance(scope)
        if why is None:
            return
        if not self._has_told:
            self._has_told = True
            _logger.warning("a request was refused: it %s, and the app has no tokens; %s", why, _REMEDY)
        text = f"without tokens only requests from this machine (over loopback) are answered, and this one {why}"
        raise _forbidden(f"{text}; {_REMEDY}")

    def _distance(self, scope: Scope) -> str | None:
        return not_local(scope) if self.is_open and not self._is_for_all else None

    def check(
        self,
        head: Head,
        scope: Scope,
        wanted: str | None,
        in_url: bytes | None = None,
        session: Sequence[Token] = (),
    ) -> Sequence[Header]:
        """Headers the answer must carry. `wanted`: the scope it takes; None: any valid token will do.

        `in_url`: the token that came as `?access_token=`, where that counts. `session`: what a visitor logged in
        with; a token that is shown counts instead of it.
        """
        if self.is_open:
            self._check_browser(head, scope)
        else:
            presented = in_url if (bearer := bearer_of(head)) is None else bearer
            if presented is None and session:
                self._check_own_page(head, scope)
            fitting = session if presented is None else self._fitting(presented)
            if not fitting:
                raise _unknown(head)
            _check_scope(fitting, wanted)
            head.token = fitting[0].digest
        if wanted is not None and wanted not in self._allows:
            raise _forbidden("this server only shows; `romancy viewer --allow-actions` lets you act")
        return () if in_url is None or self.is_open else (PRIVATE,)

    def scopes(self, head: Head, scope: Scope, session: Sequence[Token] = ()) -> frozenset[str]:
        """What a visitor may do here; nothing, if it is not known who it is."""
        if self.is_open:
            return self._allows if self._distance(scope) is None else frozenset()
        bearer = bearer_of(head)
        found = session if bearer is None else self._fitting(bearer)
        return frozenset(name for token in found for name in token.scopes) & self._allows

    def token(self, secret: bytes) -> Token | None:
        """The token with this secret."""
        return next(iter(self._fitting(secret)), None)

    def _fitting(self, presented: bytes) -> list[Token]:
        offered = digest(presented)
        # Every token is compared, whichever fits: how long it takes says nothing.
        return [token for token in self._tokens if hmac.compare_digest(token.digest, offered)]

    def _check_browser(self, head: Head, scope: Scope) -> None:
        host = head.get(b"host")
        if head.get(b"origin") is not None and not self.pages.is_origin_ours(head):
            raise _forbidden(f"another site's page can't use this: {self.pages.explain(head)}")
        if host is None or "*" in self._hosts or not is_loopback((scope.get("server") or ("",))[0]):
            return
        name = host_name(host)
        if name != "localhost" and not is_loopback(name) and name not in self._hosts and name != self.pages.host:
            raise _forbidden(
                f"without tokens only this machine's own names are answered here, not {name[:100]!r}; set tokens, "
                "or name it in HTTPOptions(allowed_hosts=[...]), or the address people use in App(public_url=...)"
            )

    def _check_own_page(self, head: Head, scope: Scope) -> None:
        if scope["method"] not in _SAFE and not self.pages.are_ours(head):
            raise _forbidden(
                "another site's page can't act with your session; a program sends its token as a header: "
                + self.pages.explain(head)
            )


def _check_scope(fitting: Sequence[Token], wanted: str | None) -> None:
    if wanted is not None and not any(wanted in token.scopes for token in fitting):
        raise _forbidden(f"this token does not have the scope {wanted!r} that this needs")


def _unknown(head: Head) -> HTTPError:
    text = "this needs a valid token: send it as 'Authorization: Bearer TOKEN'"
    if b"romancy" in (head.get(b"cookie") or b""):
        text += "; if you were logged in to the viewer, your session has ended: log in again"
    return HTTPError(401, text, kind="Unauthorized", headers=[_CHALLENGE])


def _forbidden(text: str) -> HTTPError:
    return HTTPError(403, text, kind="Forbidden")


def bearer_of(head: Head) -> bytes | None:
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
