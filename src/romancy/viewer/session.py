"""Logging in and out. The token is kept in a cookie that no script can read and no other site can use."""

from __future__ import annotations

from urllib.parse import parse_qs, quote

from romancy.http.access import COOKIE, is_own_page, to_cookie
from romancy.http.answers import Answer, Header, Refusal
from romancy.http.body import read_body
from romancy.http.routes import Request
from romancy.options import digest, seconds
from romancy.viewer.rendering import page, redirect, root_of

_LIMIT = 10_000
"""Bytes of a login form."""


async def login_form(request: Request) -> Answer:
    """Asks for a token."""
    return page(request, "login.html", next=_wanted(request), wrong=False)


async def log_in(request: Request) -> Answer:
    """Takes a token, and goes where the visitor wanted to go."""
    if not is_own_page(request.head):
        raise Refusal(403, "another site's page can't log you in", kind="Forbidden")
    body = await read_body(request.head, request.receive, _LIMIT, seconds(request.app.http.body_timeout))
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    token, wanted = fields.get("token", [""])[0].strip(), _own_path(fields.get("next", [""])[0])
    if not any(known.digest == digest(token.encode()) for known in request.app.tokens):
        return page(request, "login.html", 401, next=wanted, wrong=True)
    return redirect(request, wanted, _cookie(request, to_cookie(token)))


async def log_out(request: Request) -> Answer:
    """Forgets the token."""
    if not is_own_page(request.head):
        raise Refusal(403, "another site's page can't log you out", kind="Forbidden")
    return redirect(request, "/viewer/login", _cookie(request, "", "; Max-Age=0"))


def to_login(request: Request) -> Answer:
    """The form in place of the page, which comes afterwards. No redirect: whoever is no browser is told 401."""
    query = request.scope.get("query_string", b"").decode("latin-1")
    path: str = request.scope["path"].removeprefix(root_of(request))
    here = f"{quote(path)}?{query}" if query else quote(path)
    return page(request, "login.html", 401, next=_own_path(here), wrong=False)


def _wanted(request: Request) -> str:
    found = parse_qs(request.scope.get("query_string", b"").decode("latin-1"))
    return _own_path(found.get("next", [""])[0])


def _own_path(path: str) -> str:
    """A page of the viewer; anything else is not followed."""
    plain = path.isascii() and path.isprintable() and "\\" not in path
    return path if plain and path.startswith("/viewer/") and "//" not in path.partition("?")[0] else "/viewer/"


def _cookie(request: Request, value: str, more: str = "") -> Header:
    secure = "; Secure" if request.scope.get("scheme") == "https" else ""
    text = f"{COOKIE}={value}; Path={root_of(request) or '/'}; HttpOnly; SameSite=Strict{secure}{more}"
    return b"set-cookie", text.encode()
