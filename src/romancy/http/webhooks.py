"""`POST /webhooks/{name}`: deliveries of other systems become events. Nothing is acknowledged before it is stored.

No token is needed, and all machines are answered: the signature of a delivery is its proof. Whatever is wrong with it
gets the same answer, and the log says what it was.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import parse_qsl

from typing_extensions import TypedDict

from romancy.core.actor import origin_of
from romancy.core.model import SECOND, Event
from romancy.core.new_events import to_stored
from romancy.core.throttle import Throttle, and_more
from romancy.errors import InvalidEvent
from romancy.http.body import read_body
from romancy.http.cloudevents import TooLarge, UnsupportedFormat
from romancy.http.responses import HTTPError, Response, Scope
from romancy.http.routes import Request, Route, path_of
from romancy.http.time_limits import TimeLimit
from romancy.http.traffic import Traffic
from romancy.options import seconds
from romancy.runtime import Runtime
from romancy.webhooks.declaration import Headers, Webhook, WebhookRequest
from romancy.webhooks.deliveries import Delivery, read_delivery
from romancy.webhooks.schemes import FORM, Arrival, Unsigned
from romancy.webhooks.senders import ACCEPTED, Answer

_logger = logging.getLogger("romancy")
_LARGE = 64 * 1024
"""Bodies up to this size are checked and read on the event loop."""
_UNKNOWN = "; it is unknown whether the delivery is stored: send it again, with the same id it is stored once"
_REFUSED = "the signature of this delivery is missing, wrong or too old"
_IGNORED = Answer("application/json", b'{"status":"ignored"}')


class Delivered(TypedDict):
    """The answer to a delivery, for senders that expect none of their own."""

    status: Literal["accepted", "ignored"]


class Webhooks:
    """The webhooks of an app."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known = {webhook.name: webhook for webhook in runtime.webhooks}
        options = runtime.http
        self._max_body, self._body_timeout = options.max_body, TimeLimit(seconds(options.body_timeout))
        patience = seconds(options.database_timeout)
        self._limits = {w.name: TimeLimit(min(patience, w.sender.patience)) for w in runtime.webhooks}
        self._one_at_a_time = asyncio.Lock()
        self._throttles = {name: Throttle() for name in self._known}

    @property
    def routes(self) -> Sequence[Route]:
        """The route, if the app has webhooks."""
        if not self._known:
            return ()
        return (
            Route(
                "POST",
                "/webhooks/{name}",
                self.receive_webhook,
                {200: Delivered},
                (401, 404),
                scope=None,
                is_public=True,
                query=None,
                contents={"application/json": Any, FORM: Any},
            ),
        )

    async def receive_webhook(self, request: Request) -> Response:
        """Take a delivery of another system. Answered when its events are stored.

        Who may send here, and how it is signed, is declared with `App(webhooks=[...])`. Some senders expect an answer
        of their own, which they get.
        """
        engine = request.runtime.engine  # first, so that an app that is not running reads no body
        webhook = self._known.get(request.path["name"])
        if webhook is None:
            raise HTTPError(404, "no webhook has this name", kind="NotFound")
        outcome = "failed"
        try:
            with request.backpressure.receiving() as hold:
                body = await read_body(request.head, request.receive, self._max_body, self._body_timeout, hold)
                arrival = _arrival(request.scope, self._runtime, body)
                await self._verify(webhook, arrival)
                found = await self._read(webhook, arrival)
            if isinstance(found, Answer):
                outcome = "answered"
                return _answer(found)
            origin = origin_of("webhook", webhook.name)
            events = [replace(event, origin=origin) for event in found if webhook.takes(event.type)]
            if not events:
                outcome = "ignored"
                return _answer(_IGNORED if webhook.sender.answer is ACCEPTED else webhook.sender.answer)
            limit = self._limits[webhook.name]
            write = engine.accept_all(events)
            stored = await request.backpressure.store(write, len(body), _UNKNOWN, len(events), limit)
            outcome = "duplicate" if all(accepted.answer.duplicate for accepted in stored) else "accepted"
            return _answer(webhook.sender.answer)
        except Unsigned as error:
            outcome = "refused"
            self._tell(webhook, error)
            raise HTTPError(401, _REFUSED, kind="Unauthorized") from None
        except (InvalidEvent, TooLarge, UnsupportedFormat):
            outcome = "invalid"
            raise
        finally:
            _count(request.traffic, webhook, outcome)

    # --- who sent it ------------------------------------------------------------------------------------------------
    async def _verify(self, webhook: Webhook, arrival: Arrival) -> None:
        if webhook.verifier is None:
            _verify_by_user(webhook, arrival)
        elif len(arrival.body) <= _LARGE:
            webhook.verifier.check(arrival)
        else:
            async with self._one_at_a_time:
                await asyncio.to_thread(webhook.verifier.check, arrival)

    def _tell(self, webhook: Webhook, error: Unsigned) -> None:
        """Log why a delivery was refused, but not each of thousands."""
        left_out = self._throttles[webhook.name].turn()
        if left_out is not None:
            hint = ""
            if webhook.scheme == "twilio" and self._runtime.public_url is None:
                hint = "; Twilio signs the address it uses: set App(public_url=...) if a proxy changes it"
            _logger.warning("webhook %r refused a delivery: %s%s%s", webhook.name, error, hint, and_more(left_out))

    # --- what it says -----------------------------------------------------------------------------------------------
    async def _read(self, webhook: Webhook, arrival: Arrival) -> Answer | Sequence[Event]:
        """Return the events of a delivery, or the answer to a question that is none."""
        sender, headers, body = webhook.sender, arrival.headers, arrival.body
        if webhook.verifier is None:
            return _events_by_user(webhook, arrival, None)
        if len(body) <= _LARGE:
            return self._judge(webhook, arrival, read_delivery(headers, body, sender.forms, sender.wrapped))
        async with self._one_at_a_time:
            delivery = await asyncio.to_thread(read_delivery, headers, body, sender.forms, sender.wrapped)
        return self._judge(webhook, arrival, delivery)

    def _judge(self, webhook: Webhook, arrival: Arrival, delivery: Delivery) -> Answer | Sequence[Event]:
        answer = webhook.sender.challenge(delivery)
        if answer is not None:
            return answer
        if webhook.to_event is not None:
            return _events_by_user(webhook, arrival, webhook.sender.id(delivery))
        return webhook.sender.events(webhook.name, delivery)


def _arrival(scope: Scope, runtime: Runtime, body: bytes) -> Arrival:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    query = scope.get("query_string", b"").decode("latin-1")
    here = f"{scope.get('scheme', 'http')}://{headers.get('host', '')}{scope.get('root_path', '')}"
    root = runtime.public_url or here
    return Arrival(f"{root}{path_of(scope)}{'?' if query else ''}{query}", headers, body, runtime.clock.now() / SECOND)


def _request(arrival: Arrival) -> WebhookRequest:
    query = dict(parse_qsl(arrival.url.partition("?")[2], keep_blank_values=True))
    return WebhookRequest(Headers(arrival.headers), query, arrival.body)


def _verify_by_user(webhook: Webhook, arrival: Arrival) -> None:
    assert webhook.verify is not None
    try:
        verdict: object = webhook.verify(_request(arrival))
    except Exception as error:  # often a missing header or an odd one: as wrong as a wrong signature
        raise Unsigned(f"verify raised {error!r}") from None
    if _is_coroutine(verdict):
        raise Unsigned("verify did not return True: it returned a coroutine; verify must be a plain function")
    if verdict is not True:
        raise Unsigned("verify did not return True")


def _events_by_user(webhook: Webhook, arrival: Arrival, id: str | None) -> Sequence[Event]:
    assert webhook.to_event is not None
    try:
        made = webhook.to_event(_request(arrival))
    except InvalidEvent:  # from request.json(), or the user's own: the delivery is wrong
        raise
    except Exception as error:
        raise _our_mistake(webhook, "to_event failed", error) from None
    if made is None:
        return ()
    try:
        if _is_coroutine(made):
            raise TypeError("it returned a coroutine; to_event must be a plain function")
        # Without an id of the sender, the same body again is the same event.
        return [to_stored(made, id or hashlib.sha256(arrival.body).hexdigest())]
    except Exception as error:
        raise _our_mistake(webhook, "to_event did not return a valid event", error) from None


def _our_mistake(webhook: Webhook, what: str, error: Exception) -> HTTPError:
    """The sender can't help it, and keeps the delivery until the function is fixed. Only the log says more."""
    _logger.error("webhook %r: %s, and nothing is stored", webhook.name, what, exc_info=error)
    text = "this delivery could not be made into an event; see the log of the server"
    return HTTPError(500, text, kind="InternalError")


def _is_coroutine(value: object) -> bool:
    if not inspect.iscoroutine(value):
        return False
    value.close()  # or Python warns that it was never awaited
    return True


def _count(traffic: Traffic, webhook: Webhook, outcome: str) -> None:
    key = webhook.name, outcome
    traffic.deliveries[key] = traffic.deliveries.get(key, 0) + 1


def _answer(answer: Answer) -> Response:
    return Response(200, answer.body, ((b"content-type", answer.content_type.encode()),))
