"""Sessions of the viewer's visitors.

A browser keeps a random secret in a cookie, never a token, since cookies go to every port of a host. The database keeps
a hash of the secret, so every process behind an address knows the session, it survives restarts, and logging out ends
it everywhere at once. A session is worth the token it was opened with, as long as the app has that token.

If the app is reached by https (according to `public_url` or the server), the cookie is `Secure` and has the prefix
`__Host-`: no page reached without TLS, and no other host of the same domain, can read or plant it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import cast
from urllib.parse import urlsplit

from romancy.core.model import SECOND
from romancy.http.body import Head
from romancy.http.responses import Header, Scope
from romancy.runtime import Runtime
from romancy.storage.sessions import StoredSession
from romancy.tokens import Credential

HOURS = 12
"""How long a session lasts."""
_LENGTH = 43
"""Length of 32 random bytes in URL-safe base64."""


class Sessions:
    """Opens, finds and ends the sessions of an app's visitors."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def open(self, token: Credential, head: Head, scope: Scope) -> Header:
        """Open a session, and end the visitor's previous one. Returns the header that sets the cookie."""
        await self._end(head, scope)
        secret, engine = secrets.token_urlsafe(32), self._runtime.engine
        now = engine.clock.now()
        session = StoredSession(_proof(secret.encode(), token), now + HOURS * 3600 * SECOND)
        await engine.storage.sessions.add(_key(secret.encode()), session, now)
        return self._cookie(secret, head, scope)

    async def close(self, head: Head, scope: Scope) -> Header:
        """End a session. Returns the header that deletes the cookie."""
        await self._end(head, scope)
        return self._cookie("", head, scope, "; Max-Age=0")

    async def find(self, head: Head, scope: Scope) -> Sequence[Credential]:
        """The token the visitor logged in with (several can have one secret); empty if there is no session."""
        tokens = self._runtime.tokens
        secret = self.secret(head, scope) if tokens else None
        if secret is None:
            return ()
        engine = self._runtime.engine
        session = await engine.storage.sessions.get(_key(secret))
        if session is None or session.until <= engine.clock.now():
            return ()
        return [token for token in tokens if hmac.compare_digest(_proof(secret, token), session.proof)]

    def secret(self, head: Head, scope: Scope) -> bytes | None:
        """The secret in the visitor's cookie, if it looks like one of ours."""
        name = self._name(head, scope).encode()
        for pair in (head.get(b"cookie") or b"").replace(b",", b";").split(b";"):
            found, _, value = pair.strip().partition(b"=")
            if found == name and len(value) == _LENGTH:
                return value
        return None

    async def _end(self, head: Head, scope: Scope) -> None:
        secret = self.secret(head, scope)
        if secret is not None:
            await self._runtime.engine.storage.sessions.remove(_key(secret))

    # --- the cookie -------------------------------------------------------------------------------------------------
    def _cookie(self, value: str, head: Head, scope: Scope, more: str = "") -> Header:
        is_secure = self._is_secure(scope)
        path = "/" if is_secure else _root(scope) or "/"  # the prefix __Host- allows no other path
        flags = f"Path={path}; HttpOnly; SameSite=Strict{'; Secure' if is_secure else ''}{more}"
        return b"set-cookie", f"{self._name(head, scope)}={value}; {flags}".encode()

    def _name(self, head: Head, scope: Scope) -> str:
        """A name per address: browsers keep cookies by host, whatever the port, and apps can share a host."""
        host = (head.get(b"host") or b"").decode("latin-1")
        netloc = urlsplit(self._runtime.public_url).netloc if self._runtime.public_url else host
        port = netloc.rpartition(":")[2] if not netloc.endswith("]") and ":" in netloc else ""
        place = f"{port}{_root(scope)}"
        mark = f"-{hashlib.sha256(place.encode()).hexdigest()[:8]}" if place else ""
        return f"{'__Host-' if self._is_secure(scope) else ''}romancy{mark}"

    def _is_secure(self, scope: Scope) -> bool:
        return (self._runtime.public_url or "").startswith("https:") or scope.get("scheme") == "https"


def _root(scope: Scope) -> str:
    return cast(str, scope.get("root_path", "")).rstrip("/")


def _key(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def _proof(secret: bytes, token: Credential) -> bytes:
    """Tokens can't be guessed from the database alone: that also takes the visitor's secret."""
    return hashlib.sha256(secret + token.digest).digest()
