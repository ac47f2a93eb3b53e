"""Access control: tokens with scopes; without tokens, protection from web pages of other sites.

An app without tokens answers only requests from this machine, whatever address its server listens on, unless it is
open (`HTTPOptions(open=True)`). But a browser on this machine can also reach it on behalf of any web page. Two checks
detect this. A request that changes something names the page's origin: an `Origin` that is neither the requested `Host`
nor the public URL is refused. And a page whose own name was made to point to 127.0.0.1 ("DNS rebinding") uses that
name: on a loopback address, only names of this machine and those in `HTTPOptions(allowed_hosts=...)` are answered.
With tokens neither check is needed, since the page does not know one.

The viewer's visitors have a session (`sessions.py`) in a cookie, which a browser may also send for other pages. So a
request that changes something counts as part of a session only if the browser says that it comes from one of the
viewer's own pages. (Browsers don't let other pages read the answers.)
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Collection, Sequence
from urllib.parse import unquote_to_bytes

from romancy.core.model import Event, show
from romancy.http.body import Head
from romancy.http.peers import Pages, host_name, is_loopback, not_local
from romancy.http.responses import Header, HTTPError, Scope
from romancy.options import HTTPOptions
from romancy.tokens import SCOPES, Credential, digest, read_scopes

_logger = logging.getLogger("romancy")
PRIVATE: Header = (b"cache-control", b"private, no-store")
"""For requests with the token in the URL, as the webhook specification requires."""
_CHALLENGE: Header = (b"www-authenticate", b"Bearer")
_SAFE = ("GET", "HEAD", "OPTIONS")
_REMEDY = "give the App tokens=[...] or set ROMANCY_TOKENS; HTTPOptions(open=True) allows everyone without tokens"


class Access:
    """Checks whether a request is allowed; raises the reason if not."""

    def __init__(
        self,
        tokens: Sequence[Credential],
        options: HTTPOptions,
        allows: Collection[str] = SCOPES,
        public_url: str | None = None,
    ) -> None:
        self.is_open = not tokens
        self.pages = Pages(public_url)
        self._is_for_all = options.open
        self._allows = read_scopes(tuple(allows))[0]
        self._tokens = tokens
        self._hosts = frozenset(host.lower() for host in options.allowed_hosts)
        self._has_warned = False

    def check_peer(self, scope: Scope) -> None:
        """Without tokens, refuse requests that don't come from this machine."""
        why = self._distance(scope)
        if why is None:
            return
        if not self._has_warned:
            self._has_warned = True
            _logger.warning("refused a request: it %s, and the app has no tokens; %s", why, _REMEDY)
        text = f"without tokens, only requests from this machine (over loopback) are allowed, and this one {why}"
        raise _forbidden(f"{text}; {_REMEDY}")

    def _distance(self, scope: Scope) -> str | None:
        return not_local(scope) if self.is_open and not self._is_for_all else None

    def check(
        self,
        head: Head,
        scope: Scope,
        required: str | None,
        in_url: bytes | None = None,
        session: Sequence[Credential] = (),
    ) -> Sequence[Header]:
        """Return the headers that the answer must have. `required` is a scope; None means any valid token.

        `in_url` is the token from `?access_token=`, where that is allowed. `session` is what a visitor logged in
        with; a token in the request takes precedence.
        """
        if self.is_open:
            self._check_browser(head, scope)
        else:
            presented = in_url if (bearer := bearer_of(head)) is None else bearer
            if presented is None and session:
                self._check_own_page(head, scope)
            matching = session if presented is None else self._matching(presented)
            if not matching:
                raise _unknown(head)
            head.granted = _granting(matching, required)
            head.token = matching[0].digest
            head.who = next((token.name for token in head.granted if token.name is not None), None)
        if required is not None and required not in self._allows:
            raise _forbidden("this server is read-only; `romancy viewer --allow-actions` allows actions")
        return () if in_url is None or self.is_open else (PRIVATE,)

    def scopes(self, head: Head, scope: Scope, session: Sequence[Credential] = ()) -> frozenset[str]:
        """The scopes of a visitor; empty without a valid token or session."""
        if self.is_open:
            return self._allows if self._distance(scope) is None else frozenset()
        bearer = bearer_of(head)
        found = session if bearer is None else self._matching(bearer)
        return frozenset(name for token in found for name in token.scopes) & self._allows

    @property
    def is_read_only(self) -> bool:
        """Whether no token at all lets visitors act."""
        return "control" not in self._allows

    def token(self, secret: bytes) -> Credential | None:
        """The token with this secret."""
        return next(iter(self._matching(secret)), None)

    def _matching(self, presented: bytes) -> list[Credential]:
        offered = digest(presented)
        # Compare all tokens, so that the time taken reveals nothing.
        return [
            token
            for token in self._tokens
            if hmac.compare_digest(token.digest, offered) | hmac.compare_digest(token.former or token.digest, offered)
        ]

    def _check_browser(self, head: Head, scope: Scope) -> None:
        host = head.get(b"host")
        if head.get(b"origin") is not None and not self.pages.is_origin_ours(head):
            raise _forbidden(f"pages of other sites can't use this server: {self.pages.explain(head)}")
        if host is None or "*" in self._hosts or not is_loopback((scope.get("server") or ("",))[0]):
            return
        name = host_name(host)
        if name != "localhost" and not is_loopback(name) and name not in self._hosts and name != self.pages.host:
            raise _forbidden(
                f"without tokens, only names of this machine are allowed as Host here, not {name[:100]!r}; set tokens, "
                "add the name to HTTPOptions(allowed_hosts=[...]), or set App(public_url=...)"
            )

    def _check_own_page(self, head: Head, scope: Scope) -> None:
        if scope["method"] not in _SAFE and not self.pages.are_ours(head):
            raise _forbidden(
                "pages of other sites can't use your session, and programs must send a token as a header: "
                + self.pages.explain(head)
            )


def _granting(tokens: Sequence[Credential], required: str | None) -> Sequence[Credential]:
    """Return the tokens that have a scope. Raise the refusal if none has."""
    granted = [token for token in tokens if required is None or required in token.scopes]
    if not granted:
        raise _forbidden(f"this token does not have the scope {required!r}, which is needed here")
    return granted


def check_limits(granted: Sequence[Credential], events: Sequence[Event]) -> None:
    """Refuse events that a token may not send. `granted`: the tokens with the secret; one of them must allow all."""
    excess: HTTPError | None = None
    for token in granted:
        found = _first_excess(token, events)
        if found is None:
            return
        excess = excess or found
    if excess is not None:
        raise excess


def _first_excess(token: Credential, events: Sequence[Event]) -> HTTPError | None:
    if token.limits is None:
        return None
    for n, event in enumerate(events, 1):
        excess = token.limits.excess(event)
        if excess is not None:
            which = f"event {n} of the batch, with the id {show(event.id)}," if len(events) > 1 else "this event"
            return _forbidden(f"{which} has {excess}, and this token may only send events with {token.limits}")
    return None


def _unknown(head: Head) -> HTTPError:
    text = "this needs a valid token; send it as 'Authorization: Bearer TOKEN'"
    if b"romancy" in (head.get(b"cookie") or b""):
        text += "; if you were logged in to the viewer, your session has ended: log in again"
    return HTTPError(401, text, kind="Unauthorized", headers=[_CHALLENGE])


def _forbidden(text: str) -> HTTPError:
    return HTTPError(403, text, kind="Forbidden")


def bearer_of(head: Head) -> bytes | None:
    scheme, _, token = (head.get(b"authorization") or b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


def take_from_url(scope: Scope) -> bytes | None:
    """Remove the token in the URL from the scope, so that no access log shows it, and return it."""
    if b"access_token=" not in scope.get("query_string", b""):
        return None
    pairs: list[bytes] = scope["query_string"].split(b"&")
    tokens = [pair for pair in pairs if pair.startswith(b"access_token=")]
    scope["query_string"] = b"&".join(pair for pair in pairs if pair not in tokens)
    return unquote_to_bytes(tokens[0].partition(b"=")[2]) if len(tokens) == 1 else None
