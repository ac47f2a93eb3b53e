"""Templates and static files, and the security headers of pages."""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from importlib.resources import files
from typing import Any, cast
from urllib.parse import parse_qs

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from pydantic import BaseModel

from romancy.core.attributes import write_attribute
from romancy.core.durations import lasting, span
from romancy.core.model import WAITING
from romancy.core.token_usage import usage_of
from romancy.core.visible import visible
from romancy.explain.origins import scheduled_by
from romancy.http.responses import Header, HTTPError, Response
from romancy.http.routes import Request
from romancy.viewer import words
from romancy.viewer.values import data_text

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_GUARDS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_PAGE: tuple[Header, ...] = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _POLICY.encode()),
    (b"cache-control", b"no-store"),
    *_GUARDS,
)
_KEPT: Header = (b"cache-control", b"public, max-age=31536000, immutable")


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("romancy.viewer"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    tools = "stamp absolute clock_time pretty brief middle cut error_line narrowing waited_for attempt_words place"
    made.filters.update(exact=_exact, span=span, lasting=lasting, typed=write_attribute, scheduled_by=scheduled_by)
    made.filters.update(usage_of=usage_of, data_text=data_text)
    made.filters.update({name: getattr(words, name) for name in (*tools.split(), "count", "curl", "size", "url_part")})
    cast("dict[str, Any]", made.globals).update(STATUS_WORDS=words.STATUS_WORDS, WAITING=WAITING, version=version())
    return made


def _shown(value: Any) -> Any:
    """Applied to every value: escape characters that hide or reverse text."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _exact(value: str) -> Markup:
    """An unchanged value, for what a form sends back or a script reads."""
    return escape(value)


def root_of(request: Request) -> str:
    """The path the app is mounted at. Every link begins with it."""
    return cast(str, request.scope.get("root_path", "")).rstrip("/")


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Render a page. Templates get the visitor's scopes, never the token."""
    about: dict[str, Any] = {"root": root_of(request), "scopes": request.scopes, "ignored": _ignored(request)}
    about["visitor"] = request.head.who
    about["has_tokens"] = bool(request.runtime.tokens)
    about["blames_token"] = about["has_tokens"] and not request.access.is_read_only
    text = environment().get_template(template).render(**about, **values)
    return Response(status, text.encode("utf-8", "replace"), _PAGE)


def page_headers() -> tuple[Header, ...]:
    """The headers of every page."""
    return _PAGE


def guarded(kind: bytes, *headers: Header) -> tuple[Header, ...]:
    """The headers of what is neither a page nor a static file."""
    return ((b"content-type", kind), (b"cache-control", b"no-store"), *_GUARDS, *headers)


def _ignored(request: Request) -> list[str]:
    """Query parameters that the page does not know."""
    if not isinstance(request.query, BaseModel):
        return []
    given = parse_qs(request.scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    return sorted(given.keys() - type(request.query).model_fields.keys())


def redirect(request: Request, path: str, *headers: Header) -> Response:
    """Redirect to another page of the viewer."""
    return Response(303, b"", ((b"location", f"{root_of(request)}{path}".encode()), *_PAGE, *headers))


# --- static files ---------------------------------------------------------------------------------------------------
@cache
def static_files() -> dict[str, bytes]:
    """The static files by name. They are few and small, and no other file can be requested."""
    folder = files("romancy.viewer") / "static"
    return {item.name: item.read_bytes() for item in folder.iterdir() if item.is_file()}


@cache
def version() -> str:
    """Part of every static file's URL, so that browsers never show an old version from their cache."""
    whole = b"".join(name.encode() + data for name, data in sorted(static_files().items()))
    return hashlib.sha256(whole).hexdigest()[:12]


async def static(request: Request) -> Response:
    """Return a static file."""
    found = static_files().get(request.path["name"])
    if found is None:
        raise HTTPError(404, "this file does not exist", kind="NotFound")
    kind = mimetypes.guess_type(request.path["name"])[0] or "application/octet-stream"
    kind = "text/javascript" if request.path["name"].endswith(".js") else kind
    return Response(200, found, ((b"content-type", f"{kind}; charset=utf-8".encode()), _KEPT, *_GUARDS))
