"""`/ask/{ticket}`: the page on which people answer a question. It needs no login and no script.

GET only shows: programs that look through mail follow links. POST answers. A ticket that was never signed and one of a
question that is gone get the same page.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from romancy.core.forms import Field, fields_of, read_form
from romancy.core.model import SECOND, from_us
from romancy.core.throttle import Throttle, and_more
from romancy.core.tickets import SigningKeys, WrongTicket
from romancy.http.body import read_body
from romancy.http.responses import Header, HTTPError, Response, error_answer
from romancy.http.routes import Request, Route
from romancy.http.time_limits import TimeLimit
from romancy.options import seconds
from romancy.standings import Standing, standing, to_answer
from romancy.viewer.html import environment, page_headers

_logger = logging.getLogger("romancy")
_throttle = Throttle()
LIMIT = 256 * 1024
"""Maximum size of an answer, in bytes."""
_MOST_FIELDS = 500
_FORM = b"application/x-www-form-urlencoded"
_ROBOTS: Header = (b"x-robots-tag", b"noindex, nofollow")
UNKNOWN = "; it is unknown whether your answer is stored: send it again, the first one counts"
_WORDS = {
    "answered": ("Thank you. Your answer is recorded.", 200),
    "closed": ("This question is closed. No more answers are needed.", 409),
    "refused": ("Your answer could not be used: {why}. No more answers are taken with this link.", 409),
    "expired": ("It is too late to answer this question.", 410),
}
_GONE = "This link is not valid, or the question no longer exists."


async def show(request: Request) -> Response:
    """Show a question to a person who was asked."""
    found = await _find(request)
    return _form(request, found, 200) if found.state == "open" else _closed(request, found)


async def answer(request: Request) -> Response:
    """Take the answer of a person who was asked."""
    sent = await read_sent(request)
    found = await _find(request)
    if found.state == "answered":
        return _page(request, 200, title=found.asked.title, said="You have answered already. The first answer counts.")
    if found.state != "open":
        return _closed(request, found)
    given, wrong = read_form(fields_of(found.asked.schema), sent)
    if wrong:
        return _form(request, found, 422, {name: values[0] for name, values in sent.items()}, wrong)
    event = to_answer(found, given, found.name, "link")
    engine = request.runtime.engine
    stored = await request.backpressure.store(partial(engine.accept, event), len(event.data or b""), UNKNOWN)
    if stored.answer.duplicate and stored.answer.differs:
        return _page(request, 200, title=found.asked.title, said="You have answered already. The first answer counts.")
    # Relative, like the links of the page: a proxy may have removed a part of the path.
    return Response(303, b"", ((b"location", request.path["ticket"].encode()), *page_headers()))


async def _find(request: Request) -> Standing:
    links = request.runtime.links
    try:
        ticket = links.keys.read(request.path["ticket"])
    except WrongTicket:
        _tell_foreign(links.keys, request.path["ticket"])
        raise HTTPError(404, _GONE, kind="NotFound") from None
    if ticket.expires_at is not None and ticket.expires_at * SECOND <= request.runtime.engine.clock.now():
        raise HTTPError(410, _WORDS["expired"][0], kind="Expired")
    found = await standing(request.runtime, ticket.instance, ticket.question, ticket.person)
    if found is None:
        raise HTTPError(404, _GONE, kind="NotFound")
    return found


def _tell_foreign(keys: SigningKeys, ticket: str) -> None:
    """Log a link that another key may have signed: processes with different keys don't take each other's links."""
    if keys.is_foreign(ticket) and (left_out := _throttle.turn()) is not None:
        advice = "all processes need the same ones" if keys else "this app has none"
        _logger.warning("a link to a question is signed with an unknown key; %s%s", advice, and_more(left_out))


async def read_sent(request: Request) -> dict[str, list[str]]:
    """Return the fields of the form that was sent."""
    kind = (request.head.get(b"content-type") or b"").partition(b";")[0].strip().lower()
    if kind != _FORM:
        raise HTTPError(415, "an answer is sent with the form", kind="UnsupportedFormat")
    timeout = TimeLimit(seconds(request.runtime.http.body_timeout))
    with request.backpressure.receiving() as hold:
        body = await read_body(request.head, request.receive, LIMIT, timeout, hold)
    try:
        return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise HTTPError(400, "the form can't be read", kind="BadRequest") from None


def _form(
    request: Request,
    found: Standing,
    status: int,
    given: dict[str, str] | None = None,
    wrong: dict[str, str] | None = None,
) -> Response:
    expires_at = found.asked.expires_at
    return _page(
        request,
        status,
        title=found.asked.title,
        text=found.asked.text,
        person=found.name,
        groups=grouped(fields_of(found.asked.schema)),
        until=None if expires_at is None else f"{from_us(expires_at):%Y-%m-%d %H:%M} UTC",
        refused=found.refused,
        given=given or {},
        wrong=wrong or {},
    )


def _closed(request: Request, found: Standing) -> Response:
    words, status = _WORDS[found.state]
    return _page(request, status, title=found.asked.title, said=words.format(why=found.refused))


def grouped(fields: list[Field]) -> list[tuple[str, list[Field]]]:
    groups: dict[str, list[Field]] = {}
    for field in fields:
        groups.setdefault(field.group, []).append(field)
    return list(groups.items())


def _page(request: Request, status: int, **values: Any) -> Response:
    about: dict[str, Any] = {
        "said": "",
        "text": "",
        "person": "",
        "groups": [],
        "until": None,
    }
    about |= {"refused": "", "given": {}, "wrong": {}, "title": ""}
    text = environment().get_template("ask.html").render(**{**about, **values})
    return Response(status, text.encode("utf-8", "replace"), (*page_headers(), _ROBOTS))


def failed(request: Request, error: Exception) -> Response:
    """Errors as pages. What went wrong inside is only in the log, and the link is not."""
    found = error_answer(error, f"{request.scope['method']} /ask/...")
    said = str(error) if isinstance(error, HTTPError) else "This does not work at the moment. Try again in a minute."
    answer = _page(request, found.status, said=said)
    answer.headers = (*answer.headers, *(header for header in found.headers if header[0] == b"retry-after"))
    return answer


_ANSWERS = {200: str}
ROUTES = (
    Route("GET", "/ask/{ticket}", show, _ANSWERS, scope=None, is_public=True, query=None, on_error=failed),
    Route(
        "POST", "/ask/{ticket}", answer, _ANSWERS, scope=None, is_public=True, query=None, on_error=failed,
        contents={_FORM.decode(): str},
    ),
)  # fmt: skip
