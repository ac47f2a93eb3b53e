"""Waiting in a workflow, for events or for time. Each function creates an operation and awaits it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, TypeVar, cast, overload

from romancy.api.context import WorkflowContext, instance_of
from romancy.core.codec import Codec
from romancy.core.events import check_text
from romancy.core.filters import NO_FILTER, Filter, compact
from romancy.core.instance import Instance
from romancy.core.interests import check_expected
from romancy.core.model import Duration, ReceivedEvent, Scalar, duration_us, to_us
from romancy.core.operations import EventWait, Timer
from romancy.errors import InvalidEvent

T = TypeVar("T")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
_codecs: dict[Any, Codec] = {}
_MOST_CODECS = 256


@overload
async def wait_event(
    ctx: WorkflowContext,
    type: str,
    /,
    *types: str,
    model: type[T],
    timeout: Duration | None = None,
    wait_id: str | None = None,
    subject: str | None = None,
    source: str | None = None,
    where: Mapping[str, Scalar] | None = None,
    since: datetime | Literal["now"] | None = None,
) -> ReceivedEvent[T]: ...
@overload
async def wait_event(
    ctx: WorkflowContext,
    type: str,
    /,
    *types: str,
    model: tuple[type[T], type[T2]],
    timeout: Duration | None = None,
    wait_id: str | None = None,
    subject: str | None = None,
    source: str | None = None,
    where: Mapping[str, Scalar] | None = None,
    since: datetime | Literal["now"] | None = None,
) -> ReceivedEvent[T | T2]: ...
@overload
async def wait_event(
    ctx: WorkflowContext,
    type: str,
    /,
    *types: str,
    model: tuple[type[T], type[T2], type[T3]],
    timeout: Duration | None = None,
    wait_id: str | None = None,
    subject: str | None = None,
    source: str | None = None,
    where: Mapping[str, Scalar] | None = None,
    since: datetime | Literal["now"] | None = None,
) -> ReceivedEvent[T | T2 | T3]: ...
@overload
async def wait_event(
    ctx: WorkflowContext,
    type: str,
    /,
    *types: str,
    model: Any = None,
    timeout: Duration | None = None,
    wait_id: str | None = None,
    subject: str | None = None,
    source: str | None = None,
    where: Mapping[str, Scalar] | None = None,
    since: datetime | Literal["now"] | None = None,
) -> ReceivedEvent[Any]: ...
async def wait_event(
    ctx: WorkflowContext,
    type: str,
    /,
    *types: str,
    model: Any = None,
    timeout: Duration | None = None,
    wait_id: str | None = None,
    subject: str | None = None,
    source: str | None = None,
    where: Mapping[str, Scalar] | None = None,
    since: datetime | Literal["now"] | None = None,
) -> ReceivedEvent[Any]:
    """Wait for the next event of one of these types. The worker is free in the meantime.

    Events accepted before the wait, but since the instance was created, count too. Raise `WaitTimeout` after `timeout`.

    >>> event = await wait_event(ctx, "payment.completed", where={"order_id": "ORD-1"}, timeout=timedelta(minutes=5))
    """
    instance = instance_for(ctx, "wait_event")
    all_types = check_types(instance, (type, *types))
    narrow = build_filter(subject, source, where)
    op = EventWait(
        instance.run.next_id(type, wait_id),
        instance.at,
        types=all_types,
        spec=build_spec(all_types, narrow),
        filter=narrow,
        due=None if timeout is None else instance.at + duration_us(timeout, "timeout"),
        since_event=check_since(since),
        models=codecs_of(model, all_types),
        keeps_place=since == "now",  # for retries
    )
    return await instance.perform(op)


async def sleep(ctx: WorkflowContext, duration: Duration, *, timer_id: str | None = None) -> None:
    """Sleep for seconds or months. The deadline is stored in the database and survives restarts."""
    instance = instance_for(ctx, "sleep")
    due = instance.at + duration_us(duration)
    await instance.perform(Timer(instance.run.next_id("sleep", timer_id), instance.at, due=due))


async def sleep_until(ctx: WorkflowContext, when: datetime, *, timer_id: str | None = None) -> None:
    """Sleep until an aware datetime. If that is in the past, the sleep ends immediately but is still recorded."""
    instance = instance_for(ctx, "sleep_until")
    if not isinstance(when, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"sleep_until needs an aware datetime, got {when!r}")
    await instance.perform(Timer(instance.run.next_id("sleep", timer_id), instance.at, due=to_us(when), keeps_due=True))


def instance_for(ctx: WorkflowContext, what: str) -> Instance:
    """Return the instance of a workflow's context; raise `TypeError` for anything else."""
    if not isinstance(ctx, WorkflowContext):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what} needs the workflow's ctx as its first argument, got {ctx!r}")
    return instance_of(ctx)


def check_types(instance: Instance, types: tuple[str, ...]) -> tuple[str, ...]:
    """Return the types of a wait, checked."""
    for name in types:
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"an event type must be a non-empty string, got {name!r}")
        _check_type(name)
    if len(set(types)) != len(types):
        raise ValueError(f"an event type is listed twice: {', '.join(types)}")
    if instance.definition.expects is not None:
        check_expected(types, instance.definition.expects, instance.definition.name)
    return types


@lru_cache(maxsize=1024)
def _check_type(name: str) -> None:
    try:
        check_text("type", name)
    except InvalidEvent as error:
        raise ValueError(str(error)) from None


def build_filter(subject: str | None, source: str | None, where: Mapping[str, Scalar] | None) -> Filter:
    """Return what narrows a wait beyond its types."""
    for name, value in (("subject", subject), ("source", source)):
        if value == "":
            raise ValueError(f"{name} must not be empty: no event has an empty {name}; leave it out to accept any")
    if subject is None and source is None and not where:
        return NO_FILTER
    return Filter.build(subject, source, cast("Any", where))


def build_spec(types: tuple[str, ...], narrow: Filter) -> bytes:
    """Return what a wait is for, as it is recorded."""
    spec = {"types": types, **({"filter": narrow.to_json()} if narrow.fields else {})}
    return compact(spec).encode()


def check_since(since: datetime | str | None) -> int | Literal["now"] | None:
    """Return where a wait begins, checked."""
    if isinstance(since, datetime):
        return to_us(since)
    if since is None:
        return None
    if since == "now":
        return "now"
    raise ValueError(f'since must be "now", an aware datetime or None, got {since!r}')


def codecs_of(model: Any, types: tuple[str, ...]) -> tuple[Codec | None, ...]:
    """Return the codec for each type, or one for all."""
    if isinstance(model, list):
        raise TypeError("model= takes one model for all types, or a tuple with one for each: model=(Paid, Declined)")
    models = cast("tuple[Any, ...]", model if isinstance(model, tuple) else (model,))
    if len(models) != len(types) and isinstance(model, tuple):
        raise ValueError(f"give one model for all types or one per type: {len(models)} models, {len(types)} types")
    return tuple(None if m is None or m is Any else _codec(m) for m in models)


def _codec(model: Any) -> Codec:
    try:
        codec = _codecs.get(model)
    except TypeError:  # an unhashable annotation
        return Codec(model, f"event data for model {model!r}")
    if codec is None:
        if len(_codecs) >= _MOST_CODECS:
            _codecs.pop(next(iter(_codecs)))  # models that are created anew in every run must not pile up
        codec = _codecs[model] = Codec(model, f"event data for model {getattr(model, '__name__', model)!r}")
    return codec
