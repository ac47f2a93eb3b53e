"""`POST /`: takes CloudEvents and returns receipts. Nothing is acknowledged before it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import to_json

from romancy.core.actor import origin_of
from romancy.core.model import Event
from romancy.engine.around import traced
from romancy.engine.delivery import Accepted
from romancy.http import schemas
from romancy.http.access import check_limits
from romancy.http.body import read_body
from romancy.http.cloudevents import Limits, Parsed, parse
from romancy.http.responses import JSON_TYPE, Header, Response
from romancy.http.routes import Request, Route
from romancy.http.time_limits import TimeLimit
from romancy.options import HTTPOptions, seconds
from romancy.sending import to_receipt

_LARGE = 64 * 1024
"""Bodies up to this size are parsed on the event loop."""
_UNKNOWN = "; it is unknown whether the event is stored: send it again, with the same source and id it is stored once"


class Events:
    """Accepts events, within the app's limits."""

    def __init__(self, options: HTTPOptions) -> None:
        self._max_body, self._timeout = options.max_body, TimeLimit(seconds(options.body_timeout))
        self._limits = Limits(max_batch=options.max_batch, max_depth=options.max_depth, strict=options.strict)
        self._status = options.accepted_status
        self._one_at_a_time = asyncio.Lock()

    @property
    def route(self) -> Route:
        return Route(
            "POST",
            "/",
            self.receive_events,
            {self._status: None if self._status == 204 else schemas.Receipt | schemas.BatchReceipt},
            scope="events",
            query=None,
            contents={
                "application/cloudevents+json": schemas.CloudEvent,
                "application/cloudevents-batch+json": Annotated[
                    list[schemas.CloudEvent], Field(max_length=self._limits.max_batch)
                ],
            },
        )

    async def receive_events(self, request: Request) -> Response:
        """Send a CloudEvent in structured, binary or batched mode. Answered when it is stored.

        In binary mode, the body is the data, of any content type, and the attributes are headers: `ce-specversion`,
        `ce-id`, `ce-source` and `ce-type` are required.
        """
        engine = request.runtime.engine  # first, so that an app that is not running reads no body
        backpressure = request.backpressure
        request.quotas.check(request.head.token)
        with backpressure.receiving() as hold:
            body = await read_body(request.head, request.receive, self._max_body, self._timeout, hold)
            parsed = await self._parse(request.scope["headers"], body)
        check_limits(request.head.granted, parsed.events)
        events = _signed(parsed.events, request.head.who)
        if request.runtime.around.has_sends and (trace := request.trace):
            events = [traced(event, trace) for event in events]
        request.quotas.take(request.head.token, len(events), len(body))
        if not parsed.batched:
            stored = await backpressure.store(partial(engine.accept, events[0]), len(body), _UNKNOWN)
            return self._accepted(_receipt(stored))
        stored = await backpressure.store(engine.accept_all(events), len(body), _UNKNOWN, len(events))
        return self._accepted({"status": "accepted", "events": list(map(_receipt, stored))})

    async def _parse(self, headers: list[Header], body: bytes) -> Parsed:
        """Parse large bodies in a thread, one at a time, so that they don't block other requests."""
        if len(body) <= _LARGE:
            return parse(headers, body, self._limits)
        async with self._one_at_a_time:
            return await asyncio.to_thread(parse, headers, body, self._limits)

    def _accepted(self, content: dict[str, Any]) -> Response:
        if self._status == 204:
            return Response(204)
        # Faster than the encoder of other answers, and the same bytes: there are only numbers and ASCII.
        return Response(self._status, to_json(content), (JSON_TYPE,))


def _signed(events: Sequence[Event], who: str | None) -> Sequence[Event]:
    """Add who sent them."""
    return events if who is None else [replace(event, origin=origin_of("http", who)) for event in events]


def _receipt(accepted: Accepted) -> dict[str, Any]:
    receipt = to_receipt(accepted)
    found: dict[str, Any] = {
        "status": receipt.status,
        "duplicate": receipt.duplicate,
        "delivered": receipt.delivered,
        "started": receipt.started,
        "mismatched": receipt.mismatched,
    }
    return {**found, "differs": True} if receipt.differs else found
