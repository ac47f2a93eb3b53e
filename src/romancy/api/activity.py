"""`@activity`: a function that may touch the outside world. Workflows call it, and its result is recorded."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from romancy.api.context import ActivityContext, TransactionContext, WorkflowContext, instance_of
from romancy.core.compensation import compensation_of
from romancy.core.model import Duration, duration_us
from romancy.core.operations import ActivityCall, UndoableCall
from romancy.core.registry import ActivityDefinition, undo_rule
from romancy.core.retry import UNSET, RetryPolicy, Unset, check_policy

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
R_co = TypeVar("R_co", covariant=True)


class Activity(Generic[P, R_co]):
    """A function decorated with `@activity`. Call it in a workflow: `await charge(ctx, 42)`.

    `.fn` is the plain function, for unit tests.
    """

    def __init__(
        self,
        definition: ActivityDefinition,
        activity_id: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: int | None = None,
    ) -> None:
        self._definition = definition
        self.name = definition.name
        self.fn: Callable[..., Any] = definition.fn
        self._id, self._retry, self._timeout = activity_id, retry, timeout
        self.__doc__ = definition.fn.__doc__
        self.__name__ = definition.fn.__name__
        self.__module__ = definition.fn.__module__
        self.__qualname__ = definition.fn.__qualname__
        self.__wrapped__ = definition.fn

    def __repr__(self) -> str:
        return f"<activity {self.name}>"

    async def __call__(self, ctx: WorkflowContext, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        if not isinstance(ctx, WorkflowContext):  # pyright: ignore[reportUnnecessaryIsInstance]
            if isinstance(ctx, ActivityContext):
                raise TypeError(
                    f"activity {self.name!r} must be called from a workflow, not from another activity; "
                    f"call its plain function there: {self.name}.fn(ctx, ...)"
                )
            raise TypeError(
                f"activity {self.name!r} must be called from a workflow, with its ctx as the first argument: "
                f"await {self.name}(ctx, ...); in a unit test, call {self.name}.fn(...)"
            )
        instance, definition = instance_of(ctx), self._definition
        arguments = definition.signature.encode_call(args, kwargs)
        id = instance.run.next_id(definition.name, self._id)
        retry = self._retry or definition.retry
        timeout = self._timeout if self._timeout is not None else definition.timeout
        if definition.undo is None:
            return await instance.perform(ActivityCall(id, instance.at, definition, arguments, retry, timeout))
        compensation = compensation_of(instance)
        call = UndoableCall(id, instance.at, definition, arguments, retry, timeout, compensation.owing)
        try:
            return await instance.perform(call)
        except asyncio.CancelledError:
            compensation.missed(call)
            raise

    def options(
        self,
        *,
        activity_id: str | None = None,
        retry: RetryPolicy | Unset = UNSET,
        timeout: Duration | None = None,
    ) -> Activity[P, R_co]:
        """Return the same activity with other settings for one call: `await charge.options(timeout=5)(ctx, 42)`.

        Settings that are left out stay as they are. `retry=NO_RETRY` means a single attempt.
        """
        us = None if timeout is None else duration_us(timeout, "timeout")
        given = check_policy(retry, f"activity {self.name!r}")
        return Activity(
            self._definition,
            activity_id if activity_id is not None else self._id,
            given or self._retry,
            self._timeout if us is None else us,
        )

    @overload
    def compensate(self, undo: Activity[P, Any], /) -> Activity[P, Any]: ...
    @overload
    def compensate(self, undo: Activity[Concatenate[R_co, P], Any], /) -> Activity[Concatenate[R_co, P], Any]: ...
    @overload
    def compensate(self, undo: Activity[[R_co], Any], /) -> Activity[[R_co], Any]: ...
    @overload
    def compensate(self, undo: Callable[Concatenate[ActivityContext, P], object], /) -> Activity[P, Any]: ...  # type: ignore[overload-overlap]
    @overload
    def compensate(  # type: ignore[overload-overlap]
        self, undo: Callable[Concatenate[ActivityContext, R_co, P], object], /
    ) -> Activity[Concatenate[R_co, P], Any]: ...
    @overload
    def compensate(self, undo: Callable[[ActivityContext, R_co], object], /) -> Activity[[R_co], Any]: ...
    def compensate(self, undo: Any, /) -> Any:
        """Declare the undo of this activity, as a decorator. It runs if the workflow fails or is cancelled.

        It takes the activity's own arguments, or its result before them, or its result alone. A parameter with the
        name of one of the activity's is that argument.

        >>> @reserve.compensate
        ... async def release(ctx: ActivityContext, booking: Booking, room: str) -> None: ...
        """
        made = cast("Activity[..., Any]", undo if isinstance(undo, Activity) else activity(undo))
        self._definition.undo = undo_rule(self._definition, *settings_of(made))
        return made


def settings_of(of: Activity[..., Any]) -> tuple[ActivityDefinition, RetryPolicy | None, int | None]:
    """Return what a call of an activity goes by: its definition, its retry policy and its timeout."""
    definition, retry, timeout = of._definition, of._retry, of._timeout  # pyright: ignore[reportPrivateUsage]
    return definition, retry or definition.retry, definition.timeout if timeout is None else timeout


class _ActivityDecorator(Protocol):
    @overload
    def __call__(self, fn: Callable[Concatenate[ActivityContext, P], Coroutine[Any, Any, R]], /) -> Activity[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[ActivityContext, P], R], /) -> Activity[P, R]: ...


class _TransactionDecorator(Protocol):
    @overload
    def __call__(
        self, fn: Callable[Concatenate[TransactionContext[C], P], Coroutine[Any, Any, R]], /
    ) -> Activity[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[TransactionContext[C], P], R], /) -> Activity[P, R]: ...


@overload
def activity(fn: Callable[Concatenate[ActivityContext, P], Coroutine[Any, Any, R]], /) -> Activity[P, R]: ...
@overload
def activity(fn: Callable[Concatenate[ActivityContext, P], R], /) -> Activity[P, R]: ...
@overload
def activity(
    *,
    name: str | None = None,
    retry: RetryPolicy | Unset = UNSET,
    timeout: Duration | None = None,
    raises: Collection[type[Exception]] = (),
    max_per_worker: int | None = None,
) -> _ActivityDecorator: ...
@overload
def activity(
    *,
    transactional: Literal[True],
    name: str | None = None,
    retry: RetryPolicy | Unset = UNSET,
    timeout: Duration | None = None,
    raises: Collection[type[Exception]] = (),
    max_per_worker: int | None = None,
) -> _TransactionDecorator: ...
def activity(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    transactional: bool = False,
    name: str | None = None,
    retry: RetryPolicy | Unset = UNSET,
    timeout: Duration | None = None,
    raises: Collection[type[Exception]] = (),
    max_per_worker: int | None = None,
) -> Any:
    """Turn a function into an activity: `async def`, or `def` (run in a thread). Its first parameter is `ctx`.

    `raises=` lists exceptions that count as answers: they are not retried, and the workflow sees them as they are.
    `max_per_worker=5` means that each worker runs at most 5 of this activity at once. The others wait, and leave the
    slots of `max_activities` to other activities.

    `transactional=True`: the function runs in a transaction of the app's own database, and its ctx is a
    `TransactionContext`. What it writes with `ctx.connection`, the events that it sends and its result are committed
    together or not at all. On PostgreSQL it must be `async def`. On SQLite other writes wait meanwhile, so it can take
    5 seconds at most.
    """

    def decorate(fn: Callable[..., Any]) -> Activity[..., Any]:
        check_plain(fn, "activity")
        stored = name if name is not None else fn.__name__
        check_function(fn, "activity", stored)
        _check_transaction(fn, stored, transactional)
        policy = check_policy(retry, f"activity {stored!r}")
        answers = cast("tuple[type[Exception], ...]", (raises,) if isinstance(raises, type) else tuple(raises))
        us = None if timeout is None else duration_us(timeout, "timeout")
        _check_limit(max_per_worker, stored)
        definition = ActivityDefinition(
            stored, fn, policy, us, answers, max_per_worker=max_per_worker, transactional=transactional
        )
        definition.resolve_early()
        return Activity(definition)

    return decorate if fn is None else decorate(fn)


def _check_transaction(fn: Callable[..., Any], name: str, transactional: bool) -> None:
    """Check that the type of ctx says whether there is a transaction."""
    given = next(iter(inspect.signature(fn).parameters.values())).annotation
    if not transactional and "TransactionContext" in str(given):
        raise TypeError(
            f"activity {name!r} takes ctx: TransactionContext, which only exists in a transaction; "
            "write @activity(transactional=True)"
        )


def check_plain(fn: object, kind: str) -> None:
    """Catch `@activity("name")`, an easy mistake."""
    if not inspect.isfunction(fn):
        raise TypeError(f"@{kind} decorates a function, not {fn!r}; to set a name, write @{kind}(name=...)")


def _check_limit(limit: object, name: str) -> None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise ValueError(f"max_per_worker of activity {name!r} must be a positive integer, not {limit!r}")


def check_name(name: str, what: str) -> None:
    """Check that a name can be stored."""
    if not name or len(name) > 200 or not name.isprintable():
        raise TypeError(f"{what} must have 1 to 200 printable characters, got {name!r}")


def check_function(fn: Callable[..., Any], kind: str, name: str) -> None:
    """Check that a function takes the right `ctx` first and has a name that can be stored."""
    check_name(name, f"the name in @{kind}")
    parameters = list(inspect.signature(fn).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise TypeError(f"{kind} {name!r} must take ctx as its first parameter")
    if parameters[0].name in ("self", "cls"):
        raise TypeError(
            f"{kind} {name!r} is a method; make it a plain function (keep shared objects in App(state=...))"
        )
    given = str(parameters[0].annotation)
    if ("ActivityContext" if kind == "workflow" else "WorkflowContext") in given:
        right = "WorkflowContext" if kind == "workflow" else "ActivityContext"
        raise TypeError(f"{kind} {name!r} must take ctx: {right}, not {parameters[0].annotation!r}")
    if any(p.name == "instance_id" for p in parameters):
        raise TypeError(
            f"{kind} {name!r} has a parameter named instance_id, which options(instance_id=...) uses; rename it"
        )
