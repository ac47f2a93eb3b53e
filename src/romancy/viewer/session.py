"""Logging in and out. A visitor enters a token once; from then on the browser has a session, which is not the token."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, quote, unquote, urlsplit

from romancy.http.body import read_body
from romancy.http.responses import HTTPError, Response
from romancy.http.routes import Request
from romancy.http.time_limits import TimeLimit
from romancy.options import seconds
from romancy.viewer.html import page, redirect, root_of

_LIMIT = 10_000
"""Maximum size of a login form, in bytes."""
_HOME = "/viewer/"


async def login_form(request: Request) -> Response:
    """The form that asks for a token."""
    return _form(request, 200, _next(request))


async def log_in(request: Request) -> Response:
    """Open a session for a token, and redirect to the page that the visitor asked for."""
    _check_own_page(request, "log you in")
    body = await read_body(request.head, request.receive, _LIMIT, TimeLimit(seconds(request.runtime.http.body_timeout)))
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    secret, wanted = fields.get("token", [""])[0].strip(), own_path(fields.get("next", [""])[0])
    token = request.access.token(secret.encode())
    if token is None:
        return _form(request, 401, wanted, is_wrong=True)
    return redirect(request, wanted, await request.sessions.open(token, request.head, request.scope))


async def log_out(request: Request) -> Response:
    """End the session."""
    _check_own_page(request, "log you out")
    return redirect(request, "/viewer/login", await request.sessions.close(request.head, request.scope))


def to_login(request: Request) -> Response:
    """The login form in place of a page. Not a redirect, so that clients other than browsers get a 401."""
    query = request.scope.get("query_string", b"").decode("latin-1")
    path: str = request.scope["path"].removeprefix(root_of(request))
    here = f"{quote(path)}?{query}" if query else quote(path)
    return _form(request, 401, own_path(here), has_ended=_has_cookie(request))


def _form(request: Request, status: int, wanted: str, *, is_wrong: bool = False, has_ended: bool = False) -> Response:
    flags = {"is_wrong": is_wrong, "has_ended": has_ended, "elsewhere": _elsewhere(request)}
    return page(request, "login.html", status, next=wanted, **flags)


def _has_cookie(request: Request) -> bool:
    return request.sessions.secret(request.head, request.scope) is not None


def _elsewhere(request: Request) -> str | None:
    """The public URL, if the visitor is at another one where the browser would not keep the cookie."""
    public, host = request.runtime.public_url, (request.head.get(b"host") or b"").decode("latin-1")
    if public is None or urlsplit(public).netloc.lower() == host.lower() or request.scope.get("scheme") == "https":
        return None
    return f"{public}/viewer/" if public.startswith("https:") else None


def _check_own_page(request: Request, act: str) -> None:
    pages = request.access.pages
    if not pages.are_ours(request.head):
        raise HTTPError(403, f"pages of other sites can't {act}: {pages.explain(request.head)}", kind="Forbidden")


# --- where to go afterwards -----------------------------------------------------------------------------------------
def _next(request: Request) -> str:
    found = parse_qs(request.scope.get("query_string", b"").decode("latin-1"))
    return own_path(found.get("next", [""])[0])


def own_path(path: str) -> str:
    """The path, if every browser and proxy takes it for a page of the viewer; else the front page."""
    if not (path.isascii() and path.isprintable() and path.startswith(_HOME)):
        return _HOME
    plain = path.partition("?")[0].partition("#")[0]
    for _ in range(4):  # a proxy may decode more often than we do
        steps = re.split(r"[/\\]", plain.removeprefix(_HOME))
        if any(step.partition(";")[0] in (".", "..") or (step == "" and len(steps) > 1) for step in steps):
            return _HOME
        decoded = unquote(plain)
        if decoded == plain:
            return path if "\\" not in path and plain.isprintable() else _HOME
        plain = decoded
    return _HOME
