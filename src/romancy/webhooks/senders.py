"""How the deliveries of each sender become events: which type, id and subject they have, and which answer is expected.

What a sender signs is in `schemes.py`. GitHub and Shopify sign neither the type nor the id: someone who got hold of a
delivery can send it again with others. `Webhook(types=[...])` limits the types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from romancy.core.events import MAX_DATA, MAX_PARSED, check_text
from romancy.core.model import SECOND, Event
from romancy.core.timestamps import parse_time
from romancy.errors import InvalidEvent
from romancy.webhooks.deliveries import Delivery, Forms, Get, digest, field, first, header, joined, named, nothing
from romancy.webhooks.schemes import Scheme, adyen_items


class Answer(NamedTuple):
    """The answer to a delivery whose events are stored."""

    content_type: str
    body: bytes


ACCEPTED = Answer("application/json", b'{"status":"accepted"}')
EMPTY = Answer("text/plain", b"")


def _itself(delivery: Delivery) -> Sequence[Delivery]:
    return (delivery,)


def _no_answer(delivery: Delivery) -> None:
    return None


@dataclass(frozen=True)
class Sender:
    """How one sender's deliveries become events."""

    type: Get
    id: Get
    subject: Get = nothing
    time: Get = nothing
    split: Callable[[Delivery], Sequence[Delivery]] = _itself
    """Returns the parts of a delivery that are one event each."""
    challenge: Callable[[Delivery], Answer | None] = _no_answer
    """Returns the answer to a delivery that is only a question, and no event."""
    forms: Forms = Forms.NONE
    wrapped: str | None = None
    """The field of a form that has JSON in it."""
    answer: Answer = ACCEPTED
    patience: float = 9.0
    """Seconds in which it expects an answer."""

    def events(self, webhook: str, delivery: Delivery) -> list[Event]:
        return [self._event(webhook, part) for part in self.split(delivery)]

    def _event(self, webhook: str, part: Delivery) -> Event:
        type, id = self.type(part), self.id(part)
        if type is None or id is None:
            missing = "type" if type is None else "id"
            raise InvalidEvent(
                f"webhook {webhook!r}: this delivery has no {missing} where its sender usually puts it; "
                "say with Webhook(to_event=...) how it becomes an event"
            )
        if len(part.content) > MAX_DATA:
            raise InvalidEvent(f"webhook {webhook!r}: the content is larger than the {MAX_DATA:,} bytes of an event")
        event = Event(
            id=id,
            source=source_of(webhook),
            type=f"{webhook}.{type}",
            data=part.content,
            subject=_fitting(self.subject(part)),
            time=_moment(self.time(part)),
            datacontenttype="application/json",
            parsed=part.fields if part.is_exact and len(part.content) <= MAX_PARSED else None,
        )
        for name, value in (("type", event.type), ("id", event.id)):
            check_text(name, value)
        return event


def source_of(webhook: str) -> str:
    return f"/webhooks/{webhook}"


def _fitting(subject: str | None) -> str | None:
    """Leave out a subject that can't be one: it is only a help."""
    try:
        check_text("subject", subject)
    except InvalidEvent:
        return None
    return subject


def _moment(text: str | None) -> int | None:
    """Return a time that is given in seconds or as RFC 3339. One that can't be read is left out."""
    if text is None:
        return None
    try:
        return int(text) * SECOND if text.isdecimal() and len(text) <= 11 else parse_time("time", text)
    except InvalidEvent:
        return None


def _adyen_parts(delivery: Delivery) -> Sequence[Delivery]:
    return [
        replace(delivery, content=json.dumps(item, ensure_ascii=False).encode(), fields=item, is_exact=False)
        for item in adyen_items(delivery.body)
    ]


def _slack_challenge(delivery: Delivery) -> Answer | None:
    """Slack asks once whether the address is ours."""
    challenge = field("challenge")(delivery)
    if field("type")(delivery) != "url_verification" or challenge is None:
        return None
    return Answer("application/json", json.dumps({"challenge": challenge}).encode())


_STANDARD = Sender(type=field("type"), id=header("webhook-id"), time=field("timestamp"))
SENDERS: Mapping[Scheme, Sender] = {
    "standard": _STANDARD,
    "svix": replace(_STANDARD, id=first(header("svix-id"), header("webhook-id"))),
    "stripe": Sender(type=field("type"), id=field("id"), subject=field("data.object.id"), time=field("created")),
    "github": Sender(
        type=header("x-github-event"),
        id=header("x-github-delivery"),
        subject=first(field("repository.full_name"), field("organization.login")),
        forms=Forms.UNLESS_JSON,
        wrapped="payload",
    ),
    "slack": Sender(
        type=first(field("event.type"), field("type"), named(field("command"), "command")),
        id=first(field("event_id"), field("trigger_id"), digest),
        subject=first(field("event.channel"), field("channel.id"), field("channel_id")),
        time=field("event_time"),
        challenge=_slack_challenge,
        forms=Forms.UNLESS_JSON,
        wrapped="payload",
        answer=EMPTY,
        patience=2.5,
    ),
    "shopify": Sender(
        type=header("x-shopify-topic"),
        id=first(header("x-shopify-webhook-id"), header("x-shopify-event-id")),
        subject=first(field("admin_graphql_api_id"), field("id")),
        time=header("x-shopify-triggered-at"),
        patience=4.0,
    ),
    "twilio": Sender(
        type=first(field("MessageStatus"), field("SmsStatus"), field("CallStatus"), field("type")),
        id=first(header("i-twilio-idempotency-token"), digest),
        subject=first(field("MessageSid"), field("SmsSid"), field("CallSid")),
        forms=Forms.AS_DECLARED,
        answer=Answer("text/xml", b"<Response/>"),
    ),
    "adyen": Sender(
        type=field("eventCode"),
        id=joined(field("pspReference"), field("eventCode"), field("success")),
        subject=field("merchantReference"),
        time=field("eventDate"),
        split=_adyen_parts,
        answer=Answer("text/plain", b"[accepted]"),
    ),
}
"""By the scheme of their signatures. How long they wait: Slack 3 s, Shopify 5 s, GitHub 10 s, the others longer."""
CUSTOM = Sender(type=nothing, id=digest)
"""A sender that only the user's own functions know."""
