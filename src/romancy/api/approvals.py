"""`ask`: ask people, and wait for what they answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypeVar, overload

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from romancy.api.context import ActivityContext, WorkflowContext, links_of
from romancy.api.waiting import build_filter, build_spec, codecs_of, instance_for
from romancy.core.codec import Wire
from romancy.core.dropped import encode_identity
from romancy.core.eviction import Refusal
from romancy.core.forms import NotAForm, fields_of
from romancy.core.instance import Instance
from romancy.core.model import SECOND, Duration, Event, duration_us, from_us, to_us
from romancy.core.operations import EventWait
from romancy.core.questions import (
    ANSWERED,
    ASKED,
    CLOSED,
    LONGEST_TEXT,
    LONGEST_TITLE,
    REFUSED,
    SOURCE,
    Asked,
    check_ask_id,
    check_people,
    check_words,
    closed_event,
    key_of,
    refused_event,
)
from romancy.core.round_trip import Unfit
from romancy.core.tickets import LAST_EXPIRY, Ticket
from romancy.errors import RomancyError, WaitTimeout

_NO_TYPES: tuple[type[Any], ...] = BaseModel, str, int, float, list, dict
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Answer(Generic[T_co]):
    """What one person answered."""

    data: T_co
    by: str
    """Who gave it: the person who was asked, or the operator who answered for them."""
    at: datetime


@dataclass(frozen=True)
class Decision(Generic[T_co]):
    """What a vote decided. `by` and `data` are those of the answer that decided."""

    agreed: bool
    by: str
    data: T_co
    answers: Sequence[Answer[T_co]]


@dataclass(frozen=True)
class Invitation:
    """The invitation of one person to answer. Plain data without a secret: it can be an argument of an activity."""

    person: str
    question: str
    expires_at: datetime | None = None

    def url(self, ctx: ActivityContext, /) -> str:
        """Return the signed link to the form. Anyone who has it can answer: call this in the activity that sends it."""
        if not isinstance(ctx, ActivityContext):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "invitation.url(ctx) is for the activity that delivers the link: in a workflow it would be recorded, "
                "and every reader of the history could answer"
            )
        number, key, instance = self.question.split(" ", 2)
        expires_at = None if self.expires_at is None else -(-to_us(self.expires_at) // SECOND)  # rounded up: not early
        return links_of(ctx).to(Ticket(instance, key, int(number), expires_at))


class _Asked(Generic[T_co]):
    """A question that was asked."""

    _aim = "answered"

    def __init__(self, instance: Instance, ask_id: str, asked: Asked, model: Wire) -> None:
        self._instance, self._ask_id, self._asked, self._model = instance, ask_id, asked, model
        self._is_closed = self._is_waiting = False
        self._answered: set[int] = set()  # the places of people
        self._expired: WaitTimeout | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._ask_id!r} {self._asked.title!r}>"

    @property
    def ask_id(self) -> str:
        """The id of the question in its instance."""
        return self._ask_id

    @property
    def expires_at(self) -> datetime | None:
        """When it is too late to answer."""
        return None if self._asked.expires_at is None else from_us(self._asked.expires_at)

    @property
    def invitations(self) -> Mapping[str, Invitation]:
        """An invitation for each person."""
        instance, key = self._instance.alias, self._asked.key
        return {
            person: Invitation(person, f"{number} {key} {instance}", self.expires_at)
            for number, person in enumerate(self._asked.people)
        }

    async def _next(self, timeout: Duration | None) -> Answer[T_co]:
        """Wait for the next answer that the model accepts."""
        if self._expired is not None:
            raise self._timeout("expired", self._expired) from self._expired
        instance, asked = self._instance, self._asked
        due = None if timeout is None else instance.at + duration_us(timeout, "timeout")
        is_last = asked.expires_at is not None and (due is None or asked.expires_at <= due)
        if is_last:
            due = max(asked.expires_at or 0, instance.at)
        narrow = build_filter(asked.key, SOURCE, None)
        while True:
            spec = build_spec((ANSWERED,), narrow)
            wait = EventWait(
                instance.run.next_id(f"answer {self._ask_id}"),
                instance.at,
                types=(ANSWERED,),
                spec=spec,
                filter=narrow,
                due=due,
                keeps_due=is_last,
            )
            try:
                event = await instance.perform(wait)
            except WaitTimeout as error:
                if not is_last:
                    raise self._timeout(f"was not {self._aim} in time; it is still open", error) from error
                self._expired = error
                await self._close("expired", None)
                raise self._timeout("expired", error) from error
            if event.data["person"] in self._answered:
                continue  # a retry may accept what was refused: then the one that followed must not count, too
            try:
                data = self._model.read(json.dumps(event.data["answer"]).encode())
            except Unfit as error:
                await self._refuse(event.id, self._why(error))
                continue
            self._answered.add(event.data["person"])
            return Answer(data, event.data["by"], event.time)

    async def _refuse(self, answer: str, why: str) -> None:
        """Say that an answer does not count. On replay, the recorded id counts: that of a fork was another one once."""
        await _check_alive(self._instance)
        op = _next_id(self._instance, REFUSED)
        event = refused_event(self._instance.alias, self._asked.key, answer, why)
        recorded = self._instance.recorded(op)
        _send_as(op, self._instance, event if recorded is None else replace(event, id=json.loads(recorded)["id"]))

    def _why(self, unfit: Unfit) -> str:
        """Say why an answer was refused, for the person who gave it."""
        cause = unfit.__cause__
        if isinstance(cause, ValidationError):
            return _explain(cause)
        message = f"a validator failed when it read an answer to {self._asked.title!r}"
        self._instance.report({"message": message, "exception": cause})
        return "it can't be read"

    def _timeout(self, how: str, of: WaitTimeout) -> WaitTimeout:
        return WaitTimeout(f"the question {self._asked.title!r} {how}", types=of.types, wait_id=of.wait_id)

    @contextmanager
    def _waiting(self) -> Generator[None]:
        """Let one task wait at a time: each answer goes to one wait only, and another one would never end."""
        if self._is_waiting:
            raise RomancyError(
                f"another task already waits for the answers to {self._asked.title!r}: "
                "wait in one task, and share what it returns"
            )
        self._is_waiting = True
        try:
            yield
        finally:
            self._is_waiting = False

    async def _close(self, how: str, by: str | None) -> None:
        if not self._is_closed:
            self._is_closed = True
            await _send(self._instance, closed_event(self._instance.alias, self._asked.key, how, by))


class Question(_Asked[T_co]):
    """A question to one or several people: the first answer counts."""

    _answer: Answer[T_co] | None = None

    async def answer(self, timeout: Duration | None = None) -> Answer[T_co]:
        """Wait for the answer. Raise `WaitTimeout` after `timeout`, or when the question expires."""
        if self._answer is None:
            with self._waiting():
                self._answer = await self._next(timeout)
                await self._close(self._aim, self._answer.by)
        return self._answer


class Vote(_Asked[T_co]):
    """A question on which several people decide together."""

    _aim = "decided"

    def __init__(
        self,
        instance: Instance,
        ask_id: str,
        asked: Asked,
        model: Wire,
        agrees: Callable[[T_co], bool],
        needed: int,
        refusals: int,
    ) -> None:
        super().__init__(instance, ask_id, asked, model)
        self._agrees, self._needed = agrees, needed
        self._refusals = min(refusals, len(asked.people) - needed + 1)  # then so many can't agree any more
        self._answers: list[Answer[T_co]] = []
        self._ayes = 0
        self._decision: Decision[T_co] | None = None

    @property
    def missing(self) -> Sequence[str]:
        """The people whose answers have not been counted, to remind them: after `decision` raised `WaitTimeout`."""
        return [person for place, person in enumerate(self._asked.people) if place not in self._answered]

    async def decision(self, timeout: Duration | None = None) -> Decision[T_co]:
        """Wait for the decision. Raise `WaitTimeout` after `timeout`; what was answered by then counts later."""
        if self._decision is None:
            with self._waiting():
                self._decision = await self._decide(timeout)
        return self._decision

    async def _decide(self, timeout: Duration | None) -> Decision[T_co]:
        due = None if timeout is None else self._instance.at + duration_us(timeout, "timeout")
        while True:
            left = None if due is None else max(0, due - self._instance.at) / SECOND
            answer = await self._next(left)
            self._answers.append(answer)
            agreed = bool(self._agrees(answer.data))
            self._ayes += agreed
            if self._ayes >= self._needed or len(self._answers) - self._ayes >= self._refusals:
                await self._close(self._aim, answer.by)
                return Decision(agreed, answer.by, answer.data, tuple(self._answers))


@overload
async def ask(
    ctx: WorkflowContext,
    model: type[T],
    /,
    *,
    title: str,
    people: Sequence[str],
    text: str | None = None,
    expires_in: Duration | None = None,
    ask_id: str | None = None,
) -> Question[T]: ...
@overload
async def ask(
    ctx: WorkflowContext,
    model: type[T],
    /,
    *,
    title: str,
    people: Sequence[str],
    agrees: Callable[[T], bool],
    needed: int = 1,
    refusals: int = 1,
    text: str | None = None,
    expires_in: Duration | None = None,
    ask_id: str | None = None,
) -> Vote[T]: ...
async def ask(
    ctx: WorkflowContext,
    model: type[T],
    /,
    *,
    title: str,
    people: Sequence[str],
    agrees: Callable[[T], bool] | None = None,
    needed: int = 1,
    refusals: int = 1,
    text: str | None = None,
    expires_in: Duration | None = None,
    ask_id: str | None = None,
) -> Question[T] | Vote[T]:
    """Ask people. Deliver each invitation's link in an activity, then wait for the answer.

    >>> question = await ask(ctx, Address, title="Where to?", people=["ann@x.org"], expires_in=timedelta(days=3))
    >>> await send_mail(ctx, question.invitations["ann@x.org"])  # an activity: invitation.url(ctx) signs the link
    >>> address = (await question.answer()).data

    `model` is a dataclass, a pydantic model or a plain type: the form is made from it. With `agrees`, it is a vote:
    so many as `needed` must agree, and so many `refusals` end it; `await vote.decision()`.
    """
    instance = instance_for(ctx, "ask")
    adapter, schema = _form_of(model)
    asked_people = check_people(people)
    vote = _check_vote(agrees, needed, refusals, len(asked_people))
    check_words("title", title, LONGEST_TITLE)
    if text is not None:
        check_words("text", text, LONGEST_TEXT)
    if ask_id is not None:
        check_ask_id(ask_id)
    expires_at = None if expires_in is None else _check_expiry(instance.at + duration_us(expires_in, "expires_in"))
    op = instance.run.next_id("ask", ask_id)
    asked = Asked("", title, text or "", asked_people, schema, expires_at, needed if vote else None)
    asked = await _put(instance, op, asked)
    if agrees is None:
        return Question[T](instance, op, asked, adapter)
    return Vote[T](instance, op, asked, adapter, agrees, needed, refusals)


def _form_of(model: Any) -> tuple[Wire, Mapping[str, Any]]:
    """Return what reads the answers, as JSON like the data of events, and the schema for the form."""
    if isinstance(model, _NO_TYPES) or (is_dataclass(model) and not isinstance(model, type)):
        raise TypeError(f"ask needs a type, not an instance of one: {type(model).__name__}")
    try:
        schema = TypeAdapter[Any](model).json_schema()
        fields_of(schema)
    except (NotAForm, PydanticSchemaGenerationError, PydanticInvalidForJsonSchema) as error:
        raise TypeError(f"{model!r} can't be asked with a form: {error}") from None
    [codec] = codecs_of(model, (ANSWERED,))
    assert codec is not None  # only Any has none, and can't be asked
    return codec.wire, schema


def _explain(error: ValidationError) -> str:
    problems: list[str] = []
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(map(str, one["loc"]))
        said = one["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ").rstrip(".")
        problems.append(f"{where}: {said}" if where else said)
    return "; ".join(problems)


def _check_expiry(expires_at: int) -> int:
    if expires_at > LAST_EXPIRY * SECOND:
        raise ValueError("expires_in is too long: a link can't expire after the year 2106; leave it out for no limit")
    return expires_at


def _check_vote(agrees: object, needed: int, refusals: int, people: int) -> bool:
    for name, value in (("needed", needed), ("refusals", refusals)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= people:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"{name} must be a number from 1 to {people}, as many as were asked, not {value!r}")
    if agrees is None and (needed, refusals) != (1, 1):
        raise ValueError("needed= and refusals= are for votes: give agrees=, which says what counts as a yes")
    return agrees is not None


async def _put(instance: Instance, op: str, asked: Asked) -> Asked:
    """Send a question, and return it with its key. It replaces another one that was asked here before a retry."""
    await _check_alive(instance)
    sent_as = _next_id(instance, ASKED)
    before: list[str] = [] if instance.dropped is None else [sent["subject"] for sent in instance.dropped.sent(sent_as)]
    recorded = instance.recorded(sent_as)
    if recorded is None:
        asked = replace(asked, key=key_of(op, instance.started_at, asked.data, before))
    else:
        asked = replace(asked, key=json.loads(recorded)["subject"])
    _send_as(sent_as, instance, asked.to_event(instance.alias), {"people": list(asked.people)})
    if before and before[-1] != asked.key and not _was_closed(instance, before[-1]):
        await _send(instance, closed_event(instance.alias, before[-1], "replaced", None))
    return asked


def _was_closed(instance: Instance, key: str) -> bool:
    """Return whether a question was closed before a retry."""
    sent = [] if instance.dropped is None else instance.dropped.sent()
    return any(one.get("type") == CLOSED and one["subject"] == key for one in sent)


async def _send(instance: Instance, event: Event) -> None:
    """Send one of Romancy's own events with this step."""
    await _check_alive(instance)
    _send_as(_next_id(instance, event.type), instance, event)


async def _check_alive(instance: Instance) -> None:
    if instance.is_halted:
        await Refusal(instance)
    instance.check_alive()


def _next_id(instance: Instance, type: str) -> str:
    return instance.run.next_id(f"send {type}")


def _send_as(op: str, instance: Instance, event: Event, compared: Mapping[str, Any] | None = None) -> None:
    """Send an event. Its words are not compared on replay: they may be improved."""
    identity = {
        "type": event.type,
        "source": event.source,
        "subject": event.subject,
        "id": event.id,
        **(compared or {}),
    }
    instance.send(op, event, encode_identity(identity))
