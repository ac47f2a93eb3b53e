"""Middleware: code around activity attempts, starts and sent events. It runs once and live, never on replay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar, cast

from romancy.api.context import ActivityContext
from romancy.core.new_events import Event
from romancy.hooks import HooksBase

T = TypeVar("T")


@dataclass(frozen=True)
class StartRequest:
    """An instance that is to be started."""

    workflow: str
    instance_id: str
    arguments: Mapping[str, Any]
    """The arguments by name. Only to be read: what is stored was made from them before."""
    headers: MutableMapping[str, str]
    """Stored with the instance, and passed on to its children: `traceparent`, the tenant and the like. At most 4 KiB.

    Its activities and middleware find them as `ctx.headers`, hooks as `info.headers`. Workflow code does not see them.
    """
    run_number: int = field(default=1, kw_only=True)
    """More than 1 if the instance exists, and continues as new."""
    run_lasted: timedelta | None = field(default=None, kw_only=True)
    """How long the run took that has ended, of an instance that continues as new."""


class MiddlewareBase(HooksBase):
    """Override what you need. The first in `App(middleware=[...])` is the outermost.

    >>> class Timed(MiddlewareBase):
    ...     async def around_activity(self, ctx, call_next):
    ...         with timer(ctx.activity_id):
    ...             return await call_next()

    `call_next` can be called once, or not at all: then what you return is the result. What you raise is raised to
    whoever called, and fails the attempt, the start or the send. The `on_...` methods are called as those of hooks are.
    """

    async def around_activity(self, ctx: ActivityContext, call_next: Callable[[], Awaitable[T]], /) -> T:
        """Run around each attempt of an activity, in its task and within its time limit.

        Context variables that you set are visible to the activity, also to a `def` activity in its thread. What you
        return is recorded as the result. In a transactional activity, it runs inside the transaction.
        """
        return await call_next()

    async def around_start(self, start: StartRequest, call_next: Callable[[], Awaitable[T]], /) -> T:
        """Run around `app.start_workflow` and POST /api/workflows/.../start. Add to `start.headers` before the call.

        Not around children, schedules and instances that events start: see `adopt`.
        """
        return await call_next()

    async def around_send(self, event: Event, call_next: Callable[[Event], Awaitable[T]], /) -> T:
        """Run around events that your code sends from an app or an activity. Pass on the event, or a changed copy.

        Events of an activity are sent when it has returned. Events that workflow code sends, or that arrive by HTTP,
        do not come here.
        """
        return await call_next(event)

    def attach(self, app: Any, /) -> None:
        """Called with the app, on its event loop, when it has started."""

    def adopt(self, start: StartRequest, /) -> None:
        """Add headers to an instance that has none, when a worker loads it. They are stored with its next step.

        It was started by a schedule, or where this middleware was not in use. An instance that an event started has the
        `traceparent` and `tracestate` of the event. Also called when an instance continues as new: change the headers
        here if the next run is to have others. `arguments` is empty.
        """


def check_middleware(given: MiddlewareBase | Sequence[MiddlewareBase]) -> tuple[MiddlewareBase, ...]:
    """Return the middleware of an app; raise `TypeError` if something else is among it."""
    chosen = (given,) if isinstance(given, MiddlewareBase) else tuple(given)
    for each in chosen:
        if not isinstance(each, MiddlewareBase):  # pyright: ignore[reportUnnecessaryIsInstance]
            hint = "; is it a class? pass an object of it" if isinstance(cast("object", each), type) else ""
            raise TypeError(f"middleware must be objects of subclasses of MiddlewareBase, got {each!r}{hint}")
    return chosen
